//! A run: build the stage, let the load and the faults loose on it, heal, drain, judge.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::VerifyError;
use super::checks::Evidence;
use super::consumer::Consumer;
use super::faults::Faults;
use super::history::{Event, Recorder};
use super::key_member::{KeyMember, Refusals};
use super::keys;
use super::later::publish_later;
use super::limited;
use super::mixed;
use super::plan::plan;
use super::probes::{Probes, publish_rate};
use super::process::Clock;
use super::producer::Producer;
use super::puller::Puller;
use super::reader::Reader;
use super::report::Report;
use super::scene::{Findings, Order, Scene, Style};
use super::settings::{GROUPS, KEYED, LATER, TOPIC, VerifySettings};
use super::stage::Stage;
use super::truth::Truth;
use super::watcher::watch;

/// Producers of a run.
const PRODUCERS: u32 = 3;
/// Pullers of a run.
const PULLERS: u64 = 3;
/// Members that share a group with a puller.
const SHARING: u64 = 2;
/// Producers that push against a limit.
const PUSHERS: u64 = 2;
/// Members that keep order by key.
const KEY_MEMBERS: u64 = 2;
/// How long everything may take to settle and drain once all is healed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks whether it has drained.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Is told how a run goes.
pub trait Progress: Send {
    /// What is being done now, and how much is published and delivered so far.
    fn step(&mut self, what: &str, elapsed: Duration, published: usize, delivered: usize);
}

/// Everything that works on the stage.
struct Load {
    scene: Arc<Scene>,
    enough: CancellationToken,
    producers: JoinSet<()>,
    consumers: JoinSet<()>,
    orders: Vec<mpsc::Sender<Order>>,
    /// Producers that had no answer in the end.
    unsettled: usize,
}

/// Makes a run and judges it. The stage is taken down whatever happens.
pub async fn run(
    settings: &VerifySettings,
    progress: &mut dyn Progress,
    interrupted: impl Future<Output = ()>,
) -> Result<Report, VerifyError> {
    progress.step("starting PostgreSQL and brokers", Duration::ZERO, 0, 0);
    let stage = Arc::new(Stage::build(settings).await?);
    let result = tokio::select! {
        result = perform(settings, &stage, progress) => result,
        () = interrupted => Err(VerifyError::Interrupted),
    };
    match Arc::into_inner(stage) {
        Some(stage) => stage.close().await?,
        None => tracing::warn!("somebody still holds the stage; it ends with this process"),
    }
    result
}

async fn perform(
    settings: &VerifySettings,
    stage: &Arc<Stage>,
    progress: &mut dyn Progress,
) -> Result<Report, VerifyError> {
    progress.step("measuring what it can do undisturbed", Duration::ZERO, 0, 0);
    let rate_before = publish_rate(stage).await.map_err(VerifyError::Scene)?;
    let recorder = Arc::new(Recorder::default());
    let mut load = Load::start(settings.seed, stage, &recorder);
    let faults = Faults { stage: stage.clone(), recorder: recorder.clone(), orders: load.orders.clone() };
    let started_at = Instant::now();
    let [heavy, light] = plan(settings);
    let mut watch = Watch { recorder: &recorder, progress, started_at };
    watch
        .during("faults", async {
            let both =
                async { tokio::try_join!(faults.run(heavy, started_at), faults.run(light, started_at)) };
            both.await?;
            tokio::time::sleep_until((started_at + settings.duration).into()).await;
            Ok::<(), VerifyError>(())
        })
        .await?;
    heal(stage).await?;
    watch.during("draining", load.drain(stage)).await?;
    let findings = load.stop().await?;
    let truth = Truth::read(&stage.store).await?;
    let probes = watch.during("playing scenes", Probes::play(stage, findings, rate_before)).await;
    let history = recorder.take();
    Ok(Report::of(settings, Evidence { history: &history, truth: &truth, probes: &probes }))
}

/// Everything runs, and every wire is clear.
async fn heal(stage: &Stage) -> Result<(), VerifyError> {
    if stage.cluster.pid()?.is_none() {
        stage.cluster.start().await?;
    }
    for broker in &stage.brokers {
        broker.clients.heal();
        broker.database.heal();
        let mut process = broker.process.lock().await;
        if !process.is_running() {
            process.start(Clock::Right).await?;
        }
    }
    Ok(())
}

