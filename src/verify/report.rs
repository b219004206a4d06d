//! The figures of a run, for people and for programs.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::checks::{Counts, Evidence, Judged, Verdict, judge, queues};
use super::history::{Event, History, LaneId};
use super::settings::{FaultKind, TTL, VerifySettings};

/// How long a takeover may take: a ttl, and a second.
pub const TAKEOVER_MAX: Duration = TTL.saturating_add(Duration::from_secs(1));

/// Times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub p50: u64,
    pub max: u64,
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let millis = |time: Option<&Duration>| time.map_or(0, |time| time.as_millis() as u64);
        Self { p50: millis(times.get(times.len() / 2)), max: millis(times.last()) }
    }
}

/// See the module.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub seed: u64,
    pub brokers: usize,
    pub seconds: u64,
    pub published: usize,
    pub acknowledged: usize,
    pub delivered: usize,
    pub lost: usize,
    pub duplicated_after_ack: usize,
    pub order_violations: usize,
    pub overlaps: usize,
    pub fenced: usize,
    pub takeovers: usize,
    pub takeover_ms: Spread,
    /// Takeovers that took longer than a ttl and a second, and the faults that fell meanwhile.
    pub slow_takeovers: Vec<String>,
    pub faults: BTreeMap<&'static str, usize>,
    pub promises: BTreeMap<usize, &'static str>,
    /// What the scenes of single promises have measured.
    pub figures: BTreeMap<&'static str, String>,
    /// What became of what queues add to the promises: schedules, pops, capacity, order by key.
    pub queues: BTreeMap<&'static str, &'static str>,
    /// What shows that one of these was violated.
    pub queue_violations: BTreeMap<&'static str, Vec<String>>,
    /// What shows a violation, by number of the promise.
    pub violations: BTreeMap<usize, Vec<String>>,
    #[serde(skip)]
    pub judged: Vec<Judged>,
}

impl Report {
    pub fn of(settings: &VerifySettings, evidence: Evidence<'_>) -> Self {
        let judged = judge(evidence);
        let queues = queues::judge(evidence);
        let counts = Counts::of(evidence);
        let takeovers = takeovers(evidence.history);
        let mut faults: BTreeMap<&'static str, usize> =
            settings.faults.iter().map(|kind| (kind.name(), 0)).collect();
        faults.extend(evidence.history.faults().iter().map(|(kind, count)| (kind.name(), *count)));
        Self {
            seed: settings.seed,
            brokers: settings.brokers,
            seconds: settings.duration.as_secs(),
            published: evidence.truth.messages.len(),
            acknowledged: count(evidence.history, |event| usize::from(matches!(event, Event::Stored { .. }))),
            delivered: count(evidence.history, |event| match event {
                Event::Delivered { messages, .. } => messages.len(),
                _ => 0,
            }),
            lost: counts.lost,
            duplicated_after_ack: counts.duplicated_after_ack,
            order_violations: counts.order_violations,
            overlaps: counts.overlaps,
            fenced: counts.fenced,
            takeovers: takeovers.len(),
            slow_takeovers: takeovers.iter().filter_map(Takeover::if_slow).collect(),
            takeover_ms: Spread::of(takeovers.iter().map(|takeover| takeover.time).collect()),
            faults,
            promises: judged.iter().map(|judged| (judged.number, judged.verdict.name())).collect(),
            queues: queues.iter().map(|(name, verdict)| (*name, verdict.name())).collect(),
            queue_violations: queues.iter().filter_map(queue_violation).collect(),
            figures: evidence.probes.figures.clone(),
            violations: judged.iter().filter_map(violation).collect(),
            judged,
        }
    }

    /// Whether every promise that was tried was held, and what queues add to them.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.queue_violations.is_empty()
    }
}

fn violation(judged: &Judged) -> Option<(usize, Vec<String>)> {
    match &judged.verdict {
        Verdict::Violated(violations) => Some((judged.number, violations.clone())),
        Verdict::Held | Verdict::NotTried => None,
    }
}

fn queue_violation((name, verdict): (&&'static str, &Verdict)) -> Option<(&'static str, Vec<String>)> {
    match verdict {
        Verdict::Violated(violations) => Some((*name, violations.clone())),
        Verdict::Held | Verdict::NotTried => None,
    }
}

fn count(history: &History, of: impl Fn(&Event) -> usize) -> usize {
    history.events().map(of).sum()
}

/// A lane of a broker that was struck down, until it had a holder again.
#[derive(Debug, Clone)]
struct Takeover {
    lane: LaneId,
    /// What has struck its broker.
    kind: FaultKind,
    began_at: Duration,
    time: Duration,
    /// Faults that were under way or fell meanwhile.
    meanwhile: Vec<&'static str>,
}

impl Takeover {
    fn if_slow(&self) -> Option<String> {
        let Self { lane, began_at, time, meanwhile, .. } = self;
        (*time > TAKEOVER_MAX).then(|| format!("{lane:?} at {began_at:?}: {time:?}; meanwhile {meanwhile:?}"))
    }
}

/// Lanes whose broker was struck down, and how long they were without a holder, as the tables say: a consumer that is frozen
/// sees its grant later. Outages of the database are excluded, and groups all of whose members were at that broker: their lanes
/// wait for a member.
fn takeovers(history: &History) -> Vec<Takeover> {
    let mut holders: HashMap<LaneId, (usize, i64)> = HashMap::new();
    let mut struck: HashMap<LaneId, (i64, Takeover)> = HashMap::new();
    let mut takeovers = Vec::new();
    let mut under_way: Vec<&'static str> = Vec::new();
    for entry in &history.entries {
        match &entry.event {
            Event::Granted { lane, term: (epoch, _), broker, .. } => {
                holders.insert(*lane, (*broker, *epoch));
            }
            Event::Held { lane, epoch } => {
                let is_later = struck.get(lane).is_some_and(|(before, _)| epoch > before);
                if !is_later {
                    continue;
                }
                if let Some((_, takeover)) = struck.remove(lane) {
                    takeovers.push(Takeover { time: entry.at - takeover.began_at, ..takeover });
                }
            }
            Event::Unmanned { group } => struck.retain(|lane, _| lane.group != *group),
            Event::FaultEnded { kind } => {
                under_way.retain(|name| *name != kind.name());
                if *kind == FaultKind::FreezeBroker {
                    struck.retain(|_, (_, takeover)| takeover.kind != *kind); // it came back before anybody had buried it
                }
            }
            Event::FaultBegan { kind, .. } if kind.is_outage() => struck.clear(),
            Event::FaultBegan { kind, broker } => {
                struck.values_mut().for_each(|(_, takeover)| takeover.meanwhile.push(kind.name()));
                if matches!(kind, FaultKind::KillBroker | FaultKind::FreezeBroker) {
                    let held = holders.iter().filter(|(_, (holder, _))| Some(*holder) == *broker);
                    struck.extend(held.map(|(lane, (_, epoch))| {
                        (*lane, (*epoch, Takeover::new(*lane, *kind, entry.at, &under_way)))
                    }));
                }
                under_way.push(kind.name());
            }
            _ => {}
        }
    }
    takeovers
}

impl Takeover {
    fn new(lane: LaneId, kind: FaultKind, began_at: Duration, under_way: &[&'static str]) -> Self {
        Self { lane, kind, began_at, time: Duration::ZERO, meanwhile: under_way.to_vec() }
    }
}
