//! Publishes to topics with limits: prepared first, let in then, handed in last; and those that wait for room.
//!
//! Nothing of a publish that waits is with the appender. Whoever keeps it keeps the ones behind it in order, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use laneway_client::TopicName;

use super::{Addressed, PublishError, Published, Publisher, Share, Submitted, Timing, share_out};
use crate::broker::capacity::gauge::Load;
use crate::broker::capacity::{Admission, NoRoom, TopicFull};
use crate::broker::message::NewMessage;
use crate::broker::steps::StepUnit;
use crate::broker::topics::TopicError;
use crate::ids::{PartitionId, ProducerId};
use crate::store::topics::Topic;
use crate::telemetry::spans;

/// A publish that keeps every rule, on its way to its partitions.
#[derive(Debug)]
pub(super) struct Prepared {
    pub topic: Arc<Topic>,
    name: TopicName,
    producer_id: Option<ProducerId>,
    shares: BTreeMap<(u32, Timing), Share>,
    messages: usize,
    submitted_at: SystemTime,
}

/// A publish whose topic is full.
#[derive(Debug)]
pub struct Waiting {
    publisher: Publisher,
    prepared: Prepared,
    until: Instant,
    /// How full, when it was looked at.
    full: TopicFull,
}

/// Whether a publish is with the appender.
// Why: the common case must not cost an allocation, and lives for a moment only.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Submission {
    Submitted(Submitted),
    /// Its topic is full.
    Waits(Box<Waiting>),
}

impl Prepared {
    /// What is appended now; what waits counts when it is.
    pub fn load(&self) -> Load {
        let now = self.shares.iter().filter(|((_, timing), _)| *timing == Timing::Now);
        load_of(now.flat_map(|(_, share)| &share.messages))
    }
}

impl Waiting {
    /// For those behind it that cannot wait for as long.
    pub fn full(&self) -> &TopicFull {
        &self.full
    }

    /// Waits for room, for as long as it may; then it is refused.
    pub async fn submitted(self) -> Result<Submitted, PublishError> {
        let Self { publisher, prepared, until, full: _ } = self;
        let room = publisher.capacity.admit(&prepared.topic, || prepared.load(), Some(until)).await;
        let room = room.map_err(|no_room| publisher.refused(no_room))?;
        Ok(publisher.hand_in(prepared, room))
    }
}

fn load_of<'a>(messages: impl Iterator<Item = &'a NewMessage>) -> Load {
    messages.fold(Load::default(), |load, message| Load {
        messages: load.messages + 1,
        bytes: load.bytes + message.bytes() as u64,
    })
}

impl Publisher {
    /// As [`publish`](Self::publish); for as long as it may wait, it waits for room in a topic that is full.
    pub async fn publish_patiently(
        &self,
        topic: &TopicName,
        producer_id: Option<ProducerId>,
        drafts: Vec<Addressed>,
        wait: Duration,
    ) -> Result<Vec<Published>, PublishError> {
        let until = Instant::now() + wait;
        let submitted = match self.submit_patiently(topic, producer_id, drafts, until).await? {
            Submission::Submitted(submitted) => submitted,
            Submission::Waits(waiting) => waiting.submitted().await?,
        };
        Ok(submitted.messages().await)
    }

    /// As [`submit`](Self::submit); if its topic is full and it may wait until some time to come, that is said, and nothing is
    /// handed in yet.
    pub async fn submit_patiently(
        &self,
        topic: &TopicName,
        producer_id: Option<ProducerId>,
        drafts: Vec<Addressed>,
        until: Instant,
    ) -> Result<Submission, PublishError> {
        let prepared = self.prepare(topic, producer_id, drafts).await?;
        match self.capacity.admit(&prepared.topic, || prepared.load(), None).await {
            Ok(room) => Ok(Submission::Submitted(self.hand_in(prepared, room))),
            Err(NoRoom::Full(full)) if until > Instant::now() => {
                let publisher = self.clone();
                Ok(Submission::Waits(Box::new(Waiting { publisher, prepared, until, full })))
            }
            Err(no_room) => Err(self.refused(no_room)),
        }
    }

    /// Lets the messages of a step into a topic; `None`: it has no limits.
    pub async fn admit(
        &self,
        topic: &TopicName,
        units: &[StepUnit],
    ) -> Result<Option<Arc<Admission>>, PublishError> {
        let topic = self.topics.find(topic).await?;
        let now = units.iter().filter(|unit| !unit.is_scheduled());
        let load = || load_of(now.flat_map(|unit| &unit.messages));
        self.capacity.admit(&topic, load, None).await.map_err(|no_room| self.refused(no_room))
    }

    /// Lets messages into the topic of a partition; `None`: it has no limits.
    pub async fn admit_to(
        &self,
        partition_id: PartitionId,
        load: Load,
    ) -> Result<Option<Arc<Admission>>, PublishError> {
        let (name, _) = self.topics.name_of(partition_id).await?;
        let topic = self.topics.find(&TopicName::new(name).map_err(TopicError::Name)?).await?;
        self.capacity.admit(&topic, || load, None).await.map_err(|no_room| self.refused(no_room))
    }

    /// Checks and routes a publish.
    pub(super) async fn prepare(
        &self,
        topic: &TopicName,
        producer_id: Option<ProducerId>,
        mut drafts: Vec<Addressed>,
    ) -> Result<Prepared, PublishError> {
        if drafts.is_empty() {
            return Err(PublishError::Empty);
        }
        let (messages, submitted_at) = (drafts.len(), spans::now());
        let name = topic.clone();
        let topic = self.topics.find(&name).await?;
        self.causes.settle(&mut drafts).await?;
        let mut shares = share_out(&topic, producer_id, drafts)?;
        self.seal(&topic, &mut shares).await?;
        Ok(Prepared { topic, name, producer_id, shares, messages, submitted_at })
    }

    /// Hands the units of a publish to the appender.
    pub(super) fn hand_in(&self, prepared: Prepared, room: Option<Arc<Admission>>) -> Submitted {
        let Prepared { topic, name, producer_id, shares, messages, submitted_at } = prepared;
        let mut units = Vec::with_capacity(shares.len());
        let mut appended = Vec::with_capacity(shares.len());
        for (home, share) in shares {
            units.push(self.submit_unit(&topic, home, producer_id, share, &mut appended));
        }
        let answers = self.appender.submit_together(appended, room.as_ref());
        let metrics = self.appender.metrics().clone();
        let (topics, spans) = (self.topics.clone(), self.spans.clone());
        Submitted { metrics, spans, submitted_at, topics, topic: name, messages, units, answers }
    }

    /// Counts what is refused because a topic is full.
    pub fn refused(&self, no_room: NoRoom) -> PublishError {
        if let NoRoom::Full(_) = &no_room {
            self.appender.metrics().capacity.refusals.inc();
        }
        no_room.into()
    }
}
