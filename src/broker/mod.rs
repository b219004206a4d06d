//! The domain: what a topic, a partition, a publish and a read are. No sockets, no SQL.
//!
//! | module | owns |
//! |---|---|
//! | `topics` | the topics that exist, remembered; making, growing and deleting them |
//! | `message` | the rules that one message must keep |
//! | `capacity` | what topics may hold: publishes refused, or kept waiting, while they are full |
//! | `dead_letters` | what groups have given up: listed, published again, dropped |
//! | `parked` | keys that groups have parked: listed, shown, released |
//! | `causes` | what led to a message: looked at before it is believed |
//! | `publish` | routing messages to partitions, and cutting a publish into units |
//! | `appender` | units in, one transaction per flush out |
//! | `reader`, `recent_traces` | reading by offset, time and trace, across segments; the traces of what was read lately |
//! | `search` | messages by key, transaction id and time |
//! | `hot_tail`, `slab`, `announce` | the newest messages in memory; growth told to and heard from other brokers |
//! | `lease` | the broker's own right to deliver |
//! | `schedules` | messages that wait for their time |
//! | `steps` | acks and publishes of pipelines, together |
//! | `groups` | members, lanes, deliveries, acks |
//! | `selections` | subscriptions that select their topics by names, patterns and labels |
//! | `pulling` | lanes for consumers without a connection: pop, ack, nack, extend |
//! | `group_admin` | groups and lanes for operators: looked at, altered, moved, deleted |
//! | `management` | pausing, resuming, purging, and partitions in numbers, for operators |
//! | `keys` | which keys of encrypted topics it has, and which are needed |
//! | `outbox` | what waits for one socket |
//! | `metrics`, `lag` | what is counted; how far groups are behind |
//! | `traces` | a trace as a tree, with what each group has made of it |
//! | `watching` | what happens to traces, told as it happens |
//! | `thinning` | whose heads want thinning |
//! | `tailing`, `marks` | reading along without a group; finding one's place after a failover |

pub mod announce;
pub mod appender;
pub mod capacity;
pub mod causes;
pub mod clock;
pub mod dead_letters;
pub mod group_admin;
pub mod groups;
pub mod hot_tail;
pub mod keys;
pub mod lag;
pub mod lease;
pub mod management;
mod marks;
pub mod message;
pub mod metrics;
pub mod outbox;
pub mod parked;
pub mod publish;
pub mod pulling;
pub mod reader;
mod recent_traces;
pub mod schedules;
pub mod search;
pub mod selections;
pub mod slab;
pub mod steps;
pub mod tailing;
pub mod thinning;
pub mod topics;
pub mod traces;
pub mod watching;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::schedules::room::Room;
use crate::ids::{PartitionId, SessionId};
use crate::limits::{BROKER_TTL_DEFAULT, EFFECT_RETRY_PAUSE, LANE_DRAIN_DEFAULT, TIMES_RETENTION_DEFAULT};
use crate::store::listen::Hints;
use crate::store::sessions::Taken;
use crate::store::{Error, Store};
use crate::tasks;
use crate::telemetry::spans::Spans;

/// What a broker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerSettings {
    /// How long it may be silent before the others bury it.
    pub ttl: Duration,
    /// How long a session may finish what is in flight before its lane moves.
    pub drain: Duration,
    /// How long it is kept when messages were delivered and done, and what has failed.
    pub times_retention: Duration,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self { ttl: BROKER_TTL_DEFAULT, drain: LANE_DRAIN_DEFAULT, times_retention: TIMES_RETENTION_DEFAULT }
    }
}

/// Everything a front door needs. Cheap to clone; the appenders end when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Broker {
    pub store: Store,
    pub topics: topics::Topics,
    /// Shared: every session has it.
    pub publisher: Arc<publish::Publisher>,
    pub appender: appender::AppenderHandle,
    pub reader: reader::Reader,
    pub traces: traces::Traces,
    pub search: search::Search,
    pub capacity: capacity::Capacity,
    pub tails: hot_tail::HotTails,
    pub lease: lease::Lease,
    pub groups: groups::Groups,
    pub selections: selections::Selections,
    pub pulling: pulling::Pulling,
    pub steps: steps::StepsHandle,
    pub schedules: schedules::SchedulesHandle,
    pub spans: Spans,
    pub metrics: Arc<metrics::Metrics>,
}

/// How often the appenders are looked at.
const APPENDER_LOOK: Duration = Duration::from_secs(1);

