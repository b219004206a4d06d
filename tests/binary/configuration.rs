//! `--config`: flags win over variables, variables over the file, the file over defaults; what is wrong in it is told.

use std::path::PathBuf;

use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::process::{directory, laneway, run, run_command};
use crate::harness::{Server, TestDatabase, wait};
use crate::topics::sentence;
use crate::web::Web;

/// A configuration file, for as long as it is held.
struct Config {
    directory: TempDir,
}

impl Config {
    fn new(text: &str) -> Self {
        let directory = directory();
        std::fs::write(directory.path().join("laneway.toml"), text).unwrap();
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("laneway.toml")
    }
}

/// How long the one broker that lives goes on without another heartbeat, in seconds.
async fn ttl(database: &TestDatabase) -> i64 {
    let living = "SELECT count(*) FROM laneway.broker WHERE dead_at IS NULL";
    wait::until("the broker to register", async || database.number(living).await == 1).await;
    let sql = "SELECT ceil(extract(epoch FROM expires_at - clock_timestamp()))::bigint
               FROM laneway.broker WHERE dead_at IS NULL";
    database.number(sql).await
}

#[tokio::test]
async fn a_flag_of_serve_wins_over_its_variable_over_the_file_over_the_default() {
    let database = TestDatabase::new().await;
    let config = Config::new(&format!(
        "[serve]\nlease_ttl = \"60s\"\nlisten = \"127.0.0.1:0\"\ndatabase_url = \"{}\"\n",
        database.url
    ));
    let variable = ("LANEWAY_LEASE_TTL", "120s");
    for (expected, variables, flags) in
        [(60, &[][..], &[][..]), (120, &[variable], &[]), (240, &[variable], &["--lease-ttl", "240s"])]
    {
        let mut command = laneway();
        command.arg("serve").arg("--config").arg(config.path());
        command.args(flags).envs(variables.iter().copied());
        let mut server = Server::spawn_command(&mut command).listening().await;
        let ttl = ttl(&database).await;
        assert!((expected / 2..=expected).contains(&ttl), "{ttl} s instead of {expected} s");
        assert_eq!(server.stop().await, 0);
    }
    let mut server = Server::on_database(&database.url).await; // no file
    let ttl = ttl(&database).await;
    assert!((5..=10).contains(&ttl), "{ttl} s instead of the default");
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn the_file_may_be_named_by_the_environment_and_lists_add_up() {
    let database = TestDatabase::new().await;
    let config = Config::new(
        "[serve]\nallow_host = ['bus.example', 'other.example']\nno_prepared_statements = true\npool_size = 3\n",
    );
    let mut command = laneway();
    command.args(["serve", "--listen", "127.0.0.1:0", "--database-url", &database.url]);
    let server = Server::spawn_command(command.env("LANEWAY_CONFIG", config.path())).listening().await;
    let web = Web::new(&server);
    for (host, status) in [("bus.example", 200), ("other.example", 200), ("evil.example", 403)] {
        let answer = web.send(web.http.get(web.url("/v1/topics")).header("host", host)).await;
        assert_eq!(answer.status, status, "{host}: {answer:?}");
    }
}

/// Nothing is opened: the address is refused, or it is none of this machine.
#[tokio::test]
async fn a_switch_of_the_file_can_be_turned_off_by_its_variable() {
    let config = Config::new("[serve]\ninsecure_listen = true\nlisten = \"192.0.2.1:7420\"\n");
    let mut command = laneway();
    command.arg("serve").arg("--config").arg(config.path());
    let on = run_command(&mut command).await;
    assert!(on.code == 1 && on.stderr.contains("cannot listen on 192.0.2.1:7420"), "{}", on.stderr);
    let off = run_command(command.env("LANEWAY_INSECURE_LISTEN", "false")).await;
    assert!(off.code == 1 && off.stderr.contains("refusing to listen on 192.0.2.1:7420"), "{}", off.stderr);
}

#[tokio::test]
async fn the_url_of_a_command_comes_from_the_flag_the_variable_the_file_or_the_default() {
    let config = Config::new("[client]\nurl = \"ws://127.0.0.1:1/v1/ws\"\n");
    let file = config.path();
    let told = async |command: &mut Command| sentence(&run_command(command).await, 1);
    for args in [&["topic", "list"][..], &["group", "show", "a", "b"], &["lane", "list"], &["dead", "list"]] {
        let by_file = told(laneway().args(args).arg("--config").arg(&file)).await;
        assert!(by_file.contains("127.0.0.1:1/"), "{by_file}");
        let mut command = laneway();
        command.arg("--config").arg(&file).args(args).env("LANEWAY_URL", "http://127.0.0.1:2");
        assert!(told(&mut command).await.contains("127.0.0.1:2/"));
        assert!(told(command.args(["--url", "http://127.0.0.1:3"])).await.contains("127.0.0.1:3/"));
    }
    let help = run(&["topic", "list", "--help"]).await.stdout;
    assert!(help.contains("[default: ws://127.0.0.1:7420/v1/ws]") && help.contains("--config"), "{help}");
}

#[tokio::test]
async fn what_is_wrong_with_the_file_is_one_sentence_and_two() {
    for (text, words) in [
        ("[serve]\n\npool_sise = 3\n", ", line 3: there is no setting pool_sise; did you mean pool_size?"),
        ("[serve]\npool_size = \"3\"\n", ", line 2: pool_size must be a whole number, and it is a text"),
        ("[serve]\nlock_timeout = \"soon\"\n", ", line 2: lock_timeout cannot be used: expected number"),
        ("[serve]\nlisten = 7420\n", ", line 2: listen must be a text in quotes, and it is a number"),
        ("[serve\n", ", line 1: this is not TOML: "),
        ("[serve]\nconfig = \"x\"\n", ", line 2: there is no setting config; "),
    ] {
        let config = Config::new(text);
        for args in [&["serve"][..], &["topic", "list"]] {
            let said = run_command(laneway().args(args).arg("--config").arg(config.path())).await;
            let sentence = sentence(&said, 2);
            assert!(sentence.starts_with(&config.path().display().to_string()), "{sentence}");
            assert!(sentence.contains(words), "{sentence}");
        }
    }
    let missing = sentence(&run(&["serve", "--config", "/no/such/laneway.toml"]).await, 2);
    assert!(missing.contains("/no/such/laneway.toml") && missing.contains("No such file"), "{missing}");
}

#[tokio::test]
async fn a_database_and_a_directory_exclude_each_other_wherever_they_stand() {
    let both = Config::new("[serve]\ndatabase_url = \"postgresql://secret@db/x\"\ndata_dir = \"/d\"\n");
    let said = sentence(&run_command(laneway().arg("serve").arg("--config").arg(both.path())).await, 2);
    assert!(
        said.contains(", line 3: data_dir cannot be used together with database_url in line 2"),
        "{said}"
    );
    assert!(!said.contains("secret"));

    let directory = Config::new("[serve]\ndata_dir = \"/d\"\n");
    let mut command = laneway();
    command.arg("serve").arg("--config").arg(directory.path());
    let url = "postgresql://u@db/x";
    let said = sentence(&run_command(command.env("LANEWAY_DATABASE_URL", url)).await, 2);
    assert!(said.contains("together with the environment's LANEWAY_DATABASE_URL: keep one"), "{said}");
    let said = sentence(&run_command(command.args(["--database-url", url])).await, 2);
    assert!(said.contains("data_dir cannot be used together with --database-url"), "{said}");

    let database = Config::new("[serve]\ndatabase_url = \"postgresql://u@db/x\"\n");
    let flag = ["serve", "--postgres-bin-dir", "/b", "--config", &database.path().display().to_string()];
    let said = sentence(&run(&flag).await, 2);
    assert!(said.contains("database_url cannot be used together with --postgres-bin-dir"), "{said}");
    let explicit = run(&["serve", "--data-dir", "/d", "--database-url", url]).await;
    assert_eq!(explicit.code, 2);
    assert!(explicit.stderr.contains("cannot be used with"), "{}", explicit.stderr);
}
