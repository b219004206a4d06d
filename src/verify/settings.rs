//! What a run is asked for.

use std::time::Duration;

/// The ttl of the brokers' leases: short, so that takeovers are many.
pub const TTL: Duration = Duration::from_secs(2);
/// How long a side of a session may be silent.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long lanes wait for a session whose connection is lost.
pub const GRACE: Duration = Duration::from_secs(2);
/// How long a session may finish what is in flight before its lane moves.
pub const LANE_DRAIN: Duration = Duration::from_secs(1);
/// How long a message may be in the hands of a consumer.
pub const ACK_DEADLINE: Duration = Duration::from_secs(4);
/// Partitions of the topic that everybody works on.
pub const PARTITIONS: u32 = 12;
/// The topic that everybody works on.
pub const TOPIC: &str = "verify";
/// Its groups. Every message goes to each of them.
pub const GROUPS: [&str; 3] = ["north", "south", "pipeline"];
/// The one whose members acknowledge by steps only, each with a message to [`RESULTS`].
pub const PIPELINE: usize = 2;
/// Where steps publish to.
pub const RESULTS: &str = "verify-results";
/// Its partitions.
pub const RESULT_PARTITIONS: u32 = 4;

/// The topic of messages that wait for their time, and that are pulled.
pub const LATER: &str = "verify-later";
/// Its partitions.
pub const LATER_PARTITIONS: u32 = 4;
/// The group that is pulled from, there and in [`LIMITED`].
pub const PULLERS: &str = "pullers";
/// The group that pullers share with sessions, on [`LATER`].
pub const SHARED: &str = "shared";
/// A topic with a limit.
pub const LIMITED: &str = "verify-limited";
/// Its limit: messages of backlog.
pub const LIMIT: u64 = 1_000;

/// The topic of messages that keep the order of their keys.
pub const KEYED: &str = "verify-keys";
/// Its partitions.
pub const KEYED_PARTITIONS: u32 = 2;
/// Its group, which parks keys that fail.
pub const KEYED_GROUP: &str = "keepers";

/// What a run is asked for.
#[derive(Debug, Clone)]
pub struct VerifySettings {
    pub brokers: usize,
    pub duration: Duration,
    pub faults: Vec<FaultKind>,
    pub seed: u64,
    /// Where the binaries of PostgreSQL are, if not where they usually are.
    pub postgres_bin_dir: Option<std::path::PathBuf>,
}

macro_rules! fault_kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What can be done to a cluster.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FaultKind {
            $($(#[$doc])* $variant,)*
        }

        impl FaultKind {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// As `--faults` and the report name it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

fault_kinds! {
    /// SIGKILL of a broker, started again after a moment.
    KillBroker = "kill_broker",
    /// SIGSTOP of a broker for longer than the ttl, then SIGCONT.
    FreezeBroker = "freeze_broker",
    /// SIGTERM of a broker, started again when it has ended.
    StopBroker = "stop_broker",
    /// A broker is restarted with a clock that is off by two ttl.
    SkewClock = "skew_clock",
    /// `immediate` stop of PostgreSQL, and its start, which recovers.
    RestartPostgres = "restart_postgres",
    /// A consumer's connection vanishes, and the consumer with it.
    KillConsumer = "kill_consumer",
    /// A consumer stops reading and answering for longer than its heartbeat allows.
    FreezeConsumer = "freeze_consumer",
    /// Some consumers leave in order and come back.
    ChurnConsumers = "churn_consumers",
    /// All connections of clients to a broker are cut.
    CutClients = "cut_clients",
    /// What passes between clients and a broker takes long.
    DelayClients = "delay_clients",
    /// Nothing passes between clients and a broker, and nobody is told.
    BlackholeClients = "blackhole_clients",
    /// Connections of clients end in the middle of a frame.
    TruncateClients = "truncate_clients",
    /// All connections of a broker to the database are cut.
    CutDatabase = "cut_database",
    /// What passes between a broker and the database takes long.
    DelayDatabase = "delay_database",
    /// Nothing passes between a broker and the database, and nobody is told.
    BlackholeDatabase = "blackhole_database",
    /// Connections to the database end in the middle of a statement.
    TruncateDatabase = "truncate_database",
    /// `pg_terminate_backend` for all connections of the brokers.
    TerminateBackends = "terminate_backends",
    /// Somebody else takes every connection that the database has left.
    ExhaustConnections = "exhaust_connections",
    /// A foreign transaction stays open, with a lock on nothing of ours.
    IdleInTransaction = "idle_in_transaction",
    /// A foreign REPEATABLE READ transaction keeps an old snapshot.
    RepeatableRead = "repeatable_read",
    /// The connections that LISTEN are ended, and no other.
    LoseListen = "lose_listen",
}

impl FaultKind {
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether it stops a process that others have to stand in for. Such faults come one after the other.
    pub const fn is_heavy(self) -> bool {
        matches!(
            self,
            Self::KillBroker
                | Self::FreezeBroker
                | Self::StopBroker
                | Self::SkewClock
                | Self::RestartPostgres
                | Self::BlackholeDatabase
                | Self::ExhaustConnections
        )
    }

    /// Whether the database itself is away for everybody.
    pub const fn is_outage(self) -> bool {
        matches!(self, Self::RestartPostgres | Self::ExhaustConnections)
    }
}

/// Reads `--faults`: `all`, `none`, or names with commas between them.
pub fn parse_faults(text: &str) -> Result<Vec<FaultKind>, String> {
    match text {
        "all" => return Ok(FaultKind::ALL.to_vec()),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut kinds = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let kind = FaultKind::from_name(name).ok_or_else(|| {
            let known: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("{name:?} is no fault; known are all, none, {}", known.join(", "))
        })?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    match kinds.is_empty() {
        true => Err("no fault is named; say none for a run without faults".to_owned()),
        false => Ok(kinds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_once_each_and_unknown_ones_are_refused() {
        assert_eq!(parse_faults("all").unwrap().len(), FaultKind::ALL.len());
        assert_eq!(parse_faults("none").unwrap(), []);
        let two = parse_faults("kill_broker, cut_clients,kill_broker").unwrap();
        assert_eq!(two, [FaultKind::KillBroker, FaultKind::CutClients]);
        assert!(parse_faults("kill_brokers").unwrap_err().contains("kill_broker"));
        assert!(parse_faults(",").is_err());
        for kind in FaultKind::ALL {
            assert_eq!(FaultKind::from_name(kind.name()), Some(*kind));
        }
    }
}
