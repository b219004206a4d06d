//! The runner: one migrator at a time, all or nothing, and never past what it does not know.

use laneway::store::Store;
use laneway::store::migrate::{MIGRATIONS, MigrateError, Migration};

use crate::harness::{Server, TestDatabase, wait};
use crate::shape;

/// The versions that a database has seen, with repetitions if there were any.
async fn versions(database: &TestDatabase) -> Vec<i32> {
    let sql = "SELECT version FROM laneway.migration ORDER BY version";
    database.raw().await.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

fn known() -> Vec<i32> {
    MIGRATIONS.iter().map(|migration| migration.version).collect()
}

#[test]
fn migrations_are_numbered_in_order_and_named_after_their_files() {
    assert!(
        MIGRATIONS.windows(2).all(|two| two[0].version < two[1].version),
        "numbers may be left out, never repeated"
    );
    for migration in MIGRATIONS {
        assert!(migration.name.starts_with(&format!("{:04}_", migration.version)), "{}", migration.name);
    }
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/migrations");
    let files = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let mut expected: Vec<String> =
        MIGRATIONS.iter().map(|migration| format!("{}.sql", migration.name)).collect();
    expected.push("bootstrap.sql".into());
    assert_eq!(files, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_brokers_that_migrate_an_empty_database_at_once_apply_each_migration_once() {
    let database = TestDatabase::empty().await;
    let stores: Vec<Store> = (0..10).map(|_| database.store()).collect();
    let mut migrating = tokio::task::JoinSet::new();
    for store in stores {
        migrating.spawn(async move { store.migrate().await });
    }
    for result in migrating.join_all().await {
        result.unwrap();
    }
    assert_eq!(versions(&database).await, known());
    // And once more, when there is nothing to do.
    database.store().migrate().await.unwrap();
    assert_eq!(versions(&database).await, known());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_processes_that_start_on_an_empty_database_all_become_ready() {
    let database = TestDatabase::empty().await;
    let mut servers: Vec<Server> =
        (0..10).map(|_| Server::spawn(&["--database-url", &database.url])).collect();
    for server in &mut servers {
        wait::until("the broker to listen", async || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("laneway serve ended with {status}:\n{}", server.log().join("\n"));
            }
            server.log().iter().any(|line| line.contains("\"listening\""))
        })
        .await;
    }
    let applied =
        |server: &Server| server.log().iter().filter(|line| line.contains("migration applied")).count();
    assert_eq!(servers.iter().map(applied).sum::<usize>(), MIGRATIONS.len());
    assert_eq!(versions(&database).await, known());
    for server in &servers {
        server.signal(nix::sys::signal::Signal::SIGTERM);
    }
    for server in &mut servers {
        assert_eq!(server.ended().await, 0);
    }
}

/// Everything that a refusal could have changed.
async fn everything(database: &TestDatabase) -> Vec<String> {
    let raw = database.raw().await;
    let mut lines = shape::lines(&raw).await;
    let migrations = "SELECT migration::text FROM laneway.migration ORDER BY version";
    lines.extend(raw.query(migrations, &[]).await.unwrap().iter().map(|row| row.get::<_, String>(0)));
    lines
}

#[tokio::test]
async fn a_migration_that_was_edited_after_it_was_applied_is_refused_and_nothing_changes() {
    let database = TestDatabase::new().await;
    let before = everything(&database).await;
    let mut migrations = MIGRATIONS.to_vec();
    let sql = format!("{}\n-- one more line", migrations[1].sql).leak();
    migrations[1].sql = sql;
    migrations.push(Migration { version: 99, name: "0099_never", sql: "CREATE TABLE laneway.never ()" });
    let error = database.store().migrate_with(&migrations).await.unwrap_err();
    assert_eq!(error, MigrateError::Edited { version: 2, name: "0002_create_messages".into() });
    assert_eq!(
        error.to_string(),
        "migration 2 (0002_create_messages) was applied to this database in another form: an applied migration must \
         never be edited; restore the file it was, and put the change into a new one"
    );
    assert_eq!(everything(&database).await, before);
}

#[tokio::test]
async fn a_database_that_a_newer_laneway_has_migrated_is_refused_and_nothing_changes() {
    let database = TestDatabase::new().await;
    let newest = MIGRATIONS.last().unwrap().version;
    let future =
        Migration { version: newest + 1, name: "0099_add_tomorrow", sql: "CREATE TABLE laneway.tomorrow ()" };
    let mut migrations = MIGRATIONS.to_vec();
    migrations.push(future);
    database.store().migrate_with(&migrations).await.unwrap();
    let before = everything(&database).await;
    let error = database.store().migrate().await.unwrap_err();
    assert_eq!(error, MigrateError::TooNew { found: newest + 1, known: newest });
    assert_eq!(
        error.to_string(),
        format!(
            "the schema of this database is at version {}, and this laneway knows versions up to {newest}: run a newer \
             laneway",
            newest + 1
        )
    );
    assert_eq!(everything(&database).await, before);
    // The newer one goes on working.
    database.store().migrate_with(&migrations).await.unwrap();
}

#[tokio::test]
async fn a_database_several_versions_ahead_is_named_by_its_newest() {
    let database = TestDatabase::new().await;
    let newest = known().last().copied().unwrap();
    let mut migrations = MIGRATIONS.to_vec();
    for step in 1..=3 {
        migrations.push(Migration { version: newest + step, name: "0099_later", sql: "SELECT 1" });
    }
    database.store().migrate_with(&migrations).await.unwrap();
    let error = database.store().migrate().await.unwrap_err();
    assert_eq!(error, MigrateError::TooNew { found: newest + 3, known: newest });
}

#[tokio::test]
async fn a_migration_that_fails_leaves_no_trace_of_itself_and_keeps_those_before_it() {
    let database = TestDatabase::empty().await;
    let mut migrations = MIGRATIONS.to_vec();
    let version = migrations.last().unwrap().version + 1;
    let half_way = "CREATE TABLE laneway.half (n integer);
        INSERT INTO laneway.half SELECT generate_series(1, 1000);
        ALTER TABLE laneway.topic ADD COLUMN half integer;
        CREATE TABLE laneway.half (n integer);";
    migrations.push(Migration { version, name: "0099_fail_half_way", sql: half_way });
    let error = database.store().migrate_with(&migrations).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Store(inner) if inner.to_string().contains("42P07")), "{error}");
    assert_eq!(versions(&database).await, known());
    let expected = shape::lines(&TestDatabase::new().await.raw().await).await;
    assert_eq!(shape::lines(&database.raw().await).await, expected);
    // Mended, it is applied as if nothing had been.
    migrations.last_mut().unwrap().sql = "CREATE TABLE laneway.half (n integer)";
    database.store().migrate_with(&migrations).await.unwrap();
    assert_eq!(versions(&database).await.last(), Some(&version));
}

#[tokio::test]
async fn a_first_migration_that_fails_leaves_an_empty_database() {
    let database = TestDatabase::empty().await;
    let broken = [Migration { version: 1, name: "0001_broken", sql: "CREATE TABLE laneway.x (y nonsense)" }];
    database.store().migrate_with(&broken).await.unwrap_err();
    let ours = "SELECT count(*) FROM pg_namespace WHERE nspname = 'laneway'";
    assert_eq!(database.number(ours).await, 0);
    database.store().migrate().await.unwrap();
    assert_eq!(versions(&database).await, known());
}
