//! The database misbehaves, or is somebody else's too: rates and delays.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use laneway_client::topic::CreateTopic;
use laneway_client::wire::{BrokerFrame, ClientFrame, Publish};

use super::Seen;
use super::actor::{Actor, PATIENCE, numbered};
use crate::limits::HEADS_POLL_INTERVAL;
use crate::store::witness::Keeps;
use crate::verify::stage::Stage;

/// For rates.
const RATE_TOPIC: &str = "verify-rate";
const RATE_PARTITIONS: u32 = 8;
/// Of one measurement of a rate.
const RATE_WINDOW: Duration = Duration::from_millis(1_000);
/// Measurements; the median counts.
const RATE_ROUNDS: usize = 3;
const RATE_FRAMES_IN_FLIGHT: usize = 8;
const RATE_FRAME_MESSAGES: i64 = 50;
/// For hints and aborted flushes.
const HINT_TOPIC: &str = "verify-hints";
const TRIES: usize = 5;
/// How soon somebody else's publish is answered after backends were killed.
const AFTER_ABORT_MAX: Duration = Duration::from_secs(1);
/// A poll has jitter, and a busy machine is late.
const POLL_SLACK: Duration = Duration::from_millis(1_000);

type Figures = BTreeMap<&'static str, String>;

/// Messages per second that one session can publish in a closed loop: the median of some windows.
pub(in crate::verify) async fn publish_rate(stage: &Stage) -> Result<f64, String> {
    make_topic(stage, RATE_TOPIC, RATE_PARTITIONS).await?;
    let mut rates = Vec::new();
    for _ in 0..RATE_ROUNDS {
        rates.push(rate(stage).await?);
    }
    Ok(median(rates))
}

