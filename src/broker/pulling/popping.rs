//! Popping: finds a lane with messages, reads them, and takes the lane.
//!
//! Order: the messages are read before the lane is taken, because no connection may be waited for while another is held. What is
//! read cannot change, and the lane is taken only if its epoch and its newest commit are those under which it was seen: then nobody had
//! it meanwhile, and nothing of it was evicted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use laneway_client::pull_api::PopRequest;
use laneway_client::wire::{GroupOrdering, WantedSettings};
use laneway_client::{GroupName, Start, TopicName};

use super::line::{Line, Moved, evict, in_line};
use super::queue::Queue;
use super::rules::Plan;
use super::{PullError, Pulling, Surroundings, deadline, expire, keep};
use crate::broker::groups::SubscribeError;
use crate::broker::groups::assignment::assign;
use crate::broker::groups::settings::InvalidSetting;
use crate::broker::keys::unopened;
use crate::broker::reader::ReadError;
use crate::ids::{Epoch, GroupId, Offset, PartitionId};
use crate::limits::{
    POP_MESSAGES_DEFAULT, POP_MESSAGES_MAX, POP_WAIT_MAX, POPS_FOUND_MAX, POPS_PER_THINNING,
    PULLERS_TOUCH_PAUSE, READ_BYTES_MAX,
};
use crate::store::Error;
use crate::store::groups::{Group, Ordering};
use crate::store::lanes::Fence;
use crate::store::messages::{Message, ReadLimit};
use crate::store::pops::{FreeLane, PULLERS, PopKey, Take, Taken};
use crate::store::topics::Topic;

/// What a puller asks for, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    messages: u32,
    wait: Duration,
    deadline: Option<Duration>,
    settling: Settling,
    start: Option<Start>,
    /// Of the group.
    settings: WantedSettings,
}

/// When the messages of a pop are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settling {
    /// When they are acknowledged.
    Acked,
    /// At once.
    Auto,
}

impl Wish {
    /// Checks what is asked for; what is left out gets its default.
    pub fn checked(request: &PopRequest) -> Result<Self, PullError> {
        let invalid = |field, rule: String| PullError::Invalid { field, rule };
        let messages = request.max_messages.unwrap_or(POP_MESSAGES_DEFAULT);
        if !(1..=POP_MESSAGES_MAX).contains(&messages) {
            return Err(invalid("max_messages", format!("between 1 and {POP_MESSAGES_MAX}")));
        }
        let wait = Duration::from_millis(u64::from(request.wait_ms.unwrap_or(0)));
        if wait > POP_WAIT_MAX {
            return Err(invalid("wait_ms", format!("at most {} milliseconds", POP_WAIT_MAX.as_millis())));
        }
        if request.auto_ack && request.ack_deadline_ms.is_some() {
            let rule = "left out beside auto_ack: the messages are done at once".to_owned();
            return Err(invalid("ack_deadline_ms", rule));
        }
        request.start.as_ref().map_or(Ok(()), check_start)?; // also where the group exists, and nobody needs it
        let settings = request.settings.unwrap_or_default();
        if settings.ordering == Some(GroupOrdering::Key) {
            let rule = "partition in a pop: keys are pushed to members".to_owned();
            return Err(SubscribeError::from(InvalidSetting { field: "ordering", rule }).into());
        }
        Ok(Self {
            messages,
            wait,
            deadline: deadline(request.ack_deadline_ms)?,
            settling: if request.auto_ack { Settling::Auto } else { Settling::Acked },
            start: request.start.clone(),
            settings,
        })
    }
}

fn check_start(start: &Start) -> Result<(), PullError> {
    let is_a_place = match start {
        Start::Earliest | Start::Latest => true,
        Start::Offset(offset) => *offset >= 0,
        Start::At(text) => text.parse::<Timestamp>().is_ok(),
    };
    let rule =
        || "earliest, latest, an offset of zero or more, or a time like 2026-01-31T12:00:00Z".to_owned();
    if is_a_place { Ok(()) } else { Err(PullError::Invalid { field: "start", rule: rule() }) }
}

