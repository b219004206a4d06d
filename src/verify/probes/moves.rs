//! Lanes that move, and lanes that must not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use laneway_client::topic::CreateTopic;
use laneway_client::wire::BrokerFrame;
use tokio::task::JoinSet;

use super::Seen;
use super::actor::{Actor, PATIENCE, numbered};
use crate::verify::settings::{GRACE, HEARTBEAT, LANE_DRAIN};
use crate::verify::stage::Stage;

type Figures = BTreeMap<&'static str, String>;

const CHURN_TOPIC: &str = "verify-churn";
const CHURN_PARTITIONS: u32 = 12;
const MEMBERS: usize = 3;
/// Without a move for so long, lanes have settled.
const WATCH: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Longer than any scene.
const COMPANY_LIFE: Duration = Duration::from_secs(120);

/// What a member has gained and lost so far.
#[derive(Debug, Default)]
struct Tally {
    gained: AtomicUsize,
    lost: AtomicUsize,
}

impl Tally {
    fn read(&self) -> (usize, usize) {
        (self.gained.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }
}

/// Members that live by themselves, and what has become of each.
#[derive(Debug, Default)]
struct Company {
    tallies: Vec<Arc<Tally>>,
    tasks: JoinSet<()>,
}

impl Company {
    async fn join(&mut self, stage: &Stage) -> Result<(), String> {
        let number = self.tallies.len();
        let mut member = Actor::enter(stage.brokers[number % stage.brokers.len()].address).await?;
        member.join(CHURN_TOPIC, "steady", None, 100).await?;
        let tally = Arc::new(Tally::default());
        self.tallies.push(tally.clone());
        self.tasks.spawn(async move {
            let count = |frame: &BrokerFrame| {
                match frame {
                    BrokerFrame::LaneGranted(_) => tally.gained.fetch_add(1, Ordering::Relaxed),
                    BrokerFrame::LaneRevoked(_) => tally.lost.fetch_add(1, Ordering::Relaxed),
                    _ => 0,
                };
                None::<()>
            };
            // It ends when the company is dropped, or with its connection: then its lanes move, which is seen.
            member.hear("the end", COMPANY_LIFE, count).await.ok();
        });
        Ok(())
    }

    fn tallies(&self) -> Vec<(usize, usize)> {
        self.tallies.iter().map(|tally| tally.read()).collect()
    }

    /// Waits until every lane is held and none has moved for a while. Returns what each has gained and lost.
    async fn settled(&self) -> Result<Vec<(usize, usize)>, String> {
        let deadline = Instant::now() + PATIENCE;
        let (mut last, mut since) = (self.tallies(), Instant::now());
        while Instant::now() < deadline {
            tokio::time::sleep(LOOK_PAUSE).await;
            let now = self.tallies();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let held: usize = last.iter().map(|(gained, lost)| gained.saturating_sub(*lost)).sum();
            if held == CHURN_PARTITIONS as usize && since.elapsed() > WATCH {
                return Ok(last);
            }
        }
        Err(format!("lanes still move after {PATIENCE:?}: {last:?}"))
    }
}

/// One more member joins many: lanes go to it, and nobody else loses or gains one.
pub(super) async fn one_of_many(stage: &Stage, figures: &mut Figures) -> Seen {
    let admin = stage.admin(0).map_err(|error| error.to_string())?;
    let topic = CreateTopic::new(CHURN_TOPIC, CHURN_PARTITIONS);
    admin.create_topic(&topic).await.map_err(|error| error.to_string())?;
    let mut company = Company::default();
    for _ in 0..MEMBERS {
        company.join(stage).await?;
    }
    let before = company.settled().await?;
    company.join(stage).await?;
    let began_at = Instant::now();
    let after = company.settled().await?;
    figures.insert("rebalance_ms", began_at.elapsed().saturating_sub(WATCH).as_millis().to_string());
    let share = CHURN_PARTITIONS as usize / (MEMBERS + 1);
    let moved: Vec<(usize, usize)> =
        before.iter().zip(&after).map(|(before, after)| (after.0 - before.0, after.1 - before.1)).collect();
    let gained: usize = moved.iter().map(|(gained, _)| gained).sum();
    let lost: usize = moved.iter().map(|(_, lost)| lost).sum();
    let fine = gained == 0 && lost == share && after.last() == Some(&(share, 0));
    let violation = || format!("for one newcomer, whose share is {share}, members gained and lost {moved:?}");
    Ok((!fine).then(violation).into_iter().collect())
}

const RETENTION_TOPIC: &str = "verify-retention";
const RETENTION_MESSAGES: i64 = 200;

/// A group that retention has overtaken is told what it will not get.
pub(super) async fn retention(stage: &Stage) -> Seen {
    let admin = stage.admin(0).map_err(|error| error.to_string())?;
    let mut topic = CreateTopic::new(RETENTION_TOPIC, 1);
    (topic.segment_messages, topic.retention_bytes) = (Some(16), Some(1));
    admin.create_topic(&topic).await.map_err(|error| error.to_string())?;
    let address = stage.brokers[0].address;
    let mut late = Actor::enter(address).await?;
    late.join(RETENTION_TOPIC, "late", None, 1).await?;
    late.granted().await?;
    late.leave().await;
    let mut producer = Actor::enter(address).await?;
    for from in (0..RETENTION_MESSAGES).step_by(10) {
        producer.publish(RETENTION_TOPIC, numbered(0, from..from + 10)).await?;
    }
    let start = retained_from(stage).await?;
    let mut back = Actor::enter(address).await?;
    back.join(RETENTION_TOPIC, "late", None, 1_000).await?;
    let granted = back.granted().await?;
    let told = granted.reset.as_ref().map(|reset| (reset.from, reset.to));
    let is_told = told.is_some_and(|(from, to)| from == 0 && to >= start);
    Ok((!is_told)
        .then(|| format!("messages below {start} are gone, and the grant says {told:?}"))
        .into_iter()
        .collect())
}

/// Lets retention run until it has dropped something. Returns where the partition begins now.
async fn retained_from(stage: &Stage) -> Result<i64, String> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        stage.store.retention_pass().await.map_err(|error| error.to_string())?;
        let admin = stage.admin(0).map_err(|error| error.to_string())?;
        let detail = admin.show_topic(RETENTION_TOPIC).await.map_err(|error| error.to_string())?;
        if let Some(start) = detail
            .partition_details
            .first()
            .map(|partition| partition.start_offset)
            .filter(|start| *start > 0)
        {
            return Ok(start);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("retention has dropped nothing within {PATIENCE:?}"))
}

