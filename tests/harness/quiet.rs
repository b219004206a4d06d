//! A broker without its chores, so that a test decides when segments are sealed, heads thinned and tables dropped.

use laneway::broker::{Assembled, Broker, BrokerSettings};
use laneway::ids::PartitionId;
use laneway::store::Store;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A broker that publishes and reads, and does nothing by itself.
pub struct QuietBroker {
    broker: Broker,
    _to_thin: mpsc::Receiver<PartitionId>,
    tasks: Vec<JoinHandle<()>>,
}

impl QuietBroker {
    pub fn start(store: Store) -> Self {
        let Assembled { broker, appenders, to_thin, .. } =
            Assembled::new(store, BrokerSettings::default(), laneway::telemetry::spans::Spans::default());
        Self { broker, _to_thin: to_thin, tasks: appenders }
    }

    /// Ends it: its appenders write what they hold.
    pub async fn stop(self) {
        drop(self.broker);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

impl std::ops::Deref for QuietBroker {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}

/// Seals every segment that is full. Returns how many.
pub async fn seal(store: &Store) -> usize {
    let mut sealed = 0;
    for partition_id in store.segments_full().await.unwrap() {
        sealed += store.segments_seal(partition_id).await.unwrap().len();
    }
    sealed
}
