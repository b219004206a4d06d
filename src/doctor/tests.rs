//! Each check as a pure function: a healthy database, and one thing broken at a time.

use laneway_client::keys::KeyList;

use super::*;
use crate::store::Error;
use crate::store::examine::{ActivityFacts, PermissionFacts, ReplicationFacts, SchemaFacts, SettingFacts};
use crate::store::migrate::{MigrateError, SchemaState, relations};

fn healthy() -> DatabaseFacts {
    DatabaseFacts {
        settings: SettingFacts {
            fsync: "on".into(),
            full_page_writes: "on".into(),
            synchronous_commit: "on".into(),
            synchronous_standby_names: String::new(),
            autovacuum: "on".into(),
            track_counts: "on".into(),
            max_connections: 100,
            reserved_connections: 3,
            max_prepared_transactions: 0,
            max_locks_per_transaction: 64,
            default_transaction_read_only: "off".into(),
            in_recovery: false,
        },
        clock_ahead_seconds: 0.2,
        replication: ReplicationFacts { confirming: 0, inactive_slots: vec![], held_bytes: 0 },
        activity: ActivityFacts { connections: 20, idle_pids: vec![], idle_seconds: 0.0 },
        permissions: PermissionFacts {
            role: "app".into(),
            database: "bus".into(),
            may_create: true,
            has_schema: true,
            owns_schema: true,
            may_enter: true,
            foreign_tables: 0,
            connection_limit: None,
        },
        schema: SchemaFacts {
            state: Ok(SchemaState::Current { version: 6 }),
            names: relations().map(str::to_owned).collect(),
            tables: 40,
            brokers: Some(2),
        },
    }
}

fn judged(database: DatabaseFacts) -> Vec<Finding> {
    let plan = Plan { pool_size: 8, appenders: 2, idle_max: Duration::from_secs(300) };
    of_database(&database, &plan)
}

/// The findings that are not ok, with one thing changed.
fn broken(change: impl FnOnce(&mut DatabaseFacts)) -> Vec<(&'static str, Verdict)> {
    let mut facts = healthy();
    change(&mut facts);
    let found = judged(facts).into_iter().filter(|finding| finding.verdict != Verdict::Ok);
    found
        .inspect(|finding| assert!(finding.todo.is_some()))
        .map(|found| (found.check, found.verdict))
        .collect()
}

#[test]
fn a_healthy_database_has_nothing_to_do() {
    assert_eq!(broken(|_| {}), []);
    assert!(judged(healthy()).iter().all(|finding| finding.todo.is_none()));
    let mut names: Vec<_> = judged(healthy()).iter().map(|finding| finding.check).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 14, "each check has a name of its own");
}

#[test]
fn each_setting_that_hurts_is_named() {
    use Verdict::{Warn, Wrong};
    assert_eq!(broken(|it| it.settings.fsync = "off".into()), [("fsync", Wrong)]);
    assert_eq!(broken(|it| it.settings.full_page_writes = "off".into()), [("full_page_writes", Wrong)]);
    assert_eq!(broken(|it| it.settings.synchronous_commit = "off".into()), [("synchronous_commit", Wrong)]);
    assert_eq!(broken(|it| it.settings.synchronous_commit = "local".into()), []);
    assert_eq!(broken(|it| it.settings.synchronous_commit = "remote_apply".into()), []);
    let standby = |confirming| {
        broken(move |it| {
            it.settings.synchronous_standby_names = "ANY 1 (a, b)".into();
            it.replication.confirming = confirming;
        })
    };
    assert_eq!(standby(0), [("synchronous_standbys", Wrong)]);
    assert_eq!(standby(1), []);
    let local = broken(|it| {
        it.settings.synchronous_commit = "local".into();
        it.settings.synchronous_standby_names = "a".into();
        it.replication.confirming = 1;
    });
    assert_eq!(local, [("synchronous_commit", Warn)]);
    for (bytes, verdict) in [(1 << 30, Warn), ((1 << 30) + 1, Wrong)] {
        let slot = broken(|it| {
            it.replication.inactive_slots = vec!["gone".into()];
            it.replication.held_bytes = bytes;
        });
        assert_eq!(slot, [("replication_slots", verdict)]);
    }
    assert_eq!(broken(|it| it.settings.in_recovery = true), [("writable", Wrong)]);
    assert_eq!(broken(|it| it.settings.default_transaction_read_only = "on".into()), [("writable", Wrong)]);
    assert_eq!(broken(|it| it.settings.autovacuum = "off".into()), [("autovacuum", Wrong)]);
    assert_eq!(broken(|it| it.settings.track_counts = "off".into()), [("autovacuum", Wrong)]);
}

