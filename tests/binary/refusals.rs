//! What `laneway serve` does not do: each refusal is a sentence with a way out, and never tells a password.

use nix::sys::signal::Signal;

use crate::harness::process::{Said, laneway, run_command};
use crate::harness::{Server, TestDatabase};
use crate::remote::Remote;
use crate::web::Web;

const PASSWORD: &str = "wr0ng-s3cret";

async fn serve(args: &[&str]) -> Said {
    run_command(laneway().arg("serve").args(args)).await
}

fn sentence(said: &Said) -> String {
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{}", said.stderr);
    let line = said.stderr.lines().last().unwrap();
    line.strip_prefix("laneway: ").unwrap_or_else(|| panic!("{line}")).to_owned()
}

#[tokio::test]
async fn an_address_that_cannot_be_listened_on_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = sentence(&serve(&["--listen", &address]).await);
    assert!(said.starts_with(&format!("cannot listen on {address}: Address already in use")), "{said}");
    assert!(said.contains("--listen"), "{said}");
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7420"] {
        let said = sentence(&serve(&["--listen", open]).await);
        assert!(said.starts_with(&format!("refusing to listen on {open}")), "{said}");
        assert!(said.contains("no authentication") && said.contains("--insecure-listen"), "{said}");
    }
    for (args, words) in [
        (["--listen", "nowhere"], "invalid value 'nowhere' for '--listen <ADDRESS>'"),
        (["--listen", "127.0.0.1"], "invalid value '127.0.0.1' for '--listen <ADDRESS>'"),
        (["--lisen", "127.0.0.1:0"], "unexpected argument '--lisen'"),
        (["--pool-size", "0"], "0 is not in 1..=1000"),
        (["--lock-timeout", "soon"], "invalid value 'soon'"),
    ] {
        let said = serve(&args).await;
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
}

#[tokio::test]
async fn an_open_address_is_served_when_somebody_insists() {
    let database = TestDatabase::new().await;
    let mut command = laneway();
    command.args(["serve", "--listen", "0.0.0.0:0", "--insecure-listen", "--database-url", &database.url]);
    let mut server = Server::spawn_command(&mut command).listening().await;
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    assert_eq!(server.address, format!("0.0.0.0:{port}"));
    server.address = format!("127.0.0.1:{port}");
    assert_eq!(Web::new(&server).get("/readyz").await.body, "ready\n");
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn flags_of_the_environment_read_like_people_write_them() {
    for (value, code) in [("1", 1), ("true", 1), ("yes", 1), ("perhaps", 2)] {
        let mut command = laneway();
        command.args(["serve", "--listen", "127.0.0.1:0", "--database-url", "postgresql://u@h:port/x"]);
        let said = run_command(command.env("LANEWAY_NO_PREPARED_STATEMENTS", value)).await;
        assert_eq!(said.code, code, "{value}: {}", said.stderr);
    }
}

#[tokio::test]
async fn a_directory_and_a_database_together_are_refused() {
    let url = format!("postgresql://u:{PASSWORD}@127.0.0.1:1/x");
    for other in [["--data-dir", "/tmp/x"], ["--postgres-bin-dir", "/tmp/x"]] {
        let said = serve(&["--database-url", &url, other[0], other[1]]).await;
        assert_eq!(said.code, 2);
        assert!(said.stderr.contains("--database-url <URL>' cannot be used with"), "{}", said.stderr);
        assert!(!said.stderr.contains(PASSWORD), "{}", said.stderr);
    }
    let mut command = laneway();
    let command = command.args(["serve", "--data-dir", "/tmp/x"]).env("LANEWAY_DATABASE_URL", &url);
    let said = run_command(command).await;
    assert_eq!(said.code, 2);
    assert!(
        said.stderr.contains("cannot be used with") && !said.stderr.contains(PASSWORD),
        "{}",
        said.stderr
    );
    let mut command = laneway();
    let help = run_command(command.args(["serve", "--help"]).env("LANEWAY_DATABASE_URL", &url)).await;
    assert!(help.stdout.contains("LANEWAY_DATABASE_URL") && !help.stdout.contains(PASSWORD));
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_refused_without_its_password() {
    let with = |rest: &str| format!("postgresql://u:{PASSWORD}@h{rest}");
    let cases = [
        (with(":port/x"), "`port`"),
        (with("/x?sslmode=verify_full"), "`sslmode`"),
        (with("/x?connect_timeout=soon"), "`connect_timeout`"),
        (with("/x?unheard_of=1"), "postgresql://user:password@host:5432/database"),
        (format!("mysql://u:{PASSWORD}@h/x"), "postgresql://user:password@host:5432/database"),
        (format!("host=h password={PASSWORD} unheard"), "postgresql://user:password@host:5432/database"),
        (PASSWORD.to_owned(), "postgresql://user:password@host:5432/database"),
        (with("/x?sslmode=verify-full&sslrootcert=/no/such.pem"), "/no/such.pem"),
    ];
    for (url, words) in cases {
        let said = serve(&["--listen", "127.0.0.1:0", "--database-url", &url]).await;
        let sentence = sentence(&said);
        assert!(sentence.contains(words), "{sentence}");
        assert!(!said.stderr.contains(PASSWORD), "{}", said.stderr);
    }
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_awaited_until_sigterm() {
    let url = format!("postgresql://u:{PASSWORD}@127.0.0.1:1/x");
    let mut server = Server::spawn(&["--database-url", &url]);
    server.logged("waiting for the database").await;
    server.logged("Connection refused").await;
    assert!(server.child.try_wait().unwrap().is_none(), "it goes on waiting");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await, 0);
    assert!(!server.log().join("\n").contains(PASSWORD));
}

#[tokio::test]
async fn a_wrong_password_ends_the_wait_and_is_not_told() {
    let Some(remote) = Remote::start(&["host all all all scram-sha-256"], &[]).await else { return };
    let admin = remote.local().await;
    admin.batch_execute("CREATE ROLE guest LOGIN PASSWORD 'right'").await.unwrap();
    let address = &remote.address;
    let wrong = format!("postgresql://guest:{PASSWORD}@{address}/laneway");
    let said = serve(&["--listen", "127.0.0.1:0", "--database-url", &wrong]).await;
    assert_eq!(
        sentence(&said),
        "the database refuses access (28P01): password authentication failed for user \"guest\""
    );
    assert!(!said.stderr.contains(PASSWORD), "{}", said.stderr);
    // The right one gets further: to what the role may not do.
    let right = format!("postgresql://guest:right@{address}/laneway");
    let said = serve(&["--listen", "127.0.0.1:0", "--database-url", &right]).await;
    assert!(sentence(&said).starts_with("the database refuses access (42501): "), "{}", said.stderr);
    remote.stop().await;
}
