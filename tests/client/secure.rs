//! `wss://`: a broker behind a TLS-terminating proxy whose certificate the test has made.

use std::path::PathBuf;
use std::sync::Arc;

use laneway_client::topic::CreateTopic;
use laneway_client::{Admin, Class, Client, Error, Options};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::bus::{Bus, next, quick, to};
use crate::harness::process::{directory, run};

/// Takes TLS off and passes on to a broker.
struct Gate {
    url: String,
    root_pem: String,
    directory: tempfile::TempDir,
}

fn root() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "the root of a test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn acceptor(root: &CertifiedIssuer<'static, KeyPair>) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, root).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

impl Gate {
    async fn to(broker: &str) -> Self {
        let root = root();
        let acceptor = acceptor(&root);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let broker = broker.to_owned();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, broker) = (acceptor.clone(), broker.clone());
                tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(client).await else { return }; // it does not believe us
                    let mut server = TcpStream::connect(&broker).await.unwrap();
                    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok(); // either side may just leave
                });
            }
        });
        let directory = directory();
        std::fs::write(directory.path().join("root.pem"), root.pem()).unwrap();
        Self { url: format!("wss://localhost:{port}/v1/ws"), root_pem: root.pem(), directory }
    }

    fn ca_file(&self) -> PathBuf {
        self.directory.path().join("root.pem")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_and_an_admin_speak_tls_with_a_broker_that_they_believe() {
    let bus = Bus::new(1).await;
    let gate = Gate::to(&bus.server.address).await;
    let from_file = Options { ca_file: Some(gate.ca_file()), ..quick() };
    let from_text = Options { ca_pem: Some(gate.root_pem.clone()), ..quick() };
    for (number, options) in [from_file, from_text].into_iter().enumerate() {
        let client = Client::connect(&gate.url, options).await.unwrap();
        client.publish("orders", to(0, number)).await.unwrap(); // asks for the topic over https before
        let mut subscription = client.subscribe("orders", "billing").await.unwrap();
        let delivery = next(&mut subscription).await;
        assert_eq!(delivery.offset, number as i64);
        delivery.ack_confirmed().await.unwrap();
        client.close().await;
    }
    let admin = Admin::with_ca_file(&gate.url, &gate.ca_file()).unwrap();
    admin.create_topic(&CreateTopic::new("audit", 1)).await.unwrap();
    assert_eq!(admin.show_topic("audit").await.unwrap().topic.partitions, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_nobody_vouches_for_is_not_spoken_to() {
    let bus = Bus::new(1).await;
    let gate = Gate::to(&bus.server.address).await;
    let error = Client::connect(&gate.url, quick()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { reason, .. } if reason.contains("certificate")), "{error}");
    let error = Admin::new(&gate.url).unwrap().show_topic("orders").await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let elsewhere = gate.url.replace("localhost", "127.0.0.1"); // a name that the certificate does not have
    let options = Options { ca_file: Some(gate.ca_file()), ..quick() };
    let error = Client::connect(&elsewhere, options).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { reason, .. } if reason.contains("certificate")), "{error}");
    let options = Options { ca_file: Some("/no/such/file".into()), ..quick() };
    let error = Client::connect(&gate.url, options).await.unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("/no/such/file"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_take_the_authority_from_a_file() {
    let bus = Bus::new(1).await;
    bus.fill(0, 0..1).await;
    let gate = Gate::to(&bus.server.address).await;
    let ca_file = gate.ca_file();
    let access = ["--url", &gate.url, "--ca-file", ca_file.to_str().unwrap()];
    let tail = ["tail", "orders", "--from", "earliest", "--count", "1", "--format", "raw"];
    let said = run(&[&tail[..], &access].concat()).await;
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "0\n", ""));
    let said = run(&[&["topic", "list"], &access[..]].concat()).await;
    assert!(said.code == 0 && said.stdout.contains("orders"), "{}", said.stderr);
    let said = run(&[&tail[..], &access[..2]].concat()).await;
    assert!(said.code == 1 && said.stderr.contains("certificate"), "{}", said.stderr);
}
