//! TLS to the database, as the URL asks for it, against a PostgreSQL whose certificate the test has made.

use laneway::store::{DatabaseSettings, Error, Store, Target, UrlError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::harness::process;
use crate::remote::{Remote, some_address};

const NAME: &str = "db.laneway.test";

/// A root of our own making.
fn root(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// A server that speaks to nobody without TLS, under a name and an address that its certificate has.
async fn secured() -> Option<Remote> {
    let address = some_address();
    let directory = process::directory();
    let root = root("the root");
    let key = KeyPair::generate().unwrap();
    let names = vec![NAME.to_owned(), address.clone()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &root).unwrap();
    let file = |name: &str| directory.path().join(name);
    let certificate = write(&file("server.pem"), &certificate.pem());
    let key = write(&file("server.key"), &key.serialize_pem());
    write(&file("root.pem"), &root.pem());
    write(&file("other-root.pem"), &self::root("another root").pem());
    write(&file("empty.pem"), "");
    let extra = [("ssl", "on"), ("ssl_cert_file", certificate.as_str()), ("ssl_key_file", &key)];
    Remote::start_at(address, directory, &["hostssl all all all trust"], &extra).await
}

/// `name` is what the certificate is checked against; the connection goes to the server's address whatever it is.
fn url(remote: &Remote, name: &str, rest: &str) -> String {
    format!("postgresql://laneway@{name}:5432/laneway?hostaddr={}&{rest}", remote.address)
}

fn roots(remote: &Remote, file: &str) -> String {
    format!("sslmode=verify-full&sslrootcert={}", remote.path(file).display())
}

async fn is_encrypted(url: &str) -> bool {
    let client = Target::parse(url).unwrap().connect().await.unwrap();
    let row =
        client.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await.unwrap();
    row.get(0)
}

async fn failure(url: &str) -> Error {
    Store::new(DatabaseSettings::new(url)).unwrap().wait_until_reachable().await.unwrap_err()
}

#[tokio::test]
async fn a_server_that_is_asked_for_tls_is_verified_as_the_url_says() {
    let Some(remote) = secured().await else { return };
    // Encrypted, whoever answers.
    assert!(is_encrypted(&url(&remote, "localhost", "sslmode=require")).await);
    assert!(is_encrypted(&url(&remote, "localhost", "sslmode=prefer")).await);
    // Verified: the right root, and the right name or address.
    let right = roots(&remote, "root.pem");
    assert!(is_encrypted(&url(&remote, NAME, &right)).await);
    assert!(is_encrypted(&url(&remote, &remote.address, &right)).await);
    let require = right.replace("verify-full", "require"); // libpq: a root turns `require` into verification
    assert!(is_encrypted(&url(&remote, NAME, &require)).await);
    let store = Store::new(DatabaseSettings::new(url(&remote, NAME, &right))).unwrap();
    store.wait_until_reachable().await.unwrap();
    store.migrate().await.unwrap();
    store.ping().await.unwrap();

    for (wrong, words) in [
        (url(&remote, NAME, &roots(&remote, "other-root.pem")), "UnknownIssuer"),
        (
            url(&remote, NAME, &roots(&remote, "other-root.pem").replace("verify-full", "verify-ca")),
            "UnknownIssuer",
        ),
        (
            url(&remote, NAME, &roots(&remote, "other-root.pem").replace("verify-full", "require")),
            "UnknownIssuer",
        ),
        (url(&remote, "other.laneway.test", &right), "not valid for name"),
        (url(&remote, "127.0.0.1", &right), "not valid for"),
    ] {
        match failure(&wrong).await {
            Error::Untrusted { reason } => assert!(reason.contains(words), "{reason}"),
            error => panic!("{error:?}"),
        }
    }
    match failure(&url(&remote, NAME, "sslmode=disable")).await {
        Error::Forbidden { sqlstate, .. } => assert_eq!(sqlstate, "28000"),
        error => panic!("{error:?}"),
    }
    for file in ["empty.pem", "absent.pem", "server.key"] {
        let parsed = Target::parse(&url(&remote, NAME, &roots(&remote, file)));
        assert!(
            matches!(parsed, Err(UrlError::Certificates { ref path, .. }) if path.ends_with(file)),
            "{file}"
        );
    }
    remote.stop().await;
}

#[tokio::test]
async fn a_broker_that_does_not_trust_its_database_says_so_and_ends() {
    let Some(remote) = secured().await else { return };
    let url = url(&remote, NAME, &roots(&remote, "other-root.pem"));
    let said = process::run(&["serve", "--listen", "127.0.0.1:0", "--database-url", &url]).await;
    assert_eq!(said.code, 1, "{}", said.stderr);
    let sentence = said.stderr.lines().last().unwrap();
    assert!(sentence.contains("certificate") && sentence.contains("sslrootcert"), "{sentence}");
    remote.stop().await;
}

#[tokio::test]
async fn a_server_without_tls_is_refused_by_a_url_that_requires_it() {
    let Some(remote) = Remote::start(&["host all all all trust"], &[]).await else { return };
    match failure(&url(&remote, "localhost", "sslmode=require")).await {
        Error::Untrusted { reason } => assert!(reason.contains("does not support TLS"), "{reason}"),
        error => panic!("{error:?}"),
    }
    assert!(!is_encrypted(&url(&remote, "localhost", "sslmode=prefer")).await);
    remote.stop().await;
}