#[test]
fn clocks_may_differ_by_a_second() {
    for (ahead, words) in [(1.1, "1.1 s ahead of"), (-3600.0, "3600.0 s behind")] {
        let finding = server::clock(ahead);
        assert!(finding.verdict == Verdict::Wrong && finding.found.contains(words), "{}", finding.found);
    }
    assert_eq!(server::clock(1.0).verdict, Verdict::Ok);
    assert_eq!(server::clock(-1.0).verdict, Verdict::Ok);
}

#[test]
fn connections_are_counted_for_every_broker_and_below_every_limit() {
    use Verdict::{Ok, Warn, Wrong};
    // 18 connections for each broker.
    for (brokers, max_connections, limit, verdict) in [
        (Some(2), 100, None, Ok),
        (Some(6), 112, None, Warn),
        (Some(6), 110, None, Wrong),
        (Some(6), 1_000, Some(95), Wrong),
        (None, 26, None, Ok),
        (None, 21, None, Warn),
        (None, 20, None, Wrong),
        (Some(0), 20, None, Wrong),
    ] {
        let mut facts = healthy();
        facts.schema.brokers = brokers;
        facts.settings.max_connections = max_connections;
        facts.permissions.connection_limit = limit;
        let plan = Plan { pool_size: 8, appenders: 2, idle_max: Duration::ZERO };
        let finding = room::connections(&facts, &plan);
        assert_eq!(finding.verdict, verdict, "{brokers:?} {max_connections}: {}", finding.found);
    }
}

#[test]
fn locks_must_suffice_for_a_backup() {
    for (tables, verdict) in [(3_200, Verdict::Ok), (3_201, Verdict::Warn), (6_401, Verdict::Wrong)] {
        let mut facts = healthy();
        facts.schema.tables = tables;
        assert_eq!(room::locks(&facts).verdict, verdict, "{tables}");
    }
}

#[test]
fn who_idles_in_a_transaction_is_named() {
    let mut facts = healthy();
    facts.activity.idle_pids = vec![4711, 12];
    facts.activity.idle_seconds = 612.3;
    let finding = judged(facts).into_iter().find(|finding| finding.check == "idle_transactions").unwrap();
    assert!(finding.found.starts_with("2 idle in a transaction for more than 5m, session 4711 for 612 s"));
    assert!(finding.todo.unwrap().contains("pg_terminate_backend(4711)"));
}

#[test]
fn missing_rights_are_named_with_the_statement_that_gives_them() {
    type Change = fn(&mut PermissionFacts);
    let cases: [(Change, &str); 4] = [
        (|it| it.may_create = false, "GRANT CREATE ON DATABASE bus TO app;"),
        (|it| it.owns_schema = false, ": ALTER SCHEMA laneway OWNER TO app;"),
        (|it| it.may_enter = false, ": ALTER SCHEMA laneway OWNER TO app;"),
        (|it| it.foreign_tables = 3, "REASSIGN OWNED BY"),
    ];
    for (change, statement) in cases {
        let mut facts = healthy().permissions;
        change(&mut facts);
        let finding = schema::permissions(&facts);
        assert_eq!(finding.verdict, Verdict::Wrong);
        assert!(finding.todo.unwrap().contains(statement), "{statement}");
    }
}

#[test]
fn the_schema_is_current_older_newer_edited_or_absent() {
    use Verdict::{Ok as Fine, Warn, Wrong};
    let forbidden = Error::Forbidden { sqlstate: "42501".into(), message: "no".into() };
    let lost = Error::Unavailable { reason: "gone".into() };
    for (state, verdict) in [
        (Ok(SchemaState::Current { version: 6 }), Fine),
        (Ok(SchemaState::Absent), Warn),
        (Ok(SchemaState::Behind { found: 3, known: 6 }), Warn),
        (Err(MigrateError::TooNew { found: 9, known: 6 }), Wrong),
        (Err(MigrateError::Edited { version: 2, name: "x".into() }), Wrong),
        (Err(MigrateError::ServerTooOld { found: "13".into() }), Wrong),
        (Err(MigrateError::Store(forbidden)), Wrong),
        (Err(MigrateError::Store(lost)), Wrong),
    ] {
        let facts = SchemaFacts { state, names: vec![], tables: 0, brokers: None };
        assert_eq!(schema::version(&facts).verdict, verdict, "{facts:?}");
    }
    let lacking = |it: &mut DatabaseFacts| it.schema.names.retain(|name| name != "lane" && name != "lag");
    assert_eq!(broken(lacking), [("tables", Wrong)]);
    let mut facts = healthy().schema;
    facts.names.retain(|name| name != "lane" && name != "lag");
    assert_eq!(schema::tables(&facts).found, "missing: laneway.lane, laneway.lag");
    facts.state = Ok(SchemaState::Behind { found: 1, known: 6 });
    assert_eq!(schema::tables(&facts).verdict, Fine, "what is still to be migrated lacks nothing");
}

