//! Which history of the database everybody who shares a store speaks to.
//!
//! A standby that is promoted begins another timeline, and may lack the end of the one before. So every connection is asked
//! for its timeline before anybody gets it, which costs one round trip per connect. A database that was put back to an older
//! copy keeps its timeline, but not how far its log had come. The first one on another timeline takes
//! from this broker, in the database, what it held there, and begins a new era: what was remembered before is void.
//! Invariant: nobody has a connection to another timeline before the era has changed and the broker's lanes there are free.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::connection::Connection;
use super::error::Error;
use super::query::query;
use crate::ids::BrokerId;

query!(TIMELINES_READ = "timelines_read"[]);

/// How often the timeline has changed since the process began. What was remembered in another era is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Era(u64);

/// One unbroken history of one database, and how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timeline {
    system_identifier: i64,
    number: i64,
    /// Bytes of its log that are durable.
    flushed: i64,
}

/// What a connection's timeline means, compared with the one that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Known,
    First,
    /// Another history: nothing that is remembered holds there for certain.
    Another,
    /// The history before: a former primary that nobody has told.
    Former,
}

impl Timeline {
    /// `before` is what was known when `seen` was asked for: from there it can only have grown.
    fn judge(known: Option<Timeline>, before: Option<Timeline>, seen: Timeline) -> Verdict {
        let Some(known) = known else { return Verdict::First };
        let is_shorter = |before: Timeline| before.is_of(&seen) && seen.flushed < before.flushed;
        if known.is_of(&seen) {
            return if before.is_some_and(is_shorter) { Verdict::Another } else { Verdict::Known };
        }
        let is_former = known.system_identifier == seen.system_identifier && seen.number < known.number;
        if is_former { Verdict::Former } else { Verdict::Another }
    }

    /// Whether both are named alike; an older copy is, too.
    fn is_of(&self, other: &Timeline) -> bool {
        (self.system_identifier, self.number) == (other.system_identifier, other.number)
    }
}

#[derive(Debug, Default)]
struct Shared {
    /// Held while a change is carried out: whoever connects meanwhile waits.
    known: tokio::sync::Mutex<Option<Timeline>>,
    /// Under which id the broker lives, and so holds lanes.
    life: Mutex<Option<BrokerId>>,
    era: watch::Sender<Era>,
}

/// The timeline that is known. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Timelines {
    shared: Arc<Shared>,
}

impl Timelines {
    /// The era of now.
    pub fn era(&self) -> Era {
        *self.shared.era.borrow()
    }

    /// Waits until it is another era. Cancel safety: safe.
    pub async fn changed_from(&self, era: Era) {
        let mut current = self.shared.era.subscribe();
        if current.wait_for(|now| *now != era).await.is_err() {
            std::future::pending::<()>().await; // cannot be: we hold its source
        }
    }

    /// The broker lives under this id from now on; to be said before it is registered.
    pub fn lives_as(&self, broker_id: BrokerId) {
        *self.shared.life.lock() = Some(broker_id);
    }

    /// Something that was committed is not there: whatever the timelines say, this is another history.
    pub fn distrust(&self) {
        self.shared.era.send_modify(|era| era.0 += 1);
    }

    /// Asks a connection for its timeline, and carries a change out. Returns the era that the connection belongs to.
    pub(super) async fn meet(&self, connection: &mut Connection) -> Result<Era, Error> {
        let before = *self.shared.known.lock().await;
        let Some(seen) = connection.timelines_read().await? else { return Ok(self.era()) };
        let mut known = self.shared.known.lock().await;
        match Timeline::judge(*known, before, seen) {
            Verdict::Known | Verdict::First => {
                let flushed = known.map_or(seen.flushed, |known| known.flushed.max(seen.flushed));
                *known = Some(Timeline { flushed, ..seen });
            }
            Verdict::Another => {
                tracing::warn!(
                    timeline = seen.number,
                    system = seen.system_identifier,
                    "the database has another timeline: what this broker remembers of it is dropped"
                );
                self.distrust();
                let life = *self.shared.life.lock();
                if let Some(broker_id) = life {
                    connection.brokers_disown(broker_id).await?; // or the next connection does it
                }
                *known = Some(seen);
            }
            Verdict::Former => {
                return Err(Error::Unavailable {
                    reason: format!(
                        "it is on timeline {}, and a later one is known: it was a primary before another took its place",
                        seen.number
                    ),
                });
            }
        }
        Ok(self.era())
    }
}

impl Connection {
    /// `None`: a standby, or a server that does not tell. Then only missing messages show that history has changed.
    async fn timelines_read(&self) -> Result<Option<Timeline>, Error> {
        let row = match self.ask(&TIMELINES_READ).await {
            Ok(rows) => rows.into_iter().next(),
            Err(error @ (Error::Unexpected { .. } | Error::Forbidden { .. })) => {
                tracing::debug!(%error, "the database does not tell its timeline");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(row.and_then(|row| {
            let (number, flushed) = row.get::<_, Option<i64>>("timeline").zip(row.get("flushed"))?;
            Some(Timeline { system_identifier: row.get("system_identifier"), number, flushed })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_timeline_or_another_database_is_another_history_and_an_earlier_one_a_former() {
        let timeline = |system_identifier, number| Timeline { system_identifier, number, flushed: 100 };
        let known = Some(timeline(7, 2));
        let judge = |known, seen| Timeline::judge(known, known, seen);
        assert_eq!(judge(None, timeline(7, 2)), Verdict::First);
        assert_eq!(judge(known, timeline(7, 2)), Verdict::Known);
        assert_eq!(judge(known, timeline(7, 3)), Verdict::Another);
        assert_eq!(judge(known, timeline(8, 1)), Verdict::Another);
        assert_eq!(judge(known, timeline(7, 1)), Verdict::Former);
    }

    #[test]
    fn a_log_that_is_shorter_than_before_is_another_history_but_not_one_that_others_have_seen_grow() {
        let at = |flushed| Timeline { system_identifier: 7, number: 2, flushed };
        assert_eq!(Timeline::judge(Some(at(100)), Some(at(100)), at(99)), Verdict::Another);
        // Asked for when 80 was known; somebody else has seen 100 meanwhile.
        assert_eq!(Timeline::judge(Some(at(100)), Some(at(80)), at(90)), Verdict::Known);
        assert_eq!(Timeline::judge(Some(at(100)), None, at(90)), Verdict::Known);
        // Put back, and already dealt with by another connection.
        let other = Timeline { number: 1, ..at(500) };
        assert_eq!(Timeline::judge(Some(at(100)), Some(other), at(100)), Verdict::Known);
    }

    #[tokio::test]
    async fn whoever_waits_for_another_era_is_told_even_if_it_came_before() {
        let timelines = Timelines::default();
        let era = timelines.era();
        timelines.distrust();
        timelines.changed_from(era).await;
        assert_ne!(timelines.era(), era);
    }
}
