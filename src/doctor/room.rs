//! Whether the server has room for the brokers: connections, locks, and no session that holds back vacuum.

use super::{Finding, Plan};
use crate::store::examine::{ActivityFacts, DatabaseFacts};

pub(super) fn connections(facts: &DatabaseFacts, plan: &Plan) -> Finding {
    const CHECK: &str = "connections";
    let settings = &facts.settings;
    let of_server = settings.max_connections - settings.reserved_connections;
    let room = facts.permissions.connection_limit.map_or(of_server, |limit| limit.min(of_server));
    let brokers = facts.schema.brokers.unwrap_or_default().max(1);
    let need = brokers.saturating_mul(plan.connections());
    let found = format!(
        "{} in use, {room} allowed, {need} needed by {brokers} broker{} of {} each",
        facts.activity.connections,
        if brokers == 1 { "" } else { "s" },
        plan.connections()
    );
    let todo = "raise max_connections (ALTER SYSTEM SET, then restart PostgreSQL) or the CONNECTION LIMIT of the role \
                or database, or lower --pool-size and --appenders";
    if need > room {
        Finding::wrong(CHECK, found, todo)
    } else if need.saturating_mul(5) > room.saturating_mul(4) {
        Finding::warn(CHECK, found, todo) // four fifths: others need some, too
    } else {
        Finding::ok(CHECK, found)
    }
}

/// A backup, or dropping the schema, locks every table at once; the table of locks is shared by all sessions.
pub(super) fn locks(facts: &DatabaseFacts) -> Finding {
    const CHECK: &str = "locks";
    let settings = &facts.settings;
    let sessions = settings.max_connections + settings.max_prepared_transactions;
    let room = settings.max_locks_per_transaction.saturating_mul(sessions);
    let tables = facts.schema.tables;
    let found = format!("{tables} tables, room for {room} locks");
    let wanted = tables.saturating_mul(2) / sessions.max(1) + 1;
    let todo = format!(
        "as a superuser: ALTER SYSTEM SET max_locks_per_transaction = {}, then restart PostgreSQL; or keep less, which means fewer \
         segments; else backups fail",
        wanted.max(64)
    );
    if tables > room {
        Finding::wrong(CHECK, found, todo)
    } else if tables.saturating_mul(2) > room {
        Finding::warn(CHECK, found, todo)
    } else {
        Finding::ok(CHECK, found)
    }
}

pub(super) fn idle_transactions(activity: &ActivityFacts, plan: &Plan) -> Finding {
    const CHECK: &str = "idle_transactions";
    let limit = humantime::format_duration(plan.idle_max);
    let Some(first) = activity.idle_pids.first() else {
        return Finding::ok(CHECK, format!("none for more than {limit}"));
    };
    Finding::wrong(
        CHECK,
        format!(
            "{} idle in a transaction for more than {limit}, session {first} for {:.0} s: nothing can be vacuumed \
             meanwhile",
            activity.idle_pids.len(),
            activity.idle_seconds
        ),
        format!("end it: SELECT pg_terminate_backend({first}); and set idle_in_transaction_session_timeout"),
    )
}
