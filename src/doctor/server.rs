//! Settings of PostgreSQL that would lose messages or stop the broker, replication, and clocks.

use super::Finding;
use crate::limits::{CLOCK_DIFFERENCE_MAX, SLOT_HELD_BYTES_MAX};
use crate::store::examine::{ReplicationFacts, SettingFacts};

pub(super) fn fsync(settings: &SettingFacts) -> Finding {
    match settings.fsync.as_str() {
        "off" => Finding::wrong(
            "fsync",
            "off: a crash of the machine can destroy the whole database",
            "as a superuser: ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();",
        ),
        value => Finding::ok("fsync", value),
    }
}

pub(super) fn full_page_writes(settings: &SettingFacts) -> Finding {
    match settings.full_page_writes.as_str() {
        "off" => Finding::wrong(
            "full_page_writes",
            "off: a crash of the machine can leave pages half written",
            "as a superuser: ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf();",
        ),
        value => Finding::ok("full_page_writes", value),
    }
}

pub(super) fn synchronous_commit(settings: &SettingFacts) -> Finding {
    const CHECK: &str = "synchronous_commit";
    let todo = "as a superuser: ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf(); and look for another value on the \
                role or the database (ALTER ROLE, ALTER DATABASE)";
    match settings.synchronous_commit.as_str() {
        "off" => Finding::wrong(
            CHECK,
            "off: publishes wait for the disk all the same, but a crash can take back leases and topics that were \
             confirmed",
            todo,
        ),
        "local" if !settings.synchronous_standby_names.is_empty() => Finding::warn(
            CHECK,
            "local: publishes wait for the standby all the same, but a failover can take back leases and topics",
            todo,
        ),
        value => Finding::ok(CHECK, value),
    }
}

pub(super) fn synchronous_standbys(settings: &SettingFacts, replication: &ReplicationFacts) -> Finding {
    const CHECK: &str = "synchronous_standbys";
    let names = &settings.synchronous_standby_names;
    match (names.is_empty(), replication.confirming) {
        (true, _) => Finding::ok(CHECK, "none are wanted"),
        (false, 0) => Finding::wrong(
            CHECK,
            format!(
                "commits wait for {names:?} (synchronous_standby_names), and no such standby is attached"
            ),
            "start the standby, or ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf();",
        ),
        (false, confirming) => Finding::ok(CHECK, format!("{confirming} attached for {names:?}")),
    }
}

pub(super) fn replication_slots(replication: &ReplicationFacts) -> Finding {
    const CHECK: &str = "replication_slots";
    let slots = replication.inactive_slots.join(", ");
    if replication.inactive_slots.is_empty() {
        return Finding::ok(CHECK, "none is inactive");
    }
    let mib = replication.held_bytes.max(0) >> 20;
    let found = format!("nobody reads from {slots}, and up to {mib} MiB of log are kept for it");
    let todo = "start who reads from it, or SELECT pg_drop_replication_slot('…'); before the disk is full";
    match replication.held_bytes > SLOT_HELD_BYTES_MAX {
        true => Finding::wrong(CHECK, found, todo),
        false => Finding::warn(CHECK, found, todo),
    }
}

pub(super) fn writable(settings: &SettingFacts) -> Finding {
    const CHECK: &str = "writable";
    if settings.in_recovery {
        let todo = "give the broker the URL of the primary, with target_session_attrs=read-write if there are several hosts";
        return Finding::wrong(CHECK, "this is a standby, which is read-only", todo);
    }
    match settings.default_transaction_read_only.as_str() {
        "on" => Finding::wrong(
            CHECK,
            "transactions are read-only by default (default_transaction_read_only)",
            "as a superuser: ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf(); and look for it on the role or \
             the database",
        ),
        _ => Finding::ok(CHECK, "this is a primary"),
    }
}

pub(super) fn autovacuum(settings: &SettingFacts) -> Finding {
    let off: Vec<&str> = [("autovacuum", &settings.autovacuum), ("track_counts", &settings.track_counts)]
        .into_iter()
        .filter(|(_, value)| *value == "off")
        .map(|(name, _)| name)
        .collect();
    match off.first() {
        None => Finding::ok("autovacuum", "on"),
        Some(name) => Finding::wrong(
            "autovacuum",
            format!("{name} is off: tables of leases and commits grow without end, and get slow"),
            format!("as a superuser: ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"),
        ),
    }
}

/// The zone that either side shows times in does not matter: both are moments.
pub(super) fn clock(ahead_seconds: f64) -> Finding {
    let off = ahead_seconds.abs();
    if off <= CLOCK_DIFFERENCE_MAX.as_secs_f64() {
        return Finding::ok("clock", "the same here and in the database");
    }
    let side = if ahead_seconds > 0.0 { "ahead of" } else { "behind" };
    Finding::wrong(
        "clock",
        format!("the clock of the database is {off:.1} s {side} the one of this machine"),
        "let NTP (chrony, systemd-timesyncd) set the clocks of both machines",
    )
}