impl Load {
    fn start(seed: u64, stage: &Stage, recorder: &Arc<Recorder>) -> Self {
        let (brokers, stop) = (stage.addresses(), CancellationToken::new());
        let scene = Arc::new(Scene {
            brokers: brokers.clone(),
            recorder: recorder.clone(),
            findings: parking_lot::Mutex::default(),
            stop,
        });
        let enough = CancellationToken::new();
        let (mut producers, mut consumers, mut orders) = (JoinSet::new(), JoinSet::new(), Vec::new());
        for number in 0..PRODUCERS {
            let seed = seed ^ (0x1000 + u64::from(number));
            let producer = Producer::new(number, seed, brokers.clone(), recorder.clone(), enough.clone());
            producers.spawn(producer.run());
        }
        producers.spawn(publish_later(brokers.clone(), recorder.clone(), seed ^ 0x4000, enough.clone()));
        for number in 0..PUSHERS {
            let seed = seed ^ (0x5000 + number);
            producers.spawn(limited::push(brokers.clone(), recorder.clone(), seed, enough.clone()));
        }
        for number in 0..PULLERS {
            consumers.spawn(Puller::new(seed ^ (0x6000 + number), scene.clone()).run());
        }
        consumers.spawn(mixed::pull(scene.clone(), seed ^ 0xB000));
        for number in 0..SHARING {
            consumers.spawn(mixed::Member::new(seed ^ (0xC000 + number), scene.clone()).run());
        }
        consumers.spawn(limited::pull(scene.clone(), seed ^ 0x7000));
        let publishing = keys::publish(brokers.clone(), recorder.clone(), seed ^ 0x8000, enough.clone());
        producers.spawn(publishing);
        let refusals = Arc::new(Refusals::default());
        for number in 0..KEY_MEMBERS {
            let member = KeyMember::new(seed ^ (0x9000 + number), scene.clone(), refusals.clone());
            consumers.spawn(member.run());
        }
        consumers.spawn(keys::operate(scene.clone(), seed ^ 0xA000));
        let watching =
            limited::watch_depth(stage.store.clone(), recorder.clone(), brokers.len(), scene.stop.clone());
        consumers.spawn(watching);
        let members = |group| Style::of_group(group).iter().map(move |style| (group, *style));
        for (group, style) in (0..GROUPS.len()).flat_map(members) {
            let (sender, receiver) = mpsc::channel(1);
            let (number, seed) = (orders.len(), seed ^ (0x2000 + orders.len() as u64));
            consumers.spawn(Consumer::new(number, group, style, seed, scene.clone(), receiver).run());
            orders.push(sender);
        }
        consumers.spawn(watch(stage.store.clone(), recorder.clone(), scene.stop.clone()));
        consumers.spawn(Reader::new(0, seed ^ 0x3000, scene.clone()).run());
        Self { scene, enough, producers, consumers, orders, unsettled: 0 }
    }

    /// No more messages; waits until all are settled and committed by every group, or for as long as anybody should.
    async fn drain(&mut self, stage: &Stage) -> Result<(), VerifyError> {
        self.enough.cancel();
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let settling = async {
            while let Some(ended) = self.producers.join_next().await {
                ended.map_err(|error| VerifyError::Panicked(error.to_string()))?;
            }
            Ok::<(), VerifyError>(())
        };
        match tokio::time::timeout_at(deadline.into(), settling).await {
            Ok(settled) => settled?,
            Err(_) => self.unsettled = self.producers.len(), // somebody's publishes are not answered, long after all was healed
        }
        self.producers.shutdown().await;
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while Instant::now() < deadline && !is_drained(stage).await? {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }

    async fn stop(mut self) -> Result<Findings, VerifyError> {
        self.scene.stop.cancel();
        while let Some(ended) = self.consumers.join_next().await {
            ended.map_err(|error| VerifyError::Panicked(error.to_string()))?;
        }
        let findings = std::mem::take(&mut *self.scene.findings.lock());
        Ok(Findings { producers_unsettled: self.unsettled, ..findings })
    }
}

/// Whether every lane has committed everything. Cheap questions only: this is asked often.
async fn is_drained(stage: &Stage) -> Result<bool, VerifyError> {
    for topic in [TOPIC, LATER, KEYED] {
        let (lanes, behind) = stage.store.witness_lag(topic).await?;
        if lanes == 0 || behind > 0 {
            return Ok(false);
        }
    }
    let (waiting, parked) =
        tokio::try_join!(stage.store.witness_waiting(LATER), stage.store.witness_parked(KEYED))?;
    Ok(waiting == 0 && parked == 0)
}

/// Tells about the run while something goes on.
struct Watch<'a> {
    recorder: &'a Recorder,
    progress: &'a mut dyn Progress,
    started_at: Instant,
}

impl Watch<'_> {
    async fn during<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        let mut ticks = tokio::time::interval(LOOK_PAUSE);
        let (mut seen, mut published, mut delivered) = (0, 0, 0);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => {}
            }
            self.recorder.look(|history| {
                for entry in &history.entries[seen..] {
                    match &entry.event {
                        Event::Stored { .. } => published += 1,
                        Event::Delivered { messages, .. } => delivered += messages.len(),
                        _ => {}
                    }
                }
                seen = history.entries.len();
            });
            self.progress.step(what, self.started_at.elapsed(), published, delivered);
        }
    }
}
