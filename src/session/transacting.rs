//! The steps of one session: reserved with their groups in the order of their frames, then routed, written and answered
//! beside the loop.
//!
//! What cannot be tried here may have been done elsewhere: a step that a group refuses is looked up before it is refused to the
//! client, and "nothing happened" is only said when no earlier try of it can still come.

use std::sync::Arc;

use laneway_client::wire::{Ack, BrokerFrame, NewMessage, Placed, StepPublish, Transact, Transacted};
use laneway_client::{Cause, Class, ErrorCode, TopicName, traceparent};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use super::Sessions;
use super::fault::{Refusal, of_topic};
use super::publishing::refusal;
use super::step_spans::Told;
use crate::broker::Broker;
use crate::broker::capacity::Admission;
use crate::broker::groups::{GroupHandle, Reserved, StepRefused, Unreserved};
use crate::broker::publish::Addressed;
use crate::broker::steps::{Coming, Done, Step, StepAck, StepError, StepUnit};
use crate::broker::topics::TopicError;
use crate::ids::{Epoch, SessionId, StepId};
use crate::store::steps::{Digest, DoneStep, NamedLane, Standing};

/// An ack of a step that a group has been asked for.
#[derive(Debug)]
pub(super) struct Asked {
    group: GroupHandle,
    topic: String,
    partition: u32,
    epoch: i64,
    answer: oneshot::Receiver<Result<Reserved, Unreserved>>,
}

/// Asks a group for what a step acknowledges. Returns as soon as the question is in its inbox.
pub(super) async fn ask(
    (topic, group): (String, GroupHandle),
    session_id: SessionId,
    step_id: StepId,
    ack: &Ack,
) -> Asked {
    let answer = group.reserve(session_id, step_id, ack.clone()).await;
    Asked { group, topic, partition: ack.partition, epoch: ack.epoch, answer }
}

/// What the groups have answered.
#[derive(Debug, Default)]
struct Answers {
    acks: Vec<StepAck>,
    /// The message that the step acknowledges, if it is one.
    only: Option<Cause>,
    refused: Vec<(Unreserved, i64)>,
}

/// Carries a step out. Returns its answer.
pub(super) async fn transact(
    sessions: Sessions,
    transact: Transact,
    asked: Vec<Asked>,
    coming: Coming,
) -> BrokerFrame {
    let (id, step_id) = (transact.id, transact.step_id);
    let counts: Vec<usize> = transact.publishes.iter().map(|publish| publish.messages.len()).collect();
    match carry_out(sessions.broker(), transact, asked, coming).await {
        Ok(Done { repeated, placed }) => {
            let mut placed = placed.into_iter();
            let placed = counts.iter().map(|count| placed.by_ref().take(*count).map(wire_place).collect());
            BrokerFrame::Transacted(Transacted { id, step_id, repeated, placed: placed.collect() })
        }
        Err(refusal) => BrokerFrame::Error(Box::new(refusal.into_frame(Some(id)))),
    }
}

fn wire_place(placed: crate::store::steps::Placed) -> Placed {
    Placed { partition: placed.partition, offset: placed.offset.0 }
}