/// The tasks behind a broker.
#[derive(Debug)]
pub struct Running {
    stop: CancellationToken,
    chores: Vec<JoinHandle<()>>,
    appenders: Vec<JoinHandle<()>>,
}

/// A broker whose chores do not run yet.
#[derive(Debug)]
pub struct Assembled {
    pub broker: Broker,
    pub appenders: Vec<JoinHandle<()>>,
    pub to_thin: mpsc::Receiver<PartitionId>,
    thinning: thinning::Thinning,
    announcer: announce::Announcer,
    announcing: announce::Announcing,
    listing: selections::catalogue::Reading,
    keeper: lease::LeaseKeeper,
    hints: Hints,
    settings: BrokerSettings,
}

impl Assembled {
    /// Puts the parts together and starts the appenders, on a store whose schema is up to date.
    pub fn new(store: Store, settings: BrokerSettings, spans: Spans) -> Self {
        let timelines = store.timelines().clone();
        let tails = hot_tail::HotTails::new(timelines.clone());
        let (announcer, announcing) = announce::announcer(tails.clone());
        let metrics = Arc::new(metrics::Metrics::new());
        let (thinning, to_thin) = thinning::thinning();
        let appender::Appender { handle, tasks } =
            appender::Appender::start(&store, &announcer, &metrics, &thinning);
        let (schedules, scheduling) = schedules::start(&store, &metrics);
        let (steps, stepping) = steps::start(&store, &announcer, schedules.after(), &thinning);
        let (keeper, lease) = lease::lease(timelines);
        let hints = Hints::new();
        let (topics, reader) = (topics::Topics::new(store.clone()), reader::Reader::new(store.clone()));
        let causes = causes::Causes::new(topics.clone(), tails.clone(), reader.clone());
        let capacity = capacity::Capacity::new(&store, &metrics);
        let publisher = Arc::new(publish::Publisher::new(
            publish::sealing::Sealer { store: store.clone(), lease: lease.clone() },
            topics.clone(),
            causes,
            capacity.clone(),
            handle.clone(),
            schedules.clone(),
            spans.clone(),
        ));
        let groups = groups::Groups::new(groups::Surroundings {
            store: store.clone(),
            appender: handle.clone(),
            tails: tails.clone(),
            reader: reader.clone(),
            topics: topics.clone(),
            lease: lease.clone(),
            hints: hints.clone(),
            catch_up: groups::Groups::catch_up_budget(),
            settling: groups::Groups::settling_budget(),
            drain: settings.drain,
            metrics: metrics.clone(),
            spans: spans.clone(),
        });
        let (selections, listing) = selections::assemble(&store, &groups, &lease, &hints, &metrics);
        let pulling = pulling::Pulling::new(pulling::Surroundings {
            store: store.clone(),
            reader: reader.clone(),
            topics: topics.clone(),
            tails: tails.clone(),
            hints: hints.clone(),
            groups: groups.clone(),
            lease: lease.clone(),
            metrics: metrics.clone(),
            drain: settings.drain,
        });
        let broker = Broker {
            traces: traces::Traces::new(store.clone(), reader.clone()),
            search: search::Search::new(store.clone(), topics.clone(), reader.clone()),
            metrics,
            store,
            topics,
            publisher,
            appender: handle,
            reader,
            capacity,
            tails,
            lease,
            groups,
            selections,
            pulling,
            steps,
            schedules,
            spans,
        };
        let appenders = tasks.into_iter().chain([stepping, scheduling]).collect();
        Self { broker, appenders, to_thin, thinning, announcer, announcing, listing, keeper, hints, settings }
    }

