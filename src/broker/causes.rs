//! What led to a message: looked at before it is believed.
//!
//! A cause is a message of the same trace. The newest ones are found in memory, the others by one read per partition, before
//! the flush. One that retention has dropped cannot be looked at any more and is believed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use laneway_client::{Cause as NamedCause, TopicName};

use super::hot_tail::HotTails;
use super::publish::{Addressed, PublishError};
use super::reader::{ReadError, Reader, Standing};
use super::topics::{TopicError, Topics};
use crate::ids::{Offset, PartitionId, TraceId};
use crate::store::messages::{Cause, Origin};

/// Why a cause is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CauseFault {
    #[error("the cause names topic {topic}, which does not exist")]
    UnknownTopic { topic: String },
    #[error("the cause names partition {partition} of topic {topic}, which has {partitions}")]
    UnknownPartition { topic: String, partition: u32, partitions: u32 },
    #[error("the cause names offset {offset}, where there is no message yet")]
    NotYet { offset: i64 },
    #[error("the cause belongs to trace {trace_id}, and a message belongs to the trace of its cause")]
    OtherTrace { trace_id: TraceId },
}

/// Looks causes up. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Causes {
    topics: Topics,
    tails: HotTails,
    reader: Reader,
}

impl Causes {
    pub fn new(topics: Topics, tails: HotTails, reader: Reader) -> Self {
        Self { topics, tails, reader }
    }

    /// Finds the cause of every message that names one; a message without a trace joins that of its cause.
    pub async fn settle(&self, drafts: &mut [Addressed]) -> Result<(), PublishError> {
        if drafts.iter().all(|addressed| addressed.cause.is_none()) {
            return Ok(());
        }
        let mut open: BTreeMap<PartitionId, Vec<(usize, Offset)>> = BTreeMap::new();
        for (index, addressed) in drafts.iter_mut().enumerate() {
            let invalid = |rule| PublishError::Invalid { index, rule };
            addressed.draft.join_traceparent().map_err(invalid)?;
            let Some(named) = addressed.cause.take() else { continue };
            let cause = self.place(index, &named).await?;
            addressed.draft.cause = Some(cause);
            addressed.draft.origin =
                Some(Arc::new(Origin { topic: named.topic, partition: named.partition }));
            match self.tails.trace_of(cause.partition_id, cause.offset) {
                Some(trace_id) => join(index, addressed, Standing::Stored(trace_id), cause.offset)?,
                None => open.entry(cause.partition_id).or_default().push((index, cause.offset)),
            }
        }
        for (partition_id, places) in open {
            let offsets: Vec<Offset> = places.iter().map(|(_, offset)| *offset).collect();
            let found = self.reader.standings(partition_id, &offsets).await;
            let found: HashMap<Offset, Standing> = found.map_err(unread)?;
            for (index, offset) in places {
                let standing = found.get(&offset).copied().unwrap_or(Standing::NotYet);
                join(index, &mut drafts[index], standing, offset)?;
            }
        }
        Ok(())
    }

    /// The partition that a cause names.
    async fn place(&self, index: usize, named: &NamedCause) -> Result<Cause, PublishError> {
        let fault = |fault| PublishError::Cause { index, fault };
        let unknown = || fault(CauseFault::UnknownTopic { topic: named.topic.clone() });
        let name = TopicName::new(named.topic.clone()).map_err(|_| unknown())?;
        let topic = match self.topics.find(&name).await {
            Ok(topic) => topic,
            Err(TopicError::Unknown { .. }) => return Err(unknown()),
            Err(error) => return Err(error.into()),
        };
        let Some(partition_id) = topic.partitions.get(named.partition as usize) else {
            let (topic, partitions) = (named.topic.clone(), topic.partitions.len() as u32);
            return Err(fault(CauseFault::UnknownPartition {
                topic,
                partition: named.partition,
                partitions,
            }));
        };
        match named.offset {
            0.. => Ok(Cause { partition_id: *partition_id, offset: Offset(named.offset) }),
            offset => Err(fault(CauseFault::NotYet { offset })),
        }
    }
}

fn join(
    index: usize,
    addressed: &mut Addressed,
    standing: Standing,
    offset: Offset,
) -> Result<(), PublishError> {
    let fault = |fault| Err(PublishError::Cause { index, fault });
    match standing {
        Standing::Dropped => Ok(()),
        Standing::NotYet => fault(CauseFault::NotYet { offset: offset.0 }),
        Standing::Stored(trace_id) => match *addressed.draft.trace_id.get_or_insert(trace_id) == trace_id {
            true => Ok(()),
            false => fault(CauseFault::OtherTrace { trace_id }),
        },
    }
}

fn unread(error: ReadError) -> PublishError {
    match error {
        ReadError::Store(error) => TopicError::Store(error).into(),
        // Its topic was deleted since it was looked up.
        ReadError::UnknownPartition | ReadError::OutOfRange { .. } => {
            TopicError::Unknown { name: "of the cause".to_owned() }.into()
        }
    }
}