const HALF_OPEN_TOPIC: &str = "verify-half-open";
const HALF_OPEN_MESSAGES: i64 = 20;
const HALF_OPEN_ACKED: i64 = 10;

/// A connection that swallows everything is noticed in time, and the exact rest goes to another.
pub(super) async fn half_open(stage: &Stage, figures: &mut Figures) -> Seen {
    let admin = stage.admin(0).map_err(|error| error.to_string())?;
    admin.create_topic(&CreateTopic::new(HALF_OPEN_TOPIC, 1)).await.map_err(|error| error.to_string())?;
    let wired = &stage.brokers[stage.brokers.len() - 1];
    let mut swallowed = Actor::enter(wired.clients.address).await?;
    swallowed.join(HALF_OPEN_TOPIC, "pair", None, 1_000).await?;
    let mut producer = Actor::enter(stage.brokers[0].address).await?;
    producer.publish(HALF_OPEN_TOPIC, numbered(0, 0..HALF_OPEN_MESSAGES)).await?;
    let mut seen = 0;
    while seen < HALF_OPEN_MESSAGES {
        let batch = swallowed.batch().await?;
        seen += batch.messages.len() as i64;
        let acked =
            batch.messages.iter().map(|message| message.offset).filter(|offset| *offset < HALF_OPEN_ACKED);
        let acked: Vec<i64> = acked.collect();
        if !acked.is_empty() && !swallowed.ack(&batch, acked).await? {
            return Err("an ack was refused before anything had happened".to_owned());
        }
    }
    let mut other = Actor::enter(stage.brokers[0].address).await?;
    other.join(HALF_OPEN_TOPIC, "pair", None, 1_000).await?;
    wired.clients.blackhole();
    let since = Instant::now();
    let rest = rest(&mut other).await;
    wired.clients.heal();
    let took = since.elapsed();
    figures.insert("half_open_detected_ms", took.as_millis().to_string());
    let (rest, mut violations) = (rest?, Vec::new());
    let expected: Vec<i64> = (HALF_OPEN_ACKED..HALF_OPEN_MESSAGES).collect();
    if rest != expected {
        violations.push(format!("the other was given {rest:?} instead of {expected:?}"));
    }
    let bound = HEARTBEAT * 2 + GRACE + LANE_DRAIN + Duration::from_secs(2);
    if took > bound {
        violations.push(format!("a half-open connection was noticed after {took:?}, not within {bound:?}"));
    }
    Ok(violations)
}

/// What comes, without copies, until all that is left has come.
async fn rest(other: &mut Actor) -> Result<Vec<i64>, String> {
    let mut seen: BTreeSet<i64> = BTreeSet::new();
    while seen.len() < (HALF_OPEN_MESSAGES - HALF_OPEN_ACKED) as usize {
        let batch = other.batch().await?;
        let offsets: Vec<i64> = batch.messages.iter().map(|message| message.offset).collect();
        seen.extend(&offsets);
        // What was in flight when a consumer vanished comes one by one: the next when this one is done.
        if !other.ack(&batch, offsets).await? {
            return Err("the lane was lost again".to_owned());
        }
    }
    Ok(seen.into_iter().collect())
}
