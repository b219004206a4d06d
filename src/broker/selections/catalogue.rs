//! The names and labels of all topics, for those who select some of them. One task per broker, however many selections there
//! are; it rests while there is none.
//!
//! A hint makes it look at once, and because hints can be lost it looks every second anyway: at what has changed since the last
//! look, so that a look costs what has changed. Everything is read again after a failover, after lost hints, and now and then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::ids::TopicId;
use crate::limits::{ASSIGN_PAUSE, CATALOGUE_INTERVAL};
use crate::store::listen::{Hint, Hints};
use crate::store::selections::{ListedTopic, TopicNews};
use crate::store::timeline::Era;
use crate::store::{Error, Store};

/// Looks that wait: each comes with a subscribe.
const LOOKS_MAX: usize = 64;
/// Looks at what has changed between two at everything.
const LOOKS_PER_FULL: u32 = 300;

/// All topics, by id.
pub(super) type Listed = Arc<BTreeMap<TopicId, ListedTopic>>;

type Look = oneshot::Sender<Result<(), Error>>;

/// The way to it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Catalogue {
    told: watch::Sender<Listed>,
    looks: mpsc::Sender<Look>,
}

/// The task that reads.
#[derive(Debug)]
pub struct Reading {
    store: Store,
    source: Hints,
    hints: broadcast::Receiver<Hint>,
    told: watch::Sender<Listed>,
    looks: mpsc::Receiver<Look>,
    /// From where to read on; `None`: everything.
    since: Option<(Timestamp, Era)>,
    count: u32,
    next: Instant,
}

pub fn catalogue(store: &Store, hints: &Hints) -> (Catalogue, Reading) {
    let (told, _) = watch::channel(Listed::default());
    let (sender, looks) = mpsc::channel(LOOKS_MAX);
    let (store, source) = (store.clone(), hints.clone());
    let hints = source.subscribe();
    let next = Instant::now();
    let reading = Reading { store, hints, source, told: told.clone(), looks, since: None, count: 0, next };
    (Catalogue { told, looks: sender }, reading)
}

impl Catalogue {
    /// All topics as of now, and as they change. Everything that was committed before this call is in it.
    pub(super) async fn fresh(&self) -> Result<watch::Receiver<Listed>, Error> {
        let receiver = self.told.subscribe(); // first, so that the task goes on looking
        let (reply, done) = oneshot::channel();
        let stopping = || Error::Unavailable { reason: "the broker is stopping".into() };
        self.looks.send(reply).await.map_err(|_| stopping())?;
        done.await.map_err(|_| stopping())??;
        Ok(receiver)
    }
}

impl Reading {
    /// Cancel safety: none. Spawned once.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let is_wanted = self.told.receiver_count() > 0;
            if !is_wanted {
                self.since = None; // nobody keeps it up to date
            }
            let next = self.next;
            tokio::select! {
                biased; // who waits comes first
                () = stop.cancelled() => return,
                look = self.looks.recv() => {
                    let Some(look) = look else { return };
                    self.on_look(look).await;
                }
                hint = self.hints.recv(), if is_wanted => self.on_hint(hint),
                () = tokio::time::sleep_until(next.into()), if is_wanted => {
                    if let Err(error) = self.look().await {
                        tracing::debug!(%error, "the topics are looked at again in a moment");
                    }
                }
            }
        }
    }

    /// Those who wait already are answered together.
    async fn on_look(&mut self, first: Look) {
        let mut waiting = vec![first];
        while let Ok(look) = self.looks.try_recv() {
            waiting.push(look);
        }
        if self.since.is_none() {
            self.hints = self.source.subscribe(); // what came before is in what is read now
        }
        let result = self.look().await;
        for look in waiting {
            let _gave_up = look.send(result.clone());
        }
    }

    fn on_hint(&mut self, hint: Result<Hint, broadcast::error::RecvError>) {
        match hint {
            Ok(Hint::Topics) => {}
            Ok(Hint::Everything) | Err(broadcast::error::RecvError::Lagged(_)) => self.since = None,
            Ok(Hint::Group(_) | Hint::Heads { .. }) => return,
            Err(broadcast::error::RecvError::Closed) => {
                self.hints = self.source.subscribe(); // cannot be: we hold its source
            }
        }
        self.next = self.next.min(Instant::now() + ASSIGN_PAUSE); // several make one look
    }

    async fn look(&mut self) -> Result<(), Error> {
        self.next = Instant::now() + CATALOGUE_INTERVAL;
        self.count = self.count.wrapping_add(1);
        let era = self.store.timelines().era();
        let since =
            self.since.filter(|(_, read_in)| *read_in == era && !self.count.is_multiple_of(LOOKS_PER_FULL));
        let news = self.store.topics_changed(since.map(|(since, _)| since)).await?;
        self.since = Some((news.asked_at, era));
        let mut listed = match since {
            Some(_) => self.told.borrow().clone(),
            None => Listed::default(),
        };
        apply(&mut listed, news);
        self.told.send_if_modified(|told| {
            let is_new = *told != listed;
            if is_new {
                *told = listed;
            }
            is_new
        });
        Ok(())
    }
}

/// Copies what is listed only if something has changed: every look tells of the last minute again.
fn apply(listed: &mut Listed, news: TopicNews) {
    for topic in news.there {
        if listed.get(&topic.topic_id) != Some(&topic) {
            Arc::make_mut(listed).insert(topic.topic_id, topic);
        }
    }
    for topic_id in news.deleted {
        if listed.contains_key(&topic_id) {
            Arc::make_mut(listed).remove(&topic_id);
        }
    }
}
