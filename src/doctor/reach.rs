//! Whether the database and the broker answer, and in which versions.

use laneway_client::keys::KeyList;

use super::Finding;
use crate::store::examine::Examination;

/// Why the database could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The private PostgreSQL of a directory was never made.
    NeverMade { data_dir: String },
    /// It is there and does not run.
    Stopped { data_dir: String },
    /// It cannot be found out.
    Hidden { data_dir: String, reason: String },
    /// The URL is none.
    Url { reason: String },
    /// It does not answer, or not to us.
    Silent { reason: String },
}

/// Whether somebody said that a broker is to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It was named.
    Named,
    /// It is only where one would be by default.
    ByDefault,
}

/// What the broker said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerFacts {
    pub url: String,
    pub expected: Expected,
    /// Of `/healthz`: the version that it names, if it does; or why there is no answer.
    pub health: Result<Option<String>, String>,
    /// Of `/readyz`.
    pub readiness: Result<(), String>,
    /// Of `/v1/keys`.
    pub keys: Result<KeyList, String>,
}

pub(super) fn database(examination: &Result<Examination, Trouble>) -> Vec<Finding> {
    match examination {
        Err(trouble) => vec![silent(trouble)],
        Ok(examination) => {
            vec![Finding::ok("database", "it answers"), server_version(examination)]
        }
    }
}

fn silent(trouble: &Trouble) -> Finding {
    const CHECK: &str = "database";
    match trouble {
        Trouble::NeverMade { data_dir } => Finding::wrong(
            CHECK,
            format!("there is no private PostgreSQL in {data_dir} yet"),
            "start `laneway serve`, which makes it, or name the right --data-dir or --database-url",
        ),
        Trouble::Stopped { data_dir } => Finding::wrong(
            CHECK,
            format!("the private PostgreSQL in {data_dir} does not run"),
            "start `laneway serve`, which runs it",
        ),
        Trouble::Hidden { data_dir, reason } => Finding::wrong(
            CHECK,
            format!("the private PostgreSQL in {data_dir} cannot be looked at: {reason}"),
            "run the doctor as the user of the broker",
        ),
        Trouble::Url { reason } => Finding::wrong(CHECK, reason, "mend the URL of the database"),
        Trouble::Silent { reason } => Finding::wrong(
            CHECK,
            reason,
            "check that PostgreSQL runs there, that this machine may reach it (listen_addresses, pg_hba.conf, \
             firewalls), and host, port, user, password and database in the URL",
        ),
    }
}

fn server_version(examination: &Examination) -> Finding {
    let found = format!("PostgreSQL {}", examination.server_version);
    match examination.database {
        Some(_) => Finding::ok("version", found),
        None => Finding::wrong("version", format!("{found} is too old"), "move to PostgreSQL 14 or newer"),
    }
}

pub(super) fn broker(facts: &BrokerFacts) -> Vec<Finding> {
    let version = match &facts.health {
        Ok(version) => version,
        Err(reason) => return vec![away(facts, reason)],
    };
    let healthy = Finding::ok("broker", format!("it answers at {}", facts.url));
    let mut found = vec![healthy, broker_version(version.as_deref()), ready(&facts.readiness)];
    if version.as_deref() == Some(env!("CARGO_PKG_VERSION")) {
        found.push(super::keys::keys(&facts.keys)); // another version may not know the question
    }
    found
}

fn away(facts: &BrokerFacts, reason: &str) -> Finding {
    match facts.expected {
        Expected::Named => {
            Finding::wrong("broker", reason, "start `laneway serve` there, or name the right --url")
        }
        Expected::ByDefault => {
            let todo =
                "nothing if no broker is to run on this machine; else start `laneway serve`, or say --url";
            Finding::warn("broker", reason, todo)
        }
    }
}

fn broker_version(version: Option<&str>) -> Finding {
    const CHECK: &str = "broker_version";
    let own = env!("CARGO_PKG_VERSION");
    match version {
        Some(version) if version == own => Finding::ok(CHECK, format!("laneway {own}, as this command")),
        Some(version) => Finding::warn(
            CHECK,
            format!("the broker is laneway {version}, and this command is laneway {own}"),
            "use the same version on both sides",
        ),
        None => Finding::warn(
            CHECK,
            format!("the broker names no version, and this command is laneway {own}"),
            "check that it is a Laneway broker and not a proxy that answers for it, and of the same version",
        ),
    }
}

fn ready(readiness: &Result<(), String>) -> Finding {
    match readiness {
        Ok(()) => Finding::ok("ready", "the broker can do its work"),
        Err(reason) => Finding::wrong(
            "ready",
            format!("the broker is not ready: {reason}"),
            "wait if it starts or drains; else mend what it says about its database",
        ),
    }
}
