//! Every statement that the store knows prepares on today's schema, with the parameters that its file and the code declare.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokio_postgres::types::Type;

use crate::harness::TestDatabase;
use crate::harness::produce::{topic, unit};

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The statements of a folder of today's schema, by name.
fn files(folder: &str) -> BTreeMap<String, String> {
    statements(&root().join("schema").join(folder))
}

/// The statements of a folder, by name.
pub fn statements(folder: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let read = |path: PathBuf| {
        (path.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap())
    };
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

fn sources(directory: &Path) -> String {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// The types that `query!` or `template!` declares for a file.
pub fn declared(store: &str, name: &str) -> Vec<Type> {
    let marker = format!(" = \"{name}\"[");
    let from = store.find(&marker).unwrap_or_else(|| panic!("{name} is not declared")) + marker.len();
    let list = &store[from..from + store[from..].find(']').unwrap()];
    let without_comments = list.lines().map(|line| line.split("//").next().unwrap()).collect::<String>();
    without_comments.split(',').map(str::trim).filter(|word| !word.is_empty()).map(rust_type).collect()
}

fn rust_type(word: &str) -> Type {
    let known = [
        ("BOOL", Type::BOOL),
        ("INT4", Type::INT4),
        ("INT8", Type::INT8),
        ("FLOAT8", Type::FLOAT8),
        ("TEXT", Type::TEXT),
        ("BYTEA", Type::BYTEA),
        ("UUID", Type::UUID),
        ("TIMESTAMPTZ", Type::TIMESTAMPTZ),
        ("TIMESTAMPTZ_ARRAY", Type::TIMESTAMPTZ_ARRAY),
        ("INT4_ARRAY", Type::INT4_ARRAY),
        ("INT8_ARRAY", Type::INT8_ARRAY),
        ("TEXT_ARRAY", Type::TEXT_ARRAY),
        ("BYTEA_ARRAY", Type::BYTEA_ARRAY),
        ("UUID_ARRAY", Type::UUID_ARRAY),
        ("TIMESTAMPTZ_ARRAY", Type::TIMESTAMPTZ_ARRAY),
    ];
    let found = known.into_iter().find(|(name, _)| *name == word);
    found.unwrap_or_else(|| panic!("{word}: teach this test the type")).1
}

/// How a file's header names a type.
fn sql_type(of: &Type) -> String {
    let name = match of.name().trim_start_matches('_') {
        "bool" => "boolean",
        "int4" => "integer",
        "int8" => "bigint",
        "float8" => "double precision",
        other => other,
    };
    let array = if of.name().starts_with('_') { "[]" } else { "" };
    format!("{name}{array}")
}

fn says_type(said: &str, expected: &str) -> bool {
    said.strip_prefix(expected).is_some_and(|rest| !rest.starts_with("[]"))
}

/// Asserts that the header says `$1 name type` of each parameter, and the statement uses each and no other.
fn assert_header(name: &str, text: &str, types: &[Type]) {
    let is_comment = |line: &&str| line.starts_with("--");
    let header: String = text.lines().take_while(is_comment).collect::<Vec<_>>().join(" ");
    let body: String = text.lines().skip_while(is_comment).collect::<Vec<_>>().join("\n");
    for (place, declared) in types.iter().enumerate() {
        let mark = format!("${} ", place + 1);
        let expected = sql_type(declared);
        let says = |said: &str| said.split_once(' ').is_some_and(|(_, said)| says_type(said, &expected));
        assert!(header.split(&mark).skip(1).any(says), "{name}: the header does not say {mark}… {expected}");
        assert!(body.contains(mark.trim_end()), "{name}: {mark}is not used");
    }
    let one_more = format!("${}", types.len() + 1);
    assert!(!header.contains(&one_more) && !body.contains(&one_more), "{name}: {one_more} is not declared");
}

/// A template with its integers.
pub fn filled<'a>(template: &str, integers: impl IntoIterator<Item = (&'a str, i64)>) -> String {
    let sql: String = template.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    integers
        .into_iter()
        .fold(sql, |sql, (name, value)| sql.replace(&format!("{{{name}}}"), &value.to_string()))
}

#[tokio::test]
async fn every_query_prepares_with_the_types_that_its_file_and_the_code_declare() {
    let database = TestDatabase::new().await;
    let raw = database.raw().await;
    let store = sources(&root().join("src/store"));
    let queries = files("queries");
    assert!(queries.len() > 40);
    for (name, text) in &queries {
        let types = declared(&store, name);
        assert_header(name, text, &types);
        let statement =
            raw.prepare_typed(text, &types).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(statement.params(), types, "{name}");
    }
}

#[tokio::test]
async fn every_template_that_reads_prepares_for_tables_that_exist() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    let partition_id = topic.partitions[0].0;
    broker.appender.append(unit(topic.partitions[0], ["m".into()])).await.unwrap();
    let raw = database.raw().await;
    let segment_id = database.number("SELECT min(segment_id) FROM laneway.segment").await;
    let cut_id = database.number("SELECT min(cut_id) FROM laneway.trace_cut").await;
    let store = sources(&root().join("src/store"));
    let mut prepared = Vec::new();
    for (name, text) in files("templates") {
        let integers = [("segment_id", segment_id), ("partition_id", partition_id), ("cut_id", cut_id)];
        let bounds = [("first_offset", 0), ("end_offset", 1), ("from_us", 0), ("to_us", 1)];
        let sql = filled(&text, integers.into_iter().chain(bounds));
        assert!(!sql.contains('{'), "{name} has a placeholder that nobody knows");
        let types = declared(&store, &name);
        assert_header(&name, &text, &types);
        if sql.starts_with("SELECT") {
            let statement = raw.prepare_typed(&sql, &types).await;
            assert_eq!(statement.unwrap_or_else(|error| panic!("{name}: {error:?}")).params(), types);
            prepared.push(name);
        } else {
            assert!(types.is_empty(), "{name}: a schema change binds nothing");
        }
    }
    assert!(prepared.len() >= 5, "{prepared:?}");
}