async fn carry_out(
    broker: &Broker,
    mut transact: Transact,
    asked: Vec<Asked>,
    coming: Coming,
) -> Result<Done, Refusal> {
    let step_id = StepId(transact.step_id);
    let _try = broker.steps.begin(step_id);
    let group_ids = asked.iter().map(|asked| asked.group.group_id.0);
    let digest = digest(&transact, group_ids);
    let Answers { acks, only, refused } = answers(asked).await;
    let tried = Tried { broker, step_id, digest: &digest, acks: &acks };
    if let Some((first, _)) = refused.first() {
        drop(coming);
        return tried.look_up(&refused, first).await;
    }
    if let Some(cause) = only {
        transact.publishes.iter_mut().flat_map(|publish| &mut publish.messages).for_each(|message| {
            caused(message, &cause);
        });
    }
    let topics: Vec<String> = transact.publishes.iter().map(|publish| publish.topic.clone()).collect();
    let counts: Vec<usize> = transact.publishes.iter().map(|publish| publish.messages.len()).collect();
    let units = match route(broker, transact.publishes).await {
        Ok(units) => units,
        Err(refusal) => {
            drop(coming);
            return tried.refuse(refusal).await;
        }
    };
    let room = match admit(broker, step_id, &topics, &counts, &units).await {
        Ok(room) => room,
        Err(refusal) => {
            drop(coming);
            return tried.refuse(refusal).await;
        }
    };
    let told = broker.spans.is_on().then(|| Told::new(broker, &acks, &units, &topics, &counts));
    let answer = broker.steps.submit(Step { step_id, digest, acks, units, room }, coming)?;
    let stopping = |_| StepError::OutcomeUnknown { reason: "the broker is stopping".into() };
    let result = answer.await.map_err(stopping).flatten();
    if matches!(result, Err(StepError::UnknownPartition | StepError::Unsealed)) {
        // One was deleted since it was remembered, and may have been made again; or it is encrypted since.
        topics
            .into_iter()
            .filter_map(|topic| TopicName::new(topic).ok())
            .for_each(|topic| broker.topics.forget(&topic));
    }
    let done = match result {
        Err(error @ StepError::Time { index, .. }) => {
            return Err(Refusal::from(error).with_field(time_field(&counts, index)));
        }
        result => result?,
    };
    if let Some(told) = told.filter(|_| !done.repeated) {
        told.tell(&broker.spans, &done);
    }
    Ok(done)
}

/// The time of a message, by its place among all messages of a step.
fn time_field(counts: &[usize], index: usize) -> String {
    let mut place = index;
    for (publish, count) in counts.iter().enumerate() {
        if place < *count {
            return format!("publishes[{publish}].messages[{place}].deliver_at");
        }
        place -= count;
    }
    "publishes".to_owned()
}

/// Lets what a step publishes into its topics, all of it or nothing. A copy of a step that is under way needs no room of its own.
async fn admit(
    broker: &Broker,
    step_id: StepId,
    topics: &[String],
    counts: &[usize],
    units: &[StepUnit],
) -> Result<Vec<Arc<Admission>>, Refusal> {
    let (mut room, mut before) = (Vec::new(), 0);
    if broker.steps.is_under_way(step_id) {
        return Ok(room);
    }
    for (number, (topic, count)) in topics.iter().zip(counts).enumerate() {
        let own = before..before + count;
        before += count;
        let first =
            units.partition_point(|unit| unit.indexes.first().is_some_and(|index| *index < own.start));
        let end = units.partition_point(|unit| unit.indexes.first().is_some_and(|index| *index < own.end));
        let Ok(topic) = TopicName::new(topic.clone()) else { continue }; // it was routed by this name
        let admitted = broker
            .publisher
            .admit(&topic, &units[first..end])
            .await
            .map_err(|error| refusal(error).with_field(format!("publishes[{number}].topic")));
        room.extend(admitted?);
    }
    Ok(room)
}

fn held(ack: &StepAck) -> NamedLane {
    NamedLane { group_id: ack.fence.group_id, partition_id: ack.fence.partition_id, epoch: ack.fence.epoch }
}

async fn answers(asked: Vec<Asked>) -> Answers {
    let mut answers = Answers::default();
    let is_alone = asked.len() == 1;
    for Asked { group, topic, partition, epoch, answer } in asked {
        match answer.await {
            Ok(Ok(Reserved { fence, ranges, times, copies })) => {
                if let ([(first, end)], true) = (ranges.as_slice(), is_alone)
                    && first.plus(1) == *end
                {
                    answers.only = Some(Cause { topic, partition, offset: first.0 });
                }
                answers.acks.push(StepAck { group, fence, ranges, times, copies });
            }
            Ok(Err(unreserved)) => answers.refused.push((unreserved, epoch)),
            Err(_) => {
                // The group has ended: this session is no member any more.
                let why = StepRefused::NotHeld { partition: 0, epoch };
                let group_id = group.group_id;
                answers.refused.push((Unreserved { group_id, partition_id: None, why }, epoch));
            }
        }
    }
    answers
}

