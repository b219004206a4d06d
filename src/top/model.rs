//! Rates and rows: what two samples say together. Pure; time comes with the samples.
//!
//! A rate is the growth of offsets between two samples. What was not there before has none yet, and what goes back, such as
//! a group that seeks, counts as standing still.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use laneway_client::group_api::{BrokerDescription, GroupDescription, LaneDescription, LaneState};
use serde::Serialize;

use super::sample::{LeftOut, Sample, TopicSample};
use crate::limits::{LANES_PAGE_MAX, TOP_GROUPS_MAX, TOP_LANE_PAGES_MAX, TOP_TOPICS_MAX};

/// Everything that is shown, and the document of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct View {
    pub topics: Vec<TopicRow>,
    pub groups: Vec<GroupRow>,
    pub lanes: LaneCounts,
    pub brokers: Vec<BrokerRow>,
    /// What is not all there, in words.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicRow {
    pub topic: String,
    pub partitions: usize,
    /// The sum of its next offsets: all that was ever published.
    pub published: i64,
    /// Messages per second; absent in the first sample.
    pub rate: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupRow {
    pub topic: String,
    pub group: String,
    pub members: u32,
    /// Messages per second that it commits; absent in the first sample.
    pub rate: Option<f64>,
    pub lag_messages: i64,
    /// How long the first waiting message of its slowest lane has been waiting.
    pub lag_seconds: f64,
}

/// How many lanes are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LaneCounts {
    pub held: u64,
    pub popped: u64,
    pub suspect: u64,
    pub blocked: u64,
    pub draining: u64,
    pub waiting: u64,
    pub free: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BrokerRow {
    pub broker: String,
    pub alive: bool,
    /// How long it lives without another heartbeat; negative if it is overdue.
    pub ttl_seconds: f64,
    pub sessions: u64,
    pub lanes: u64,
}

/// In which order topics and groups stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    #[default]
    Name,
    Rate,
    Lag,
}

impl Sort {
    pub const fn next(self) -> Self {
        match self {
            Sort::Name => Sort::Rate,
            Sort::Rate => Sort::Lag,
            Sort::Lag => Sort::Name,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Rate => "rate",
            Sort::Lag => "lag",
        }
    }
}

impl View {
    /// What a sample shows beside the one before it.
    pub fn new(before: Option<&Sample>, sample: &Sample) -> Self {
        let before = before.map(Before::new);
        let elapsed = before.as_ref().map(|before| sample.at.saturating_duration_since(before.sample.at));
        let topics = sample.topics.iter().map(|topic| topic_row(topic, before.as_ref(), elapsed));
        let lanes = LanesOfGroups::new(&sample.lanes);
        let groups = sample.groups.iter().map(|group| group_row(group, &lanes, before.as_ref(), elapsed));
        Self {
            topics: topics.collect(),
            groups: groups.collect(),
            lanes: LaneCounts::of(&sample.lanes),
            brokers: sample.brokers.iter().map(|broker| broker_row(broker, sample.now)).collect(),
            notes: notes(sample.left_out),
        }
    }

    /// Puts the busiest, or those furthest behind, first; equals stay in the order of their names.
    pub fn sort(&mut self, by: Sort) {
        match by {
            Sort::Name => {
                self.topics.sort_by(|a, b| a.topic.cmp(&b.topic));
                self.groups.sort_by(|a, b| (&a.topic, &a.group).cmp(&(&b.topic, &b.group)));
            }
            Sort::Rate => {
                self.topics.sort_by(|a, b| descending(a.rate, b.rate));
                self.groups.sort_by(|a, b| descending(a.rate, b.rate));
            }
            Sort::Lag => self.groups.sort_by_key(|group| std::cmp::Reverse(group.lag_messages)),
        }
    }
}

fn descending(a: Option<f64>, b: Option<f64>) -> std::cmp::Ordering {
    b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0))
}

/// The sample before, by name.
struct Before<'a> {
    sample: &'a Sample,
    topics: HashMap<&'a str, &'a TopicSample>,
    lanes: LanesOfGroups<'a>,
}

