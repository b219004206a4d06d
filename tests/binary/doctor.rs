//! `laneway doctor` on a PostgreSQL of the test's own: each thing is broken in turn, and must be named with what to do.

use laneway::postgres::StopMode;
use laneway::store::migrate::MigrateError;
use laneway::store::{DatabaseSettings, Error, Store};
use serde_json::Value;

use crate::harness::own::OwnServer;
use crate::harness::process::{Said, run};
use crate::harness::{Server, wait};
use crate::home::Home;
use crate::topics::{document, sentence};

/// Nobody listens here, and everybody knows.
const NOBODY: &str = "http://127.0.0.1:1";

/// A patient: a database, and a broker that may be there or not.
struct Patient {
    server: OwnServer,
}

impl Patient {
    async fn new() -> Self {
        let server = OwnServer::start(&[]).await;
        server.migrated().await;
        Self { server }
    }

    async fn sql(&self, statements: &str) {
        let raw = self.server.raw().await;
        for statement in statements.split(';').filter(|statement| !statement.trim().is_empty()) {
            raw.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
    }

    /// Sets something of the whole server and waits until new sessions have it.
    async fn set(&self, name: &str, value: &str) {
        self.sql(&format!("ALTER SYSTEM SET {name} = '{value}'; SELECT pg_reload_conf()")).await;
        self.wait_for(name, value).await;
    }

    async fn reset(&self, name: &str) {
        let raw = self.server.raw().await;
        let boot: String = raw
            .query_one("SELECT reset_val FROM pg_settings WHERE name = $1", &[&name])
            .await
            .unwrap()
            .get(0);
        self.sql(&format!("ALTER SYSTEM RESET {name}; SELECT pg_reload_conf()")).await;
        wait::until("the setting to be reset", async || self.show(name).await != boot).await;
    }

    async fn show(&self, name: &str) -> String {
        self.server.raw().await.query_one(&format!("SHOW {name}"), &[]).await.unwrap().get(0)
    }

    async fn wait_for(&self, name: &str, value: &str) {
        wait::until("the setting to hold", async || self.show(name).await == value).await;
    }

    async fn restart(&self) {
        self.server.cluster.stop(StopMode::Fast).await.unwrap();
        self.server.cluster.start().await.unwrap();
    }

    async fn examine(&self, more: &[&str]) -> Vec<Value> {
        findings(&self.server.cluster.url(), more).await
    }
}

/// What the doctor finds, and that its exit code agrees. There is no broker.
async fn findings(url: &str, more: &[&str]) -> Vec<Value> {
    let said = run(&[&["doctor", "--json", "--database-url", url], more].concat()).await;
    let document: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{}", said.stderr));
    let found = document["findings"].as_array().unwrap().clone();
    let wrong = found.iter().filter(|finding| finding["verdict"] == "wrong").count();
    assert_eq!((said.code, document["healthy"] == true), (i32::from(wrong > 0), wrong == 0), "{found:#?}");
    assert!(found.iter().all(|one| one["verdict"] == "ok" || one["do"].is_string()), "{found:#?}");
    found
}

/// Asserts that exactly this is not ok, and says so in words. A broker is not there, and nobody named one.
fn assert_named(found: &[Value], check: &str, verdict: &str, words: &str) {
    let named: Vec<&Value> =
        found.iter().filter(|one| one["verdict"] != "ok" && one["check"] != "broker").collect();
    let checks: Vec<&str> = named.iter().map(|one| one["check"].as_str().unwrap()).collect();
    assert_eq!(checks, [check], "{named:#?}");
    assert_eq!(named[0]["verdict"], verdict, "{named:#?}");
    let text = format!("{} / {}", named[0]["found"].as_str().unwrap(), named[0]["do"].as_str().unwrap());
    assert!(text.contains(words), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_setting_that_is_broken_is_named() {
    let patient = Patient::new().await;
    let well = patient.examine(&[]).await;
    assert!(well.iter().all(|one| one["verdict"] == "ok" || one["check"] == "broker"), "{well:#?}");
    assert!(well.len() >= 16, "{well:#?}");
    for (setting, value, check, words) in [
        ("fsync", "off", "fsync", "ALTER SYSTEM SET fsync = on"),
        ("full_page_writes", "off", "full_page_writes", "half written"),
        ("synchronous_commit", "off", "synchronous_commit", "publishes wait for the disk all the same"),
        ("synchronous_standby_names", "ghost", "synchronous_standbys", "commits wait for \"ghost\""),
        ("autovacuum", "off", "autovacuum", "ALTER SYSTEM SET autovacuum = on"),
        ("track_counts", "off", "autovacuum", "ALTER SYSTEM SET track_counts = on"),
        ("default_transaction_read_only", "on", "writable", "read-only by default"),
    ] {
        patient.set(setting, value).await;
        assert_named(&patient.examine(&[]).await, check, "wrong", words);
        patient.reset(setting).await;
    }
    patient.sql("SELECT pg_create_physical_replication_slot('gone', true)").await;
    let found = patient.examine(&[]).await;
    assert_named(&found, "replication_slots", "warn", "nobody reads from gone");
    patient.sql("SELECT pg_drop_replication_slot('gone')").await;
    let found = patient.examine(&["--pool-size", "1000"]).await;
    assert_named(&found, "connections", "wrong", "lower --pool-size");

    // The doctor asks for `clock_timestamp()`, and finds one that is an hour ahead.
    patient
        .sql(
            "CREATE SCHEMA late;
             CREATE FUNCTION late.clock_timestamp() RETURNS timestamptz LANGUAGE sql
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '1 hour' $$;
             ALTER DATABASE laneway SET search_path = late, pg_catalog",
        )
        .await;
    assert_named(&patient.examine(&[]).await, "clock", "wrong", "s ahead of the one of this machine");
    patient.sql("ALTER DATABASE laneway RESET search_path; DROP SCHEMA late CASCADE").await;
    patient.sql("ALTER DATABASE laneway SET timezone = 'Pacific/Kiritimati'").await; // the zone is no difference

    let idle = patient.server.raw().await;
    idle.batch_execute("BEGIN").await.unwrap();
    let pid: i32 = idle.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let found = patient.examine(&["--idle-max", "1ms"]).await;
    assert_named(&found, "idle_transactions", "wrong", &format!("pg_terminate_backend({pid})"));
    let found = patient.examine(&[]).await;
    assert!(found.iter().all(|one| one["verdict"] == "ok" || one["check"] == "broker"), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_restart_brings_is_named() {
    let patient = Patient::new().await;
    patient
        .sql(
            "ALTER SYSTEM SET max_connections = 17; ALTER SYSTEM SET max_locks_per_transaction = 10;
             ALTER SYSTEM SET max_wal_senders = 0",
        )
        .await;
    patient.restart().await;
    let found = patient.examine(&["--pool-size", "1", "--appenders", "1"]).await;
    assert!(found.iter().all(|one| one["verdict"] == "ok" || one["check"] == "broker"), "{found:#?}");
    assert_named(&patient.examine(&[]).await, "connections", "wrong", "14 allowed, 18 needed by 1 broker");
    let tables = (0..160).map(|n| format!("CREATE TABLE laneway.filler_{n} ();")).collect::<String>();
    patient.sql(&tables).await;
    let found = patient.examine(&["--pool-size", "1", "--appenders", "1"]).await;
    assert_named(&found, "locks", "wrong", "max_locks_per_transaction = 64");

    patient.sql("ALTER SYSTEM RESET ALL").await;
    std::fs::write(patient.server.cluster.pgdata().join("standby.signal"), "").unwrap();
    patient.restart().await;
    assert_named(&patient.examine(&[]).await, "writable", "wrong", "this is a standby, which is read-only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_rights_is_named() {
    let patient = Patient::new().await;
    patient
        .sql("CREATE ROLE poor LOGIN; CREATE ROLE rich LOGIN CONNECTION LIMIT 10; CREATE DATABASE bare")
        .await;
    let url = patient.server.cluster.url();
    let poor = url.replace("laneway@", "poor@");
    let found = findings(&poor, &[]).await;
    let wrong: Vec<&Value> = found.iter().filter(|one| one["verdict"] == "wrong").collect();
    assert_eq!((&wrong[0]["check"], &wrong[1]["check"]), (&"permissions".into(), &"schema".into()));
    assert!(wrong[0]["do"].as_str().unwrap().contains("ALTER SCHEMA laneway OWNER TO poor;"), "{wrong:#?}");
    assert!(wrong[1]["found"].as_str().unwrap().contains("refuses access"), "{wrong:#?}");
    let bare = poor.replace("/laneway?", "/bare?");
    let found = findings(&bare, &[]).await;
    let named: Vec<&Value> = found.iter().filter(|one| one["verdict"] == "wrong").collect();
    assert_eq!(named.len(), 1, "{named:#?}");
    assert_eq!(named[0]["do"], "GRANT CREATE ON DATABASE bare TO poor;");
    patient.sql("GRANT CREATE ON DATABASE bare TO poor").await;
    let found = findings(&bare, &[]).await;
    assert_named(&found, "schema", "warn", "there is none yet");
    let nothing = "SELECT count(*) FROM pg_namespace WHERE nspname = 'laneway'";
    let raw = laneway::store::Target::parse(&bare).unwrap().connect().await.unwrap();
    assert_eq!(raw.query_one(nothing, &[]).await.unwrap().get::<_, i64>(0), 0, "it changes nothing");
    // The owner of the schema needs the right, too: every start of a broker asks for it.
    let store = Store::new(DatabaseSettings::new(&bare)).unwrap();
    store.migrate().await.unwrap();
    patient.sql("REVOKE CREATE ON DATABASE bare FROM poor").await;
    assert!(matches!(store.migrate().await, Err(MigrateError::Store(Error::Forbidden { .. }))));
    assert_named(
        &findings(&bare, &[]).await,
        "permissions",
        "wrong",
        "GRANT CREATE ON DATABASE bare TO poor;",
    );
    patient.sql("GRANT CREATE ON DATABASE bare TO rich").await;
    let found = findings(&bare.replace("poor@", "rich@"), &[]).await;
    let limit = found.iter().find(|one| one["check"] == "connections").unwrap();
    assert!(
        limit["verdict"] == "wrong" && limit["found"].as_str().unwrap().contains("10 allowed"),
        "{limit}"
    );
    patient.sql("ALTER TABLE laneway.topic OWNER TO rich; ALTER SCHEMA laneway OWNER TO poor").await;
    let found = findings(&poor, &[]).await;
    let rights = found.iter().find(|one| one["check"] == "permissions").unwrap();
    assert!(rights["found"].as_str().unwrap().contains("tables of schema laneway do not belong to poor"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_does_not_fit_is_named() {
    let patient = Patient::new().await;
    patient.sql("DROP VIEW laneway.dead_letters_by_group").await;
    assert_named(&patient.examine(&[]).await, "tables", "wrong", "missing: laneway.dead_letters_by_group");
    let newest = "SELECT max(version)::bigint FROM laneway.migration";
    let newest: i64 = patient.server.raw().await.query_one(newest, &[]).await.unwrap().get(0);
    patient.sql(&format!("DELETE FROM laneway.migration WHERE version = {newest}")).await;
    let words = format!("version {}, and this laneway knows {newest}", newest - 1);
    assert_named(&patient.examine(&[]).await, "schema", "warn", &words);
    patient.sql("INSERT INTO laneway.migration (version, name, sha256) VALUES (99, 'later', '')").await;
    assert_named(&patient.examine(&[]).await, "schema", "wrong", "version 99, and this laneway knows");
    patient.sql("DELETE FROM laneway.migration WHERE version = 99").await;
    patient.sql("UPDATE laneway.migration SET sha256 = 'x' WHERE version = 2").await;
    assert_named(
        &patient.examine(&[]).await,
        "schema",
        "wrong",
        "was applied to this database in another form",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_answer_is_named() {
    let patient = Patient::new().await;
    let url = patient.server.cluster.url();
    let mut broker = Server::on_database(&url).await;
    let at = broker.url("");
    let args = ["doctor", "--database-url", &url, "--url", &at];
    let well = run(&args).await;
    assert_eq!((well.code, well.stderr.as_str()), (0, ""), "{}", well.stdout);
    assert!(well.stdout.lines().all(|line| line.starts_with("ok     ")), "{}", well.stdout);
    assert!(well.stdout.contains(&format!("laneway {}, as this command", env!("CARGO_PKG_VERSION"))));

    patient.server.cluster.stop(StopMode::Immediate).await.unwrap();
    let said = run(&args).await;
    assert_wrong(&said, "database", "do: check that PostgreSQL runs there");
    assert_wrong(
        &said,
        "ready",
        "do: wait if it starts or drains; else mend what it says about its database",
    );
    broker.kill().await;
    patient.server.cluster.start().await.unwrap();
    assert_wrong(&run(&args).await, "broker", "do: start `laneway serve` there, or name the right --url");
    let said = run(&["doctor", "--database-url", "postgresql://u@127.0.0.1:1/x", "--url", NOBODY]).await;
    assert_wrong(&said, "database", "host, port, user, password and database");
    assert_eq!(said.stderr, "laneway: 2 things are wrong\n");
    let said = run(&["doctor", "--database-url", "nonsense", "--url", NOBODY]).await;
    assert_wrong(&said, "database", "do: mend the URL of the database");
    let said = sentence(&run(&["doctor", "--database-url", &url, "--url", "nowhere"]).await, 1);
    assert!(said.contains("is not the address of a broker"), "{said}");
}

/// A line with the check, and one below it that says what to do.
fn assert_wrong(said: &Said, check: &str, todo: &str) {
    assert_eq!(said.code, 1, "{}", said.stdout);
    let lines: Vec<&str> = said.stdout.lines().collect();
    let at = lines.iter().position(|line| line.starts_with(&format!("wrong  {check} ")));
    let below = at.and_then(|at| lines.get(at + 1)).unwrap_or_else(|| panic!("{}", said.stdout));
    assert!(below.starts_with("       do: ") && below.contains(todo), "{}", said.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_private_postgresql_is_found_by_its_directory_and_never_started() {
    let home = Home::new();
    let data_dir = home.data_dir().display().to_string();
    let args = ["doctor", "--data-dir", &data_dir];
    assert_wrong(&run(&args).await, "database", "do: start `laneway serve`, which makes it");
    assert!(!home.data_dir().exists(), "looking makes nothing");
    let mut broker = home.serve().await;
    let at = broker.url("");
    let found = document(&run(&[&args[..], &["--url", &at, "--json"]].concat()).await);
    assert_eq!(found["healthy"], true, "{found:#}");
    assert_eq!(broker.stop().await, 0);
    assert_wrong(&run(&args).await, "database", "do: start `laneway serve`, which runs it");
    assert_eq!(home.postmaster(), None);
}

#[tokio::test]
async fn a_broker_of_another_version_is_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        while let Ok((mut stream, _)) = listener.accept().await {
            let _request = stream.read(&mut [0; 4096]).await;
            let answer = b"HTTP/1.1 200 OK\r\nlaneway-version: 9.9.9\r\nconnection: close\r\ncontent-length: 3\r\n\r\nok\n";
            let _left = stream.write_all(answer).await;
        }
    });
    let patient = Patient::new().await;
    let found = patient.examine(&["--url", &format!("http://{address}")]).await;
    assert_named(&found, "broker_version", "warn", "the broker is laneway 9.9.9");
}