async fn rate(stage: &Stage) -> Result<f64, String> {
    let mut producer = Actor::enter(stage.brokers[0].address).await?;
    let (mut in_flight, mut answered, mut next) = (VecDeque::new(), 0_i64, 0_u32);
    let started_at = Instant::now();
    while started_at.elapsed() < RATE_WINDOW {
        while in_flight.len() < RATE_FRAMES_IN_FLIGHT {
            let (id, partition) = (producer.id(), next % RATE_PARTITIONS);
            next += 1;
            let messages = numbered(partition, 0..RATE_FRAME_MESSAGES);
            let topic = RATE_TOPIC.to_owned();
            producer
                .say(&ClientFrame::Publish(Publish { id, topic, producer_id: None, wait_ms: None, messages }))
                .await?;
            in_flight.push_back(id);
        }
        producer
            .hear("an answer to a publish", PATIENCE, |frame| match frame {
                BrokerFrame::Published(published) => Some(published.id),
                _ => None,
            })
            .await?;
        in_flight.pop_front();
        answered += RATE_FRAME_MESSAGES;
    }
    Ok(answered as f64 / started_at.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

async fn make_topic(stage: &Stage, name: &str, partitions: u32) -> Result<(), String> {
    let admin = stage.admin(0).map_err(|error| error.to_string())?;
    if admin.show_topic(name).await.is_ok() {
        return Ok(());
    }
    admin.create_topic(&CreateTopic::new(name, partitions)).await.map_err(|error| error.to_string())?;
    Ok(())
}

/// After everything that has happened, the rate is what it was.
pub(super) async fn chaos_is_survived(stage: &Stage, rate_before: f64, figures: &mut Figures) -> Seen {
    let after = publish_rate(stage).await?;
    let ratio = after / rate_before;
    figures.insert("rate_after_chaos", format!("{ratio:.2}"));
    let too_slow = ratio < 0.95;
    Ok(too_slow
        .then(|| format!("{after:.0} messages/s after the chaos, {rate_before:.0} before: {ratio:.2}"))
        .into_iter()
        .collect())
}

/// Somebody else's open transactions cost next to nothing. Measured in turn, with and without.
pub(super) async fn foreign_transactions(stage: &Stage, figures: &mut Figures) -> Seen {
    make_topic(stage, RATE_TOPIC, RATE_PARTITIONS).await?;
    let mut ratios = Vec::new();
    for _ in 0..RATE_ROUNDS {
        let without = rate(stage).await?;
        let hold = RATE_WINDOW * 2;
        let measured = async {
            tokio::time::sleep(RATE_WINDOW / 5).await; // until they have begun
            rate(stage).await
        };
        let (idle, snapshot, with) = tokio::join!(
            stage.store.witness_idle(Keeps::Nothing, hold),
            stage.store.witness_idle(Keeps::Snapshot, hold),
            measured,
        );
        idle.and(snapshot).map_err(|error| error.to_string())?;
        ratios.push(with? / without);
    }
    let ratio = median(ratios);
    figures.insert("rate_with_foreign_transactions", format!("{ratio:.2}"));
    let too_slow = ratio < 0.9;
    Ok(too_slow
        .then(|| format!("{ratio:.2} of the rate, with foreign transactions open"))
        .into_iter()
        .collect())
}

/// Backends are ended in the midst of flushes; the next publish is answered soon.
pub(super) async fn aborted_flushes(stage: &Stage, figures: &mut Figures) -> Seen {
    make_topic(stage, HINT_TOPIC, 1).await?;
    make_topic(stage, RATE_TOPIC, RATE_PARTITIONS).await?;
    let (mut worst, mut violations) = (Duration::ZERO, Vec::new());
    for _ in 0..TRIES {
        let mut other = Actor::enter(stage.brokers[stage.brokers.len() - 1].address).await?;
        let busy = async { rate(stage).await.err() }; // its connection may fail: it is the victim
        let killed = async {
            tokio::time::sleep(RATE_WINDOW / 3).await;
            stage.store.witness_terminate("laneway appender").await.map_err(|error| error.to_string())?;
            let since = Instant::now();
            other.publish(HINT_TOPIC, numbered(0, 0..1)).await?;
            Ok::<Duration, String>(since.elapsed())
        };
        let (_victim, took) = tokio::join!(busy, killed);
        let took = took?;
        worst = worst.max(took);
        if took > AFTER_ABORT_MAX {
            violations.push(format!("a publish was stored {took:?} after backends were ended"));
        }
    }
    figures.insert("publish_after_aborted_flush_ms_max", worst.as_millis().to_string());
    Ok(violations)
}

/// Without LISTEN, what is published at one broker reaches a consumer of another within the bound of the poll.
pub(super) async fn lost_hints(stage: &Stage, figures: &mut Figures) -> Seen {
    make_topic(stage, HINT_TOPIC, 1).await?;
    let mut consumer = Actor::enter(stage.brokers[stage.brokers.len() - 1].address).await?;
    let mut producer = Actor::enter(stage.brokers[0].address).await?;
    consumer.join(HINT_TOPIC, "listeners", None, 1_000).await?;
    let marker = |number| numbered(0, number..number + 1);
    let (mut worst, mut violations) = (Duration::ZERO, Vec::new());
    for number in 1_000..1_000 + TRIES as i64 {
        stage.store.witness_terminate("laneway listen").await.map_err(|error| error.to_string())?;
        let expected = marker(number)[0].payload.clone();
        let since = Instant::now();
        producer.publish(HINT_TOPIC, marker(number)).await?;
        consumer
            .hear("a message without a hint", PATIENCE, |frame| match frame {
                BrokerFrame::Batch(batch) => {
                    batch.messages.iter().any(|message| message.payload == expected).then_some(())
                }
                _ => None,
            })
            .await?;
        let took = since.elapsed();
        worst = worst.max(took);
        if took > HEADS_POLL_INTERVAL + POLL_SLACK {
            violations.push(format!("a message came after {took:?} without LISTEN"));
        }
    }
    figures.insert("delivery_without_listen_ms_max", worst.as_millis().to_string());
    Ok(violations)
}