/// Messages that a puller has for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pop {
    pub topic: String,
    /// The number of the partition.
    pub partition: u32,
    pub epoch: Epoch,
    pub committed: Offset,
    pub end: Offset,
    /// Absent: they are done already.
    pub until_at: Option<Timestamp>,
    /// What retention has dropped.
    pub reset: Option<(Offset, Offset)>,
    /// Those that have failed before, and how often.
    pub attempts: Vec<(Offset, u32)>,
    pub messages: Vec<Message>,
}

/// Everything that one try needs.
struct Popping<'a> {
    surroundings: &'a Surroundings,
    topic: &'a Topic,
    name: &'a str,
    group: Group,
    wish: &'a Wish,
    queue: Arc<Queue>,
}

impl Pulling {
    /// Pops messages of a lane; waits for them, if that is wished. `None`: nothing has come.
    ///
    /// Cancel safety: what was taken for somebody who has gone expires.
    pub async fn pop(
        &self,
        topic: &TopicName,
        group: &GroupName,
        wish: &Wish,
    ) -> Result<Option<Pop>, PullError> {
        let Surroundings { topics, groups, tails, hints, metrics, .. } = &self.surroundings;
        let until = tokio::time::Instant::now() + wish.wait;
        let topic = topics.find(topic).await?;
        let name = group.as_str();
        let group = groups.find_or_make(&topic, name, &wish.settings, wish.start.as_ref()).await?;
        if group.settings.ordering == Ordering::Key {
            return Err(PullError::ByKey { group: name.to_owned() });
        }
        let queue = self.queue(group.group_id);
        let (surroundings, line) = (&self.surroundings, queue.clone());
        let mut popping = Popping { surroundings, topic: &topic, name, group, wish, queue: line };
        let mut changes = queue.news();
        let (mut waiting, mut is_first) = (None, true);
        loop {
            let news = *changes.borrow_and_update();
            if is_first || queue.is_worth_a_try(news) {
                let _turn = queue.turns.acquire().await;
                if is_first || queue.is_worth_a_try(news) {
                    if !is_first && !popping.look_again().await? {
                        return Ok(None);
                    }
                    if let Some(pop) = popping.attempt().await? {
                        return Ok(Some(pop));
                    }
                    queue.on_dry(news);
                }
                is_first = false;
            }
            if tokio::time::Instant::now() >= until || self.closing.is_cancelled() {
                metrics.pops_empty.inc();
                return Ok(None);
            }
            waiting.get_or_insert_with(|| {
                (queue.wait(&topic.partitions, tails, hints), metrics.waits_for_pops())
            });
            let due = queue.next_due().map_or(until, |due| until.min(due.into()));
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(due) => queue.on_due(Instant::now()),
                () = self.closing.cancelled() => {}
            }
        }
    }
}

/// What became of a lane that was tried.
enum Tried {
    Popped(Box<Pop>),
    /// What stood first has expired: it is worth another look.
    MovedOn,
    /// There is nothing in it for now, or somebody was faster.
    Nothing,
    /// What stands first does not open here.
    Stopped(Error),
}

