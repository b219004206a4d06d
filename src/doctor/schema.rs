//! What the role may do, and whether the schema is the one that this binary works with.

use super::Finding;
use crate::store::Error;
use crate::store::examine::{PermissionFacts, SchemaFacts};
use crate::store::migrate::{MigrateError, SchemaState, relations};

/// Tables are named in a sentence up to this many.
const NAMED_MAX: usize = 5;

pub(super) fn permissions(facts: &PermissionFacts) -> Finding {
    const CHECK: &str = "permissions";
    let PermissionFacts { role, database, .. } = facts;
    if facts.has_schema && !(facts.owns_schema && facts.may_enter) {
        return Finding::wrong(
            CHECK,
            format!("schema laneway does not belong to {role}"),
            format!("as a superuser: ALTER SCHEMA laneway OWNER TO {role}; or connect as its owner"),
        );
    }
    if facts.foreign_tables > 0 {
        return Finding::wrong(
            CHECK,
            format!("{} tables of schema laneway do not belong to {role}", facts.foreign_tables),
            format!("as a superuser: REASSIGN OWNED BY their owner TO {role}; or connect as their owner"),
        );
    }
    if !facts.may_create {
        return Finding::wrong(
            CHECK,
            format!("{role} may not make schemas in database {database}"),
            format!("GRANT CREATE ON DATABASE {database} TO {role};"),
        );
    }
    Finding::ok(CHECK, format!("{role} has what a broker needs in database {database}"))
}

pub(super) fn version(facts: &SchemaFacts) -> Finding {
    const CHECK: &str = "schema";
    match &facts.state {
        Ok(SchemaState::Current { version }) => {
            Finding::ok(CHECK, format!("version {version}, the current one"))
        }
        Ok(SchemaState::Absent) => {
            Finding::warn(CHECK, "there is none yet", "start `laneway serve`, which makes it")
        }
        Ok(SchemaState::Behind { found, known }) => Finding::warn(
            CHECK,
            format!("version {found}, and this laneway knows {known}"),
            "start `laneway serve` of this version, which migrates it; back up first",
        ),
        Err(error @ MigrateError::TooNew { .. }) => {
            Finding::wrong(CHECK, error.to_string(), "run a laneway as new as the one that migrated it")
        }
        Err(error @ MigrateError::Edited { .. }) => Finding::wrong(
            CHECK,
            error.to_string(),
            "run the laneway that migrated it, or one that follows from it",
        ),
        Err(error @ MigrateError::ServerTooOld { .. }) => {
            Finding::wrong(CHECK, error.to_string(), "move to PostgreSQL 14 or newer")
        }
        Err(MigrateError::Store(error @ Error::Forbidden { .. })) => {
            Finding::wrong(CHECK, error.to_string(), "see permissions")
        }
        Err(MigrateError::Store(error)) => {
            Finding::wrong(CHECK, error.to_string(), "look into the log of PostgreSQL, then ask again")
        }
    }
}

/// Only a schema of today can lack something; an older one is still to be migrated.
pub(super) fn tables(facts: &SchemaFacts) -> Finding {
    const CHECK: &str = "tables";
    if !matches!(facts.state, Ok(SchemaState::Current { .. })) {
        return Finding::ok(CHECK, format!("{} tables; not compared, see schema", facts.tables));
    }
    let missing: Vec<&str> =
        relations().filter(|name| facts.names.iter().all(|there| there != name)).collect();
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("all there, {} tables", facts.tables));
    }
    let more = if missing.len() > NAMED_MAX { " and others" } else { "" };
    let named = missing.iter().take(NAMED_MAX).map(|name| format!("laneway.{name}")).collect::<Vec<_>>();
    Finding::wrong(
        CHECK,
        format!("missing: {}{more}", named.join(", ")),
        "restore the schema from a backup; nothing of Laneway drops these",
    )
}