impl<'a> Before<'a> {
    fn new(sample: &'a Sample) -> Self {
        let topics = sample.topics.iter().map(|topic| (topic.name.as_str(), topic)).collect();
        Self { sample, topics, lanes: LanesOfGroups::new(&sample.lanes) }
    }
}

/// Lanes by the topic and the name of their group.
struct LanesOfGroups<'a>(HashMap<&'a str, HashMap<&'a str, Vec<&'a LaneDescription>>>);

impl<'a> LanesOfGroups<'a> {
    fn new(lanes: &'a [LaneDescription]) -> Self {
        let mut topics: HashMap<&'a str, HashMap<&'a str, Vec<&'a LaneDescription>>> = HashMap::new();
        for lane in lanes {
            topics.entry(&lane.topic).or_default().entry(&lane.group).or_default().push(lane);
        }
        Self(topics)
    }

    fn of(&self, group: &GroupDescription) -> &[&'a LaneDescription] {
        let groups = self.0.get(group.topic.as_str());
        groups.and_then(|groups| groups.get(group.group.as_str())).map_or(&[], Vec::as_slice)
    }
}

fn topic_row(topic: &TopicSample, before: Option<&Before<'_>>, elapsed: Option<Duration>) -> TopicRow {
    let old = before.and_then(|before| before.topics.get(topic.name.as_str()));
    let grown = old.map(|old| {
        let since = |(number, next): (&u32, &i64)| next - old.next_offsets.get(number).unwrap_or(&0);
        topic.next_offsets.iter().map(|partition| since(partition).max(0)).sum::<i64>()
    });
    TopicRow {
        topic: topic.name.clone(),
        partitions: topic.next_offsets.len(),
        published: topic.next_offsets.values().sum(),
        rate: rate(grown, elapsed),
    }
}

fn group_row(
    group: &GroupDescription,
    lanes: &LanesOfGroups<'_>,
    before: Option<&Before<'_>>,
    elapsed: Option<Duration>,
) -> GroupRow {
    let now = lanes.of(group);
    let old = before.map(|before| before.lanes.of(group)).filter(|old| !old.is_empty());
    let grown = old.map(|old| {
        let old: HashMap<u32, i64> = old.iter().map(|lane| (lane.partition, lane.committed_offset)).collect();
        let since = |lane: &LaneDescription| old.get(&lane.partition).map(|old| lane.committed_offset - old);
        now.iter().filter_map(|lane| since(lane)).map(|grown| grown.max(0)).sum::<i64>()
    });
    GroupRow {
        topic: group.topic.clone(),
        group: group.group.clone(),
        members: group.members,
        rate: rate(grown, elapsed),
        lag_messages: group.lag_messages,
        lag_seconds: now.iter().map(|lane| lane.lag_seconds).fold(0.0, f64::max),
    }
}

/// Per second; none for samples that are the same moment.
fn rate(grown: Option<i64>, elapsed: Option<Duration>) -> Option<f64> {
    let (grown, seconds) = (grown?, elapsed?.as_secs_f64());
    (seconds > 0.0).then(|| grown as f64 / seconds)
}

fn broker_row(broker: &BrokerDescription, now: Timestamp) -> BrokerRow {
    let expires_at: Option<Timestamp> = broker.expires_at.parse().ok();
    let ttl_seconds = expires_at.map_or(0.0, |at| at.duration_since(now).as_secs_f64());
    let alive = broker.dead_at.is_none();
    BrokerRow {
        broker: broker.broker.clone(),
        alive,
        ttl_seconds: if alive { ttl_seconds } else { 0.0 },
        sessions: broker.sessions,
        lanes: broker.lanes,
    }
}

