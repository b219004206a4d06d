//! What the appender loop sends others to do, or does outside its own state: repeating a flush that only lost a race,
//! flushing one partition alone, and looking up where duplicates stand.

use std::time::Duration;

use rand::Rng as _;

use super::AppendError;
use super::memory::Memory;
use super::plan::{Found, Plan};
use super::task::{Event, Events};
use super::unit::{Known, Pending};
use crate::ids::{Offset, PartitionId, Sequence};
use crate::limits::FLUSH_CONTENTION_TRIES;
use crate::store::flush::{LockMode, Outcome};
use crate::store::{Connection, Error, Role, Store};

/// Sends a flush, and again while it only loses races; one that queues is sent once.
pub(super) async fn flush_contended(
    connection: &Connection,
    mode: LockMode,
    plan: &Plan,
    memory: &Memory,
) -> Outcome {
    let flush = plan.columns(memory);
    let tries_max = if mode == LockMode::Queue { 1 } else { FLUSH_CONTENTION_TRIES };
    let mut tries = 0;
    loop {
        let outcome = connection.flush(mode, &flush).await;
        tries += 1;
        match outcome {
            Outcome::NothingHappened(Error::Contended { .. }) if tries < tries_max => {
                let pause = Duration::from_millis(rand::rng().random_range(1..10));
                tokio::time::sleep(pause).await;
            }
            outcome => return outcome,
        }
    }
}

/// Flushes one partition on a connection of its own, waiting for its lock, so that its neighbours do not.
pub(super) async fn flush_alone(store: Store, events: Events, partition_id: PartitionId, plan: Plan) {
    let (outcome, era) = match store.dedicated(Role::Appender).await {
        Ok(connection) => {
            let memory = Memory::default(); // it may have waited for long: everything is looked up
            (flush_contended(&connection, LockMode::Wait, &plan, &memory).await, connection.era())
        }
        Err(error) => (Outcome::NothingHappened(error), store.timelines().era()),
    };
    events.send(Event::Alone { plan, outcome, partition_id, era }).await;
}

/// Finds out where the duplicates of a unit stand, and answers it.
pub(super) async fn look_up(store: Store, found: Found) {
    let Found { pending, first_offset, published_at } = found;
    match offsets_by_sequence(&store, &pending).await {
        Ok(offsets) => pending.stored(first_offset, published_at, &offsets),
        // It is stored, but where could not be read: the producer asks again and gets the same look-up. Not "unavailable",
        // which would promise that nothing happened.
        Err(error) => pending.refuse(AppendError::OutcomeUnknown { reason: error.to_string() }),
    }
}

async fn offsets_by_sequence(store: &Store, pending: &Pending) -> Result<Vec<Option<Offset>>, Error> {
    let Some(run) = pending.unit.run.filter(|_| pending.known.contains(&Known::BySequence)) else {
        return Ok(Vec::new());
    };
    let sequence = |index: usize| Sequence(run.first_sequence.0 + index as i64);
    let stored = pending.known.iter().take_while(|known| **known == Known::BySequence).count();
    let (partition_id, producer_id) = (pending.unit.partition_id, run.producer_id);
    let runs = store.producer_runs_find(partition_id, producer_id, sequence(0), sequence(stored)).await?;
    let offset = |index: usize| runs.iter().find_map(|run| run.offset_of(sequence(index)));
    Ok((0..stored).map(offset).collect())
}