#[test]
fn a_database_that_cannot_be_asked_is_one_finding() {
    let broker = BrokerFacts {
        keys: Ok(KeyList { encrypted_topics: 0, keys: Vec::new() }),
        url: "ws://b".into(),
        expected: Expected::ByDefault,
        health: Err("no broker answers".into()),
        readiness: Err("no broker answers".into()),
    };
    let plan = Plan { pool_size: 8, appenders: 2, idle_max: Duration::ZERO };
    let verdicts = |database| {
        let found = findings(&Facts { database, broker: broker.clone(), plan });
        found.iter().map(|finding| (finding.check, finding.verdict)).collect::<Vec<_>>()
    };
    let away = [("database", Verdict::Wrong), ("broker", Verdict::Warn)];
    for trouble in [
        Trouble::NeverMade { data_dir: "d".into() },
        Trouble::Stopped { data_dir: "d".into() },
        Trouble::Hidden { data_dir: "d".into(), reason: "r".into() },
        Trouble::Url { reason: "r".into() },
        Trouble::Silent { reason: "r".into() },
    ] {
        assert_eq!(verdicts(Err(trouble)), away);
    }
    let old = Examination { server_version: "13.9".into(), database: None };
    let expected = [("database", Verdict::Ok), ("version", Verdict::Wrong), ("broker", Verdict::Warn)];
    assert_eq!(verdicts(Ok(old)), expected);
}

#[test]
fn a_broker_is_judged_by_its_answers() {
    let own = env!("CARGO_PKG_VERSION");
    let facts = |version: Option<&str>, readiness| BrokerFacts {
        keys: Ok(KeyList { encrypted_topics: 0, keys: Vec::new() }),
        url: "ws://b".into(),
        expected: Expected::Named,
        health: Ok(version.map(str::to_owned)),
        readiness,
    };
    let verdicts =
        |facts: BrokerFacts| reach::broker(&facts).iter().map(|finding| finding.verdict).collect::<Vec<_>>();
    use Verdict::{Ok as Fine, Warn, Wrong};
    assert_eq!(verdicts(facts(Some(own), Ok(()))), [Fine, Fine, Fine, Fine]);
    assert_eq!(verdicts(facts(Some("9.9.9"), Ok(()))), [Fine, Warn, Fine]);
    assert_eq!(verdicts(facts(None, Err("draining".into()))), [Fine, Warn, Wrong]);
    let away = BrokerFacts { health: Err("refused".into()), ..facts(None, Ok(())) };
    assert_eq!(verdicts(away), [Wrong]);
}

#[test]
fn a_broker_that_lacks_a_key_is_wrong() {
    use laneway_client::keys::{KeyDescription, KeyRole};
    let key = |name: &str, role| KeyDescription {
        name: name.into(),
        fingerprint: "00".into(),
        role,
        data_keys: 1,
        open_data_keys: 0,
        topics: 1,
        first_made_at: None,
        last_made_at: None,
    };
    let judged = |encrypted_topics, keys| keys::keys(&Ok(KeyList { encrypted_topics, keys }));
    assert_eq!(judged(0, Vec::new()).verdict, Verdict::Ok);
    assert_eq!(judged(1, vec![key("a", KeyRole::Seals)]).verdict, Verdict::Ok);
    assert_eq!(judged(1, Vec::new()).verdict, Verdict::Wrong, "nothing can be published");
    let lacks = judged(0, vec![key("a", KeyRole::Seals), key("old", KeyRole::Missing)]);
    assert!(lacks.verdict == Verdict::Wrong && lacks.found.contains("old (00)"), "{lacks:?}");
    assert_eq!(keys::keys(&Err("draining".into())).verdict, Verdict::Warn);
}