impl LaneCounts {
    fn of(lanes: &[LaneDescription]) -> Self {
        let mut counts = Self::default();
        for lane in lanes {
            *match lane.state {
                LaneState::Held => &mut counts.held,
                LaneState::Popped => &mut counts.popped,
                LaneState::Suspect => &mut counts.suspect,
                LaneState::Blocked => &mut counts.blocked,
                LaneState::Draining => &mut counts.draining,
                LaneState::Waiting => &mut counts.waiting,
                LaneState::Free => &mut counts.free,
            } += 1;
        }
        counts
    }

    /// By name, the healthy ones first.
    pub fn by_state(&self) -> [(&'static str, u64); 7] {
        [
            ("held", self.held),
            ("popped", self.popped),
            ("suspect", self.suspect),
            ("blocked", self.blocked),
            ("draining", self.draining),
            ("waiting", self.waiting),
            ("free", self.free),
        ]
    }
}

fn notes(left_out: LeftOut) -> Vec<String> {
    let lanes = u64::from(LANES_PAGE_MAX) * TOP_LANE_PAGES_MAX as u64;
    let all = [
        (left_out.topics, format!("only the first {TOP_TOPICS_MAX} topics are shown")),
        (left_out.groups, format!("only the first {TOP_GROUPS_MAX} groups are shown")),
        (left_out.lanes, format!("only the first {lanes} lanes are counted, also in the rates of groups")),
    ];
    all.into_iter().filter(|(is_left_out, _)| *is_left_out).map(|(_, note)| note).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use laneway_client::wire::{GroupSettings, OnFailure};

    use super::*;

    fn sample(at: Instant) -> Sample {
        Sample {
            at,
            now: "2026-11-16T10:00:00Z".parse().unwrap(),
            topics: vec![],
            groups: vec![],
            lanes: vec![],
            brokers: vec![],
            left_out: LeftOut::default(),
        }
    }

    fn topic(name: &str, next: &[i64]) -> TopicSample {
        let next_offsets: BTreeMap<u32, i64> = (0..).zip(next.iter().copied()).collect();
        TopicSample { name: name.into(), next_offsets }
    }

    fn group(name: &str, lag_messages: i64) -> GroupDescription {
        let settings = GroupSettings {
            ack_deadline_ms: 1,
            max_attempts: 1,
            backoff_base_ms: 1,
            backoff_factor: 1.0,
            backoff_cap_ms: 1,
            on_failure: OnFailure::Skip,
            capacity: laneway_client::wire::GroupCapacity::Counted,
            delay_ms: 0,
            window_ms: 0,
            window_max_ms: 0,
            max_age_ms: 0,
            on_expiry: laneway_client::wire::OnExpiry::Evict,
            ordering: laneway_client::wire::GroupOrdering::Partition,
        };
        let (topic, group, created_at) = ("orders".into(), name.into(), String::new());
        GroupDescription { topic, group, members: 1, lag_messages, settings, created_at, paused_at: None }
    }

    fn lane(group: &str, partition: u32, committed_offset: i64, state: LaneState) -> LaneDescription {
        LaneDescription {
            topic: "orders".into(),
            group: group.into(),
            partition,
            epoch: 1,
            state,
            holder: None,
            broker: None,
            wanted: None,
            committed_offset,
            next_offset: 100,
            lag_messages: 0,
            lag_seconds: f64::from(partition),
        }
    }

    #[test]
    fn rates_are_growth_over_time_and_absent_at_first() {
        let start = Instant::now();
        let mut first = sample(start);
        first.topics = vec![topic("orders", &[10, 5])];
        assert_eq!(View::new(None, &first).topics[0].rate, None);
        let mut second = sample(start + Duration::from_secs(2));
        // It has grown by a partition, too. `fresh` has nothing to compare with, and `again` was made anew.
        second.topics = vec![topic("again", &[1]), topic("fresh", &[9]), topic("orders", &[14, 5, 4])];
        first.topics.push(topic("again", &[50]));
        let view = View::new(Some(&first), &second);
        let rates: Vec<Option<f64>> = view.topics.iter().map(|topic| topic.rate).collect();
        assert_eq!(rates, [Some(0.0), None, Some(4.0)]);
        assert_eq!((view.topics[2].partitions, view.topics[2].published), (3, 23));
        assert_eq!(View::new(Some(&second), &second).topics[2].rate, None, "the same moment has no rate");
    }

    #[test]
    fn groups_sum_their_lanes_and_a_seek_back_is_no_rate() {
        let start = Instant::now();
        let (mut first, mut second) = (sample(start), sample(start + Duration::from_millis(500)));
        first.lanes = vec![lane("a", 0, 10, LaneState::Held), lane("a", 1, 40, LaneState::Held)];
        second.lanes = vec![
            lane("a", 0, 15, LaneState::Held),
            lane("a", 1, 0, LaneState::Blocked),
            lane("b", 3, 7, LaneState::Free),
        ];
        second.groups = vec![group("a", 12), group("b", 30), group("c", 0)];
        let view = View::new(Some(&first), &second);
        let rows: Vec<_> =
            view.groups.iter().map(|row| (row.rate, row.lag_messages, row.lag_seconds)).collect();
        assert_eq!(rows, [(Some(10.0), 12, 1.0), (None, 30, 3.0), (None, 0, 0.0)]);
        let counts = LaneCounts { held: 1, blocked: 1, free: 1, ..LaneCounts::default() };
        assert_eq!(view.lanes, counts);
        assert_eq!(counts.by_state().iter().map(|(_, count)| count).sum::<u64>(), 3);
    }

    #[test]
    fn brokers_live_until_they_expire_or_are_dead() {
        let mut one = sample(Instant::now());
        let broker = |expires_at: &str, dead_at: Option<&str>| BrokerDescription {
            broker: "b".into(),
            started_at: "2026-11-16T09:00:00Z".into(),
            expires_at: expires_at.into(),
            dead_at: dead_at.map(str::to_owned),
            sessions: 1,
            lanes: 2,
        };
        one.brokers = vec![
            broker("2026-11-16T10:00:08Z", None),
            broker("2026-11-16T09:59:50Z", None),
            broker("2026-11-16T09:59:50Z", Some("2026-11-16T09:59:51Z")),
        ];
        let rows = View::new(None, &one).brokers;
        let lives: Vec<_> = rows.iter().map(|row| (row.alive, row.ttl_seconds)).collect();
        assert_eq!(lives, [(true, 8.0), (true, -10.0), (false, 0.0)]);
    }

    #[test]
    fn the_busiest_and_those_behind_come_first() {
        let start = Instant::now();
        let (mut first, mut second) = (sample(start), sample(start + Duration::from_secs(1)));
        first.topics = vec![topic("a", &[0]), topic("b", &[0])];
        second.topics = vec![topic("a", &[1]), topic("b", &[5]), topic("c", &[9])];
        second.groups = vec![group("x", 1), group("y", 3), group("z", 2)];
        let mut view = View::new(Some(&first), &second);
        let topics = |view: &View| view.topics.iter().map(|row| row.topic.clone()).collect::<Vec<_>>();
        let groups = |view: &View| view.groups.iter().map(|row| row.group.clone()).collect::<Vec<_>>();
        view.sort(Sort::Rate);
        assert_eq!(topics(&view), ["b", "a", "c"]);
        view.sort(Sort::Lag);
        assert_eq!(groups(&view), ["y", "z", "x"]);
        view.sort(Sort::Lag.next());
        assert_eq!(
            (topics(&view), groups(&view)),
            (["a", "b", "c"].map(str::to_owned).into(), ["x", "y", "z"].map(str::to_owned).into())
        );
    }

    #[test]
    fn what_is_left_out_is_said() {
        let mut one = sample(Instant::now());
        assert!(View::new(None, &one).notes.is_empty());
        one.left_out = LeftOut { topics: true, groups: true, lanes: true };
        let notes = View::new(None, &one).notes;
        assert_eq!(notes[..2], ["only the first 32 topics are shown", "only the first 100 groups are shown"]);
        assert!(notes[2].starts_with("only the first 4000 lanes are counted"), "{notes:?}");
    }
}
