//! Named queries: one statement per file in `schema/queries`, known by the file's name in code, logs and metrics.
//!
//! Segment tables have integers in their names, so what names them is a template of `schema/templates` that is filled
//! with integers that we generated and nothing else. Values are always bound.

use tokio_postgres::types::Type;

/// A statement with its name and the types of its parameters.
#[derive(Debug)]
pub struct Query {
    pub name: &'static str,
    pub sql: &'static str,
    pub types: &'static [Type],
}

/// Declares a named query: its file, and the types of `$1`, `$2`, …
macro_rules! query {
    ($name:ident = $file:literal [$($type:ident),* $(,)?]) => {
        pub(super) static $name: $crate::store::query::Query = $crate::store::query::Query {
            name: $file,
            sql: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/queries/", $file, ".sql")),
            types: &[$(tokio_postgres::types::Type::$type),*],
        };
    };
}
pub(crate) use query;

/// A statement whose table names hold integers.
#[derive(Debug)]
pub struct Template {
    pub name: &'static str,
    pub text: &'static str,
    pub types: &'static [Type],
}

/// Declares a template: its file, and the types of its bound parameters.
macro_rules! template {
    ($name:ident = $file:literal [$($type:ident),* $(,)?]) => {
        static $name: $crate::store::query::Template = $crate::store::query::Template {
            name: $file,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/templates/", $file, ".sql")),
            types: &[$(tokio_postgres::types::Type::$type),*],
        };
    };
}
pub(crate) use template;

impl Template {
    /// The statement for some integers. Comments go, because they name the placeholders too.
    pub fn fill(&self, integers: &[(&str, i64)]) -> String {
        let mut sql: String =
            self.text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
        for (name, value) in integers {
            sql = sql.replace(&format!("{{{name}}}"), &value.to_string());
        }
        debug_assert!(!sql.contains('{'), "{}: a placeholder was not filled", self.name);
        sql
    }
}