impl Popping<'_> {
    /// Somebody has waited, and the settings of the group may be others by now. `false`: the group is gone.
    async fn look_again(&mut self) -> Result<bool, Error> {
        let store = &self.surroundings.store;
        match store.groups_find(self.topic.topic_id, self.name).await? {
            Some(group)
                if group.group_id == self.group.group_id
                    && group.settings.ordering == Ordering::Partition =>
            {
                self.group = group;
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// One look for a lane, and what it takes to have it.
    async fn attempt(&self) -> Result<Option<Pop>, PullError> {
        let Surroundings { store, reader, metrics, .. } = self.surroundings;
        self.take_part().await?;
        expire(store, reader, metrics, self.group.group_id, &self.group.settings).await?;
        let mut left_out = self.queue.left_out(&self.group.settings.windows, Instant::now());
        let mut stopped = None;
        loop {
            let found = store.pops_find(self.group.group_id, &left_out, POPS_FOUND_MAX).await?;
            if found.is_empty() {
                // A lane that stops holds up no other; if there is no other, it is told.
                return stopped.map_or(Ok(None), |error| Err(ReadError::Store(error).into()));
            }
            for lane in found {
                match self.try_lane(&lane).await? {
                    Tried::Popped(pop) => return Ok(Some(*pop)),
                    Tried::MovedOn => {}
                    Tried::Nothing => left_out.push(lane.at.partition_id),
                    Tried::Stopped(error) => {
                        left_out.push(lane.at.partition_id);
                        stopped.get_or_insert(error);
                    }
                }
            }
        }
    }

    /// Pullers are a member of the group: now and then that is written down, and who gets which lane decided anew.
    async fn take_part(&self) -> Result<(), Error> {
        if !self.queue.is_touch_due() {
            return Ok(());
        }
        let Surroundings { store, metrics, drain, .. } = self.surroundings;
        let group_id: GroupId = self.group.group_id;
        let touched = async {
            if store.pullers_touch(group_id, PULLERS_TOUCH_PAUSE).await? {
                let decide = |view: &crate::store::groups::GroupView| {
                    let wants = assign(view);
                    metrics.rebalances.inc_by(u64::from(!wants.is_empty()));
                    wants
                };
                store.groups_assign(group_id, *drain, decide).await?;
            }
            Ok(())
        };
        touched.await.inspect_err(|_| self.queue.on_not_touched())
    }

    async fn try_lane(&self, lane: &FreeLane) -> Result<Tried, PullError> {
        let partition_id: PartitionId = lane.at.partition_id;
        let settings = &self.group.settings;
        let Some(plan) = Plan::of(&lane.at, lane.next_offset, self.wish.messages, settings) else {
            return Ok(Tried::Nothing);
        };
        if self.queue.holds_back(partition_id, plan.from, &settings.windows, Instant::now()) {
            return Ok(Tried::Nothing);
        }
        let Some(in_hand) = self.queue.hold(partition_id) else { return Ok(Tried::Nothing) };
        let tried = self.read_and_take(lane, &plan).await?;
        in_hand.settled();
        Ok(tried)
    }

    async fn read_and_take(&self, lane: &FreeLane, plan: &Plan) -> Result<Tried, PullError> {
        let partition_id = lane.at.partition_id;
        let limit = ReadLimit { messages: plan.messages, bytes: READ_BYTES_MAX };
        let read = match self.surroundings.reader.read(partition_id, plan.from, limit).await {
            Ok(messages) => plan.undone(messages),
            Err(ReadError::OutOfRange { .. } | ReadError::UnknownPartition) => return Ok(Tried::Nothing), // it changes just now
            Err(ReadError::Store(error)) if unopened(&error).is_some() => return Ok(Tried::Stopped(error)),
            Err(error @ ReadError::Store(_)) => return Err(error.into()),
        };
        let windows = &self.group.settings.windows;
        let (read, open_until) = match in_line(self.surroundings, windows, lane, read).await? {
            Line::Due { messages, open_until } => (messages, open_until),
            Line::Waits { until } => {
                self.queue.hold_back(partition_id, plan.from, windows, until);
                return Ok(Tried::Nothing);
            }
            Line::Expired(at) => {
                return match evict(self.surroundings, &self.key(lane), at, windows).await {
                    Ok(Moved::On) => Ok(Tried::MovedOn),
                    Ok(Moved::NotNow) => Ok(Tried::Nothing),
                    Err(PullError::Read(ReadError::Store(error)) | PullError::Store(error))
                        if unopened(&error).is_some() =>
                    {
                        Ok(Tried::Stopped(error))
                    }
                    Err(error) => Err(error),
                };
            }
        };
        let Some(end) = read.last().map(|message| message.offset.plus(1)) else { return Ok(Tried::Nothing) };
        let Some(taken) = self.take(lane, plan, end, open_until).await? else { return Ok(Tried::Nothing) };
        self.thin(lane, taken.epoch);
        Ok(Tried::Popped(Box::new(self.popped(lane, plan, taken, read))))
    }

    /// The lane as it was seen.
    fn key(&self, lane: &FreeLane) -> PopKey {
        let (group_id, partition_id, epoch) = (self.group.group_id, lane.at.partition_id, lane.at.epoch);
        PopKey { group_id, partition_id, epoch }
    }

    async fn take(
        &self,
        lane: &FreeLane,
        plan: &Plan,
        end: Offset,
        open_until: Offset,
    ) -> Result<Option<Taken>, Error> {
        let commit = match self.wish.settling {
            Settling::Acked => None,
            Settling::Auto => Some(plan.commit_up_to(end, keep(self.topic))),
        };
        let take = Take {
            key: self.key(lane),
            end,
            deadline: self.wish.deadline.unwrap_or(self.group.settings.ack_deadline),
            open_until,
            newest_commit: lane.newest_commit,
            commit: commit.as_ref(),
        };
        self.surroundings.store.pops_take(&take).await
    }

    fn popped(&self, lane: &FreeLane, plan: &Plan, taken: Taken, messages: Vec<Message>) -> Pop {
        let metrics = &self.surroundings.metrics;
        let bytes = messages.iter().map(Message::bytes).sum();
        metrics.on_delivered(messages.iter().map(|message| message.published_at), bytes);
        metrics.pops.inc();
        let count = messages.len() as u64;
        let is_done = self.wish.settling == Settling::Auto;
        metrics.acked_messages.inc_by(if is_done { count } else { 0 });
        let end = messages.last().map_or(plan.from, |message| message.offset.plus(1));
        let is_here = |offset: Offset| messages.iter().any(|message| message.offset == offset);
        let failed = lane.at.failed.iter().filter(|failed| is_here(failed.offset));
        let (kept_from, start) = (lane.at.committed, lane.at.start_offset);
        Pop {
            topic: self.topic.name.clone(),
            partition: lane.number,
            epoch: taken.epoch,
            committed: if is_done { end } else { plan.committed() },
            end,
            until_at: (!is_done).then_some(taken.until_at),
            reset: (kept_from < start).then_some((kept_from, start)),
            attempts: failed.map(|failed| (failed.offset, failed.attempts)).collect(),
            messages,
        }
    }

    /// Forgets commits that newer ones have replaced, now and then.
    fn thin(&self, lane: &FreeLane, epoch: Epoch) {
        let (newest_epoch, newest) = lane.newest_commit;
        if epoch.0 % POPS_PER_THINNING != 0 || newest == 0 {
            return;
        }
        let (store, group_id) = (self.surroundings.store.clone(), self.group.group_id);
        let fence =
            Fence { group_id, partition_id: lane.at.partition_id, epoch: newest_epoch, session_id: PULLERS };
        tokio::spawn(async move {
            if let Err(error) = store.lane_commits_thin(&fence, 0, newest).await {
                tracing::debug!(%error, "old commits stay for now");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_has_defaults_and_bounds() {
        assert_eq!(Wish::checked(&PopRequest::default()).unwrap().messages, POP_MESSAGES_DEFAULT);
        for (field, wrong) in [
            ("max_messages", PopRequest { max_messages: Some(0), ..PopRequest::default() }),
            ("max_messages", PopRequest { max_messages: Some(1_001), ..PopRequest::default() }),
            ("wait_ms", PopRequest { wait_ms: Some(20_001), ..PopRequest::default() }),
            ("ack_deadline_ms", PopRequest { ack_deadline_ms: Some(99), ..PopRequest::default() }),
            (
                "ack_deadline_ms",
                PopRequest { ack_deadline_ms: Some(60_000), auto_ack: true, ..PopRequest::default() },
            ),
            ("start", PopRequest { start: Some(Start::Offset(-1)), ..PopRequest::default() }),
            ("start", PopRequest { start: Some(Start::At("soon".into())), ..PopRequest::default() }),
        ] {
            let error = Wish::checked(&wrong).unwrap_err();
            assert!(matches!(&error, PullError::Invalid { field: named, .. } if *named == field), "{error}");
        }
    }
}
