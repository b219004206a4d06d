//! The domain: what a topic, a partition, a publish and a read are. No sockets, no SQL.
//!
//! | module | owns |
//! |---|---|
//! | `topics` | the topics that exist, remembered; making and growing them |
//! | `message` | the rules that one message must keep |
//! | `publish` | routing messages to partitions, and cutting a publish into units |
//! | `appender` | units in, one transaction per flush out |
//! | `reader` | reading by offset, time and trace, across segments |

pub mod appender;
pub mod message;
pub mod publish;
pub mod reader;
pub mod topics;

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::store::Store;
use crate::store::listen::Hints;
use crate::tasks;

/// Everything a front door needs. Cheap to clone; the appenders end when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Broker {
    pub store: Store,
    pub topics: topics::Topics,
    pub publisher: publish::Publisher,
    pub appender: appender::AppenderHandle,
    pub reader: reader::Reader,
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

impl Broker {
    /// Starts the appenders and the chores on a store whose schema is up to date.
    pub fn start(store: Store) -> (Self, Running) {
        let stop = CancellationToken::new();
        let appender::Appender { handle, chores, tasks } = appender::Appender::start(&store);
        let (hints, listening) = Hints::start(store.clone(), stop.clone());
        let topics = topics::Topics::new(store.clone());
        let chores = vec![
            listening,
            tokio::spawn(topics.clone().follow(hints.subscribe())),
            tokio::spawn(tasks::upkeep::run(store.clone(), chores, stop.clone())),
            tokio::spawn(tasks::retention::run(store.clone(), stop.clone())),
        ];
        let publisher = publish::Publisher::new(topics.clone(), handle.clone());
        let reader = reader::Reader::new(store.clone());
        let broker = Self { store, topics, publisher, appender: handle, reader };
        (broker, Running { stop, chores, appenders: tasks })
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