/// What a step publishes follows from what it acknowledges, unless the client says where it comes from or belongs to.
fn caused(message: &mut NewMessage, cause: &Cause) {
    let is_placed = message.cause.is_some() || message.trace_id.is_some();
    if !is_placed && !message.headers.contains_key(traceparent::HEADER) {
        message.cause = Some(cause.clone());
    }
}

/// A step that cannot be carried out here: what it acknowledges was reserved, and is free again when it is answered.
struct Tried<'a> {
    broker: &'a Broker,
    step_id: StepId,
    digest: &'a Digest,
    acks: &'a [StepAck],
}

/// How such a step stands.
enum Before {
    Done(Done),
    /// It is not done, and no try can do it any more.
    Never,
    /// It is not done; a try elsewhere may do it yet.
    Open,
    /// It is not done; a copy of it is with this broker, and may be.
    UnderWay,
}

impl Tried<'_> {
    /// Looks whether it was done before; then its groups learn it.
    async fn before(&self, others: impl Iterator<Item = NamedLane>) -> Result<Before, Refusal> {
        let lanes: Vec<NamedLane> = others.chain(self.acks.iter().map(held)).collect();
        let had_other = self.broker.steps.has_other_try(self.step_id); // first: what ends meanwhile is in the tables
        let stands = self.broker.steps.stand(self.step_id, &lanes).await;
        let is_under_way = had_other || self.broker.steps.has_other_try(self.step_id);
        if let Ok(Standing::Done(DoneStep { digest, placed })) = &stands
            && digest == self.digest
        {
            for StepAck { group, fence, ranges, .. } in self.acks {
                group.step_done(*fence, self.step_id, ranges.clone());
            }
            return Ok(Before::Done(Done { repeated: true, placed: placed.clone() }));
        }
        self.undo();
        match stands {
            Ok(Standing::Done(_)) => Err(StepError::Mismatch.into()),
            Ok(Standing::Never) => Ok(Before::Never),
            Ok(Standing::Open) if is_under_way => Ok(Before::UnderWay),
            Ok(Standing::Open) => Ok(Before::Open),
            Err(error) => Err(unknown(error.to_string())),
        }
    }

    fn undo(&self) {
        self.acks.iter().for_each(|ack| ack.group.step_undone(ack.fence, self.step_id));
    }

    /// It breaks a rule, or there is no room for it. If it was done before, that is the answer: the rule may be newer.
    async fn refuse(&self, refusal: Refusal) -> Result<Done, Refusal> {
        match refusal.code.class() {
            Class::Refused => {}
            Class::Retry if refusal.code == ErrorCode::TopicFull => {}
            Class::Retry | Class::Unknown | Class::Fatal => {
                self.undo();
                return Err(refusal); // it is asked for again
            }
        }
        match self.before(std::iter::empty()).await? {
            Before::Done(done) => Ok(done),
            Before::Never | Before::Open => Err(refusal),
            Before::UnderWay => Err(unknown(format!("{}, but a try is under way", refusal.detail))),
        }
    }

    /// A group has refused it: if it was done before, that is the answer.
    async fn look_up(&self, refused: &[(Unreserved, i64)], first: &Unreserved) -> Result<Done, Refusal> {
        let not_held = refused.iter().filter_map(|(unreserved, epoch)| {
            let partition_id = unreserved.partition_id?;
            Some(NamedLane { group_id: unreserved.group_id, partition_id, epoch: Epoch(*epoch) })
        });
        match self.before(not_held).await? {
            Before::Done(done) => Ok(done),
            Before::Never => Err(first.why.clone().into()),
            // There is no such lane, so nobody can be at work on it.
            Before::Open | Before::UnderWay
                if refused.iter().any(|(unreserved, _)| unreserved.partition_id.is_none()) =>
            {
                Err(first.why.clone().into())
            }
            // The lane is this session's, and what it says of the lane is wrong: nobody else can be at work on it.
            Before::Open if !matches!(first.why, StepRefused::NotHeld { .. }) => {
                Err(first.why.clone().into())
            }
            Before::Open => Err(unknown(format!("{}, but nobody else does yet", first.why))),
            Before::UnderWay => Err(unknown(format!("{}, but a try is under way", first.why))),
        }
    }
}

