//! A message that is refused for ever, and one that kills whoever works on it.

use std::collections::BTreeSet;

use laneway_client::topic::CreateTopic;
use laneway_client::wire::{ClientFrame, Nack, OnFailure, WantedSettings};

use super::Seen;
use super::actor::{Actor, numbered};
use crate::verify::stage::Stage;
use crate::verify::value::Value;

const TOPIC: &str = "verify-poison";
const MESSAGES: i64 = 100;
/// Refused whenever it comes.
const REFUSED: i64 = 57;
/// Its consumer dies.
const KILLER: i64 = 30;
const ATTEMPTS: u32 = 3;
/// Lives that consumers may lose before the scene has failed.
const LIVES_MAX: usize = 40;

/// Both leave, and nobody else does.
pub(super) async fn poison(stage: &Stage) -> Seen {
    let made = stage.admin(0).map_err(|error| error.to_string())?;
    made.create_topic(&CreateTopic::new(TOPIC, 1)).await.map_err(|error| error.to_string())?;
    let address = stage.brokers[0].address;
    let mut producer = Actor::enter(address).await?;
    producer.publish(TOPIC, numbered(0, 0..MESSAGES)).await?;
    let mut done = BTreeSet::new();
    for life in 0.. {
        if consume(stage, life, &mut done).await? {
            break;
        }
        if life > LIVES_MAX {
            return Err(format!("after {LIVES_MAX} lives only {} of {MESSAGES} are done", done.len()));
        }
    }
    let dead = stage.store.witness_dead_letters(TOPIC).await.map_err(|error| error.to_string())?;
    let dead: BTreeSet<i64> = dead.into_iter().map(|(lane, _, _)| lane.offset).collect();
    let (expected, mut violations) = (BTreeSet::from([KILLER, REFUSED]), Vec::new());
    if dead != expected {
        violations.push(format!("dead letters are {dead:?}, and should be {expected:?}"));
    }
    let left: Vec<i64> =
        (0..MESSAGES).filter(|offset| !done.contains(offset) && !expected.contains(offset)).collect();
    if !left.is_empty() {
        violations.push(format!("{left:?} were never acknowledged"));
    }
    Ok(violations)
}

/// One life of a consumer. True: everything is committed.
async fn consume(stage: &Stage, life: usize, done: &mut BTreeSet<i64>) -> Result<bool, String> {
    let address = stage.brokers[life % stage.brokers.len()].address;
    let mut consumer = Actor::enter(address).await?;
    let settings = WantedSettings {
        ack_deadline_ms: Some(10_000),
        max_attempts: Some(ATTEMPTS),
        backoff_base_ms: Some(5),
        backoff_factor: Some(1.0),
        backoff_cap_ms: Some(5),
        on_failure: Some(OnFailure::DeadLetter),
        ..WantedSettings::default()
    };
    consumer.join(TOPIC, "careful", Some(settings), 10).await?;
    loop {
        let commits = stage.store.witness_commits(TOPIC).await.map_err(|error| error.to_string())?;
        if commits.iter().any(|lane| lane.offset == MESSAGES) {
            consumer.leave().await;
            return Ok(true);
        }
        // Nothing more may come although not all is committed yet: then it is looked at again.
        let Ok(batch) = consumer.batch().await else { return Ok(false) };
        for message in &batch.messages {
            match message.offset {
                KILLER => return Ok(false), // dropped without a word
                REFUSED => {
                    let nack = Nack {
                        id: None,
                        subscription: batch.subscription,
                        partition: batch.partition,
                        epoch: batch.epoch,
                        round: batch.round,
                        offset: REFUSED,
                        reason: Some("refused for ever".into()),
                        delay_ms: None,
                        until: None,
                    };
                    consumer.say(&ClientFrame::Nack(nack)).await?;
                    break; // the rest comes again in the next round
                }
                offset => {
                    if consumer.ack(&batch, [offset]).await? {
                        done.insert(offset);
                    } else {
                        break;
                    }
                }
            }
        }
    }
}

/// Whether dead letters carry the trace ids of their messages; `None` if there are none to look at.
pub(super) async fn dead_letter_traces_exact(stage: &Stage) -> Option<bool> {
    let dead = stage.store.witness_dead_letters(TOPIC).await.ok()?;
    let exact =
        |payload: &[u8], trace_id| Value::parse(payload).is_some_and(|value| value.trace_id() == trace_id);
    (!dead.is_empty()).then(|| dead.iter().all(|(_, payload, trace_id)| exact(payload, *trace_id)))
}