    /// Starts the chores.
    pub fn run(self) -> (Broker, Running) {
        let stop = CancellationToken::new();
        let Broker { store, topics, reader, lease, .. } = &self.broker;
        let metrics = self.broker.metrics.clone();
        let following = announce::follow(
            store.clone(),
            reader.clone(),
            self.announcing,
            lease.clone(),
            self.hints.clone(),
        );
        let firing = self.announcer.clone();
        let announcing = announce::announce(store.clone(), self.announcer, lease.clone());
        let chores = vec![
            tokio::spawn(topics.clone().follow(self.hints.subscribe())),
            tokio::spawn(until(stop.clone(), following)),
            tokio::spawn(until(stop.clone(), announcing)),
            tokio::spawn(self.listing.run(stop.clone())),
            tokio::spawn(self.hints.clone().listen(store.clone(), stop.clone())),
            tokio::spawn(tasks::upkeep::run(store.clone(), self.to_thin, stop.clone())),
            tokio::spawn(tasks::retention::run(store.clone(), stop.clone())),
            tokio::spawn(tasks::walks::run(
                store.clone(),
                lease.clone(),
                self.settings.times_retention,
                stop.clone(),
            )),
            tokio::spawn(tasks::lag::run(store.clone(), lease.clone(), metrics.lag.clone(), stop.clone())),
            tokio::spawn(tasks::schedules::run(
                store.clone(),
                tasks::schedules::Told { announcer: firing, thinning: self.thinning },
                self.broker.schedules.after().clone(),
                Room { topics: topics.clone(), capacity: self.broker.capacity.clone() },
                stop.clone(),
            )),
            tokio::spawn(tasks::heartbeat::run(
                store.clone(),
                self.keeper,
                self.settings.ttl,
                metrics,
                self.hints,
                stop.clone(),
            )),
        ];
        (self.broker, Running { stop, chores, appenders: self.appenders })
    }
}

impl Broker {
    /// Starts a broker with everything that belongs to it.
    pub fn start(store: Store, settings: BrokerSettings) -> (Self, Running) {
        Self::start_with(store, settings, Spans::default())
    }

    /// As [`Broker::start`], and tells of what happens to messages.
    pub fn start_with(store: Store, settings: BrokerSettings, spans: Spans) -> (Self, Running) {
        Assembled::new(store, settings, spans).run()
    }

    /// Takes a session over that has come from another broker; `None`: it is not known, or its token is wrong.
    pub async fn sessions_take(
        &self,
        session_id: SessionId,
        resume_hash: &[u8],
    ) -> Result<Option<Taken>, Error> {
        match self.lease.broker_id() {
            Some(broker_id) => self.store.sessions_take(session_id, resume_hash, broker_id).await,
            None => Ok(None),
        }
    }

    /// Whether a session that this broker knows has moved to another one meanwhile.
    pub async fn sessions_is_elsewhere(&self, session_id: SessionId) -> Result<bool, Error> {
        let home = self.store.sessions_find(session_id).await?;
        Ok(home.is_some_and(|home| Some(home) != self.lease.broker_id()))
    }

    /// A session has lost its connection and may come back for so long; zero: it is back. Only a hint to the assignment.
    pub async fn sessions_away(&self, session_id: SessionId, away: Duration) {
        let Some(broker_id) = self.lease.broker_id() else { return };
        if let Err(error) = self.store.sessions_away(session_id, broker_id, away).await {
            tracing::debug!(%error, session = %session_id, "nobody knows that a session is away");
        }
    }

    /// Ends a session that has left all its groups.
    ///
    /// Tries for as long as the broker lives under the same id: otherwise its sessions were buried with it.
    pub async fn sessions_close(&self, session_id: SessionId) {
        let Some(broker_id) = self.lease.broker_id() else { return };
        while let Err(error) = self.store.sessions_close(session_id, broker_id).await {
            if self.lease.broker_id() != Some(broker_id) {
                return;
            }
            tracing::debug!(%error, session = %session_id, "a session is closed in a moment");
            tokio::time::sleep(EFFECT_RETRY_PAUSE).await;
        }
    }
}

impl Running {
    /// Resolves when an appender has ended although nobody has asked it to: only a bug can do that, and its partitions
    /// would take nothing any more.
    pub async fn broken(&mut self) {
        while !self.appenders.iter().any(JoinHandle::is_finished) {
            tokio::time::sleep(APPENDER_LOOK).await;
        }
    }

    /// Ends everything, in the order of the data: callers must have dropped their broker by now.
    pub async fn stop(self, deadline: Duration) {
        join_until(deadline, "appender", self.appenders).await;
        self.stop.cancel();
        join_until(deadline, "chore", self.chores).await;
    }
}

/// Runs something that has no end of its own.
async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    stop.run_until_cancelled(work).await;
}

/// Waits for tasks; those that are late are named and ended.
async fn join_until(deadline: Duration, name: &str, tasks: Vec<JoinHandle<()>>) {
    let late = tokio::time::Instant::now() + deadline;
    for (number, task) in tasks.into_iter().enumerate() {
        let abort = task.abort_handle();
        if tokio::time::timeout_at(late, task).await.is_err() {
            tracing::error!(number, "{name} did not end in time");
            abort.abort();
        }
    }
}
