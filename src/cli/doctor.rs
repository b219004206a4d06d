//! `laneway doctor`: looks at the database and the broker, and says what is wrong and what to do. Changes nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use laneway_client::Admin;
use laneway_client::admin::DEFAULT_URL;

use super::{Failure, print_json};
use crate::cli::output::println;
use crate::doctor::{BrokerFacts, Expected, Facts, Finding, Plan, Trouble, Verdict, findings};
use crate::postgres::{Look, default_data_dir, look};
use crate::store::examine::Examination;
use crate::store::{DatabaseSettings, StatementMode, Store};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  laneway doctor\n  laneway doctor --data-dir /srv/laneway\n  \
    laneway doctor --database-url postgresql://laneway@db.internal/laneway --url ws://bus.internal:7420/v1/ws\n\n\
    Exits with 1 if anything is wrong; warnings do not count.")]
pub(super) struct Doctor {
    /// The database to look at; absent: the private PostgreSQL of --data-dir
    #[arg(long, env = "LANEWAY_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Directory of the private PostgreSQL [default: the one of `laneway serve`]
    #[arg(long, env = "LANEWAY_DATA_DIR", value_name = "DIR", conflicts_with = "database_url")]
    data_dir: Option<PathBuf>,
    /// The broker to ask [default: the one of this machine, if it runs]
    #[arg(long, env = "LANEWAY_URL", value_name = "URL")]
    url: Option<String>,
    /// As brokers have it: connections shared by readers and chores
    #[arg(long, env = "LANEWAY_POOL_SIZE", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pool_size: u32,
    /// As brokers have it: connections that publish
    #[arg(long, env = "LANEWAY_APPENDERS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    appenders: u16,
    /// How long a session may idle in a transaction
    #[arg(long, default_value = "5m", value_name = "DURATION")]
    idle_max: humantime::Duration,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

/// How long the database may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Doctor {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let plan = Plan { pool_size: self.pool_size, appenders: self.appenders, idle_max: *self.idle_max };
        let (database, broker) = tokio::join!(self.database(), self.broker());
        let findings = findings(&Facts { database, broker: broker?, plan });
        let wrong = findings.iter().filter(|finding| finding.verdict == Verdict::Wrong).count();
        match self.json {
            true => print_json(&serde_json::json!({ "healthy": wrong == 0, "findings": findings }))?,
            false => findings.iter().for_each(print),
        }
        match wrong {
            0 => Ok(()),
            1 => Err("1 thing is wrong".into()),
            wrong => Err(format!("{wrong} things are wrong").into()),
        }
    }

    async fn database(&self) -> Result<Examination, Trouble> {
        let url = match &self.database_url {
            Some(url) => url.clone(),
            None => self.private_url()?,
        };
        let settings = DatabaseSettings {
            acquire_timeout: CONNECT_TIMEOUT,
            statements: StatementMode::Unnamed, // so that it works behind a pooler, too
            ..DatabaseSettings::new(url)
        };
        let store = Store::new(settings).map_err(|error| Trouble::Url { reason: error.to_string() })?;
        store.examine(*self.idle_max).await.map_err(|error| Trouble::Silent { reason: error.to_string() })
    }

    /// Where `laneway serve` would have its database.
    fn private_url(&self) -> Result<String, Trouble> {
        let hidden = |data_dir: String, error: crate::postgres::Error| Trouble::Hidden {
            data_dir,
            reason: error.to_string(),
        };
        let data_dir = match &self.data_dir {
            Some(data_dir) => data_dir.clone(),
            None => default_data_dir().map_err(|error| hidden("the default directory".into(), error))?,
        };
        let shown = data_dir.display().to_string();
        match look(&data_dir) {
            Ok(Look::Running { url }) => Ok(url),
            Ok(Look::Stopped) => Err(Trouble::Stopped { data_dir: shown }),
            Ok(Look::NeverMade) => Err(Trouble::NeverMade { data_dir: shown }),
            Err(error) => Err(hidden(shown, error)),
        }
    }

    async fn broker(&self) -> Result<BrokerFacts, Failure> {
        let (url, expected) = match &self.url {
            Some(url) => (url.as_str(), Expected::Named),
            None => (DEFAULT_URL, Expected::ByDefault),
        };
        let admin = Admin::new(url)?;
        let (health, readiness, keys) = tokio::join!(admin.health(), admin.ready(), admin.list_keys());
        Ok(BrokerFacts {
            url: url.to_owned(),
            expected,
            health: health.map_err(|error| error.to_string()),
            readiness: readiness.map_err(|error| error.to_string()),
            keys: keys.map_err(|error| error.to_string()),
        })
    }
}

fn print(finding: &Finding) {
    println!("{:<5}  {:<20}  {}", finding.verdict.as_str(), finding.check, finding.found);
    if let Some(todo) = &finding.todo {
        println!("       do: {todo}");
    }
}