fn unknown(reason: String) -> Refusal {
    StepError::OutcomeUnknown { reason }.into()
}

/// Checks and routes the messages of a step; indexes count through all its publishes.
async fn route(broker: &Broker, publishes: Vec<StepPublish>) -> Result<Vec<StepUnit>, Refusal> {
    let (mut units, mut before) = (Vec::new(), 0);
    for (number, StepPublish { topic, messages }) in publishes.into_iter().enumerate() {
        let within = |mut refusal: Refusal| {
            refusal.field = refusal.field.map(|field| format!("publishes[{number}].{field}"));
            refusal
        };
        let topic = TopicName::new(topic).map_err(|error| within(of_topic(TopicError::Name(error))))?;
        let count = messages.len();
        let drafts = messages.into_iter().map(Addressed::from).collect();
        let routed = broker.publisher.route(&topic, drafts).await.map_err(|error| within(refusal(error)))?;
        units.extend(routed.into_iter().map(|mut unit| {
            unit.indexes.iter_mut().for_each(|index| *index += before);
            unit
        }));
        before += count;
    }
    Ok(units)
}

/// What a step does, apart from when and under which epoch: a repetition has the same.
fn digest(transact: &Transact, group_ids: impl Iterator<Item = i64>) -> Digest {
    let mut hash = Sha256::new();
    let number = |hash: &mut Sha256, number: i64| hash.update(number.to_be_bytes());
    number(&mut hash, transact.acks.len() as i64);
    for (ack, group_id) in transact.acks.iter().zip(group_ids) {
        let head = [group_id, i64::from(ack.partition), ack.next.unwrap_or(-1), ack.ranges.len() as i64];
        let ranges = ack.ranges.iter().flat_map(|range| [range.from, range.to]);
        head.into_iter().chain(ranges).for_each(|part| number(&mut hash, part));
    }
    for publish in &transact.publishes {
        text(&mut hash, Some(publish.topic.as_bytes()));
        number(&mut hash, publish.messages.len() as i64);
        publish.messages.iter().for_each(|message| hash_message(&mut hash, message));
    }
    hash.finalize().into()
}

fn hash_message(hash: &mut Sha256, message: &NewMessage) {
    text(hash, Some(&message.payload));
    text(hash, message.key.as_deref());
    hash.update(message.partition.map_or(-1, i64::from).to_be_bytes());
    text(hash, message.trace_id.as_ref().map(|id| id.as_bytes().as_slice()));
    text(hash, message.transaction_id.as_deref().map(str::as_bytes));
    text(hash, message.content_type.as_deref().map(str::as_bytes));
    hash.update((message.headers.len() as u64).to_be_bytes());
    for (name, value) in &message.headers {
        text(hash, Some(name.as_bytes()));
        text(hash, Some(value.as_bytes()));
    }
    // Only if there are any: brokers that do not know them hash the rest in the same way.
    if let Some(cause) = &message.cause {
        text(hash, Some(b"cause"));
        text(hash, Some(cause.topic.as_bytes()));
        hash.update(cause.partition.to_be_bytes());
        hash.update(cause.offset.to_be_bytes());
    }
    for link in &message.links {
        text(hash, Some(b"link"));
        text(hash, Some(link.as_bytes()));
    }
    if let Some(deliver_at) = &message.deliver_at {
        text(hash, Some(b"deliver_at"));
        text(hash, Some(deliver_at.as_bytes()));
    }
    if let Some(delay_ms) = message.delay_ms {
        text(hash, Some(b"delay_ms"));
        hash.update(delay_ms.to_be_bytes());
    }
    if let Some(ttl_ms) = message.ttl_ms {
        text(hash, Some(b"ttl_ms"));
        hash.update(ttl_ms.to_be_bytes());
    }
}

/// With its length, so that no two sequences of parts look the same.
fn text(hash: &mut Sha256, part: Option<&[u8]>) {
    hash.update(part.map_or(-1, |part| part.len() as i64).to_be_bytes());
    hash.update(part.unwrap_or_default());
}
