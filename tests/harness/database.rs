//! A database per test, cloned from one migrated template, and a broker on it.

use laneway::broker::{Broker, BrokerSettings, Running};
use laneway::limits::SHUTDOWN_TIMEOUT;
use laneway::store::migrate::MIGRATIONS;
use laneway::store::{DatabaseSettings, Store, Target};
use sha2::{Digest as _, Sha256};
use testcontainers_modules::testcontainers::runners::AsyncRunner as _;
use testcontainers_modules::testcontainers::{ContainerAsync, ImageExt as _};

use super::source::{self, Source};
use super::{shared, wait};

/// A database that belongs to one test.
pub struct TestDatabase {
    pub url: String,
    pub name: String,
    /// Keeps a container alive for as long as its database is used.
    _container: Option<ContainerAsync<testcontainers_modules::postgres::Postgres>>,
}

impl TestDatabase {
    /// With the schema of today.
    pub async fn new() -> Self {
        Self::make(Template::Migrated).await
    }

    /// Without any schema.
    pub async fn empty() -> Self {
        Self::make(Template::Empty).await
    }

    /// With the schema of today, in another encoding than UTF-8.
    pub async fn in_encoding(encoding: &'static str) -> Self {
        let database = Self::make(Template::Encoded(encoding)).await;
        database.store().migrate().await.unwrap();
        database
    }

    async fn make(template: Template) -> Self {
        let (admin_url, container) = server().await;
        let admin = Target::parse(&admin_url).unwrap().connect().await.unwrap();
        let name = format!("test_{}", uuid::Uuid::new_v4().simple());
        let clause = match template {
            Template::Empty => "TEMPLATE template0 ENCODING 'UTF8'".to_owned(),
            Template::Encoded(encoding) => {
                format!("TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'")
            }
            Template::Migrated => format!("TEMPLATE {}", migrated_template(&admin, &admin_url).await),
        };
        admin.batch_execute(&format!("CREATE DATABASE {name} {clause}")).await.unwrap();
        Self { url: in_database(&admin_url, &name), name, _container: container }
    }

    pub fn settings(&self) -> DatabaseSettings {
        DatabaseSettings::new(&self.url)
    }

    pub fn store(&self) -> Store {
        Store::new(self.settings()).unwrap()
    }

    /// A broker with its tasks.
    pub fn broker(&self) -> TestBroker {
        TestBroker::start(self.store())
    }

    /// A plain connection, for looking behind the scenes.
    pub async fn raw(&self) -> tokio_postgres::Client {
        Target::parse(&self.url).unwrap().connect().await.unwrap()
    }

    /// Runs a query that returns one number.
    pub async fn number(&self, sql: &str) -> i64 {
        let row = self.raw().await.query_one(sql, &[]).await.unwrap();
        row.get::<_, Option<i64>>(0).unwrap_or_default()
    }
}

enum Template {
    Empty,
    Encoded(&'static str),
    Migrated,
}

async fn server() -> (String, Option<ContainerAsync<testcontainers_modules::postgres::Postgres>>) {
    match source::of_this_run() {
        Source::Given { url } => (url, None),
        Source::Binaries { .. } => (shared::server().await, None),
        Source::Container => {
            let image = testcontainers_modules::postgres::Postgres::default().with_tag("15");
            let container = image.start().await.unwrap();
            let port = container.get_host_port_ipv4(5432).await.unwrap();
            (format!("postgresql://postgres:postgres@127.0.0.1:{port}/postgres"), Some(container))
        }
    }
}

/// The template of this schema, made by the first test that needs it.
async fn migrated_template(admin: &tokio_postgres::Client, admin_url: &str) -> String {
    let digest = MIGRATIONS.iter().fold(Sha256::new(), |digest, one| digest.chain_update(one.sql));
    let name = format!("laneway_template_{}", hex(&digest.finalize()[..6]));
    admin.batch_execute("SELECT pg_advisory_lock(7420)").await.unwrap();
    let exists =
        admin.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]).await.unwrap().is_some();
    if !exists {
        let draft = format!("{name}_draft");
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {draft}")).await.unwrap();
        admin
            .batch_execute(&format!("CREATE DATABASE {draft} TEMPLATE template0 ENCODING 'UTF8'"))
            .await
            .unwrap();
        let store = Store::new(DatabaseSettings::new(in_database(admin_url, &draft))).unwrap();
        store.migrate().await.unwrap();
        drop(store);
        wait::until("the template to be left alone", async || {
            admin.batch_execute(&format!("ALTER DATABASE {draft} RENAME TO {name}")).await.is_ok()
        })
        .await;
    }
    admin.batch_execute("SELECT pg_advisory_unlock(7420)").await.unwrap();
    name
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same server, another database.
pub fn in_database(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, ""), |(base, query)| (base, query));
    let authority = base.rfind('/').map_or(base, |slash| &base[..slash]);
    let separator = if query.is_empty() { "" } else { "?" };
    format!("{authority}/{name}{separator}{query}")
}

/// A broker in this process, with the tasks behind it.
pub struct TestBroker {
    pub broker: Broker,
    running: Running,
}

impl TestBroker {
    pub fn start(store: Store) -> Self {
        let (broker, running) = Broker::start(store, BrokerSettings::default());
        Self { broker, running }
    }

    /// Ends it as a broker ends.
    pub async fn stop(self) {
        drop(self.broker);
        self.running.stop(SHUTDOWN_TIMEOUT).await;
    }
}

impl std::ops::Deref for TestBroker {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}
