//! How far groups are behind, for `/metrics`: held lanes and those that nobody holds alike; and what is parked and scheduled.
//!
//! One broker tells it for all, the eldest that lives, so that a sum over brokers is right and the database is asked once.
//! `tasks::lag` looks and puts the newest report here; a scrape only reads it. The others report nothing.
//!
//! Cardinality: at most [`LAG_LANES_MAX`] lanes have series of their own, those that are furthest behind; the others are in
//! the sums of their groups, and counted as left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::limits::LAG_LANES_MAX;
use crate::store::overview::{LaneOverview, LaneState};
use crate::store::parked::ParkedSum;
use crate::store::schedules::ScheduledSum;

/// A lane of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    topic: String,
    group: String,
    partition: u32,
}

/// The lanes of a group that somebody holds, or those that nobody does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct GroupLabels {
    topic: String,
    group: String,
    held: &'static str,
}

/// In which state lanes are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// How far something is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Behind {
    messages: i64,
    seconds: f64,
}

/// What one look has found.
#[derive(Debug, Default, PartialEq)]
pub struct Report {
    lanes: Vec<(LaneLabels, Behind)>,
    groups: BTreeMap<GroupLabels, Behind>,
    states: BTreeMap<StateLabels, i64>,
    left_out: i64,
    parked: Vec<ParkedSum>,
    scheduled: Vec<ScheduledSum>,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ParkedLabels {
    topic: String,
    group: String,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TopicLabels {
    topic: String,
}

impl Report {
    /// With what waits for its time, topic by topic.
    pub fn with_scheduled(self, scheduled: Vec<ScheduledSum>) -> Self {
        Self { scheduled, ..self }
    }

    /// With what is parked, group by group.
    pub fn with_parked(self, parked: Vec<ParkedSum>) -> Self {
        Self { parked, ..self }
    }

    /// `unseen`: lanes that were too many to be looked at.
    pub fn new(mut lanes: Vec<LaneOverview>, unseen: usize) -> Self {
        let mut report = Self::default();
        for lane in &lanes {
            let is_held = lane.holder.is_some() || lane.state == LaneState::Popped;
            let held = if is_held { "true" } else { "false" };
            let labels = GroupLabels { topic: lane.topic.clone(), group: lane.group.clone(), held };
            let group = report.groups.entry(labels).or_default();
            group.messages += lane.lag;
            group.seconds = group.seconds.max(lane.lag_seconds);
            *report.states.entry(StateLabels { state: word(lane.state) }).or_default() += 1;
        }
        lanes.sort_by_key(|lane| std::cmp::Reverse(lane.lag));
        report.left_out = (lanes.len().saturating_sub(LAG_LANES_MAX) + unseen) as i64;
        lanes.truncate(LAG_LANES_MAX);
        report.lanes = lanes.into_iter().map(labelled).collect();
        report
    }
}

fn labelled(lane: LaneOverview) -> (LaneLabels, Behind) {
    let behind = Behind { messages: lane.lag, seconds: lane.lag_seconds };
    (LaneLabels { topic: lane.topic, group: lane.group, partition: lane.partition }, behind)
}

fn word(state: LaneState) -> &'static str {
    match state {
        LaneState::Free => "free",
        LaneState::Waiting => "waiting",
        LaneState::Draining => "draining",
        LaneState::Blocked => "blocked",
        LaneState::Suspect => "suspect",
        LaneState::Held => "held",
        LaneState::Popped => "popped",
    }
}

/// The newest report of this broker, if it is the one that reports. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Lag {
    newest: Arc<Mutex<Option<Arc<Report>>>>,
}

impl Lag {
    /// Replaces the report; `None`: another broker tells it.
    pub fn set(&self, report: Option<Report>) {
        *self.newest.lock() = report.map(Arc::new);
    }

    fn newest(&self) -> Option<Arc<Report>> {
        self.newest.lock().clone()
    }
}

impl Collector for Lag {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let Some(report) = self.newest() else { return Ok(()) };
        let mut of = |name, help, samples: &mut dyn FnMut(&mut Samples<'_>) -> std::fmt::Result| {
            samples(&mut Samples { encoder: encoder.encode_descriptor(name, help, None, MetricType::Gauge)? })
        };
        of("lane_lag_messages", "Messages that a group has not done in a partition", &mut |samples| {
            report.lanes.iter().try_for_each(|(lane, behind)| samples.add(lane, behind.messages))
        })?;
        of("lane_lag_seconds", "How long the first of them has been waiting", &mut |samples| {
            report.lanes.iter().try_for_each(|(lane, behind)| samples.add(lane, behind.seconds))
        })?;
        of(
            "group_lag_messages",
            "Messages that a group has not done, by whether somebody holds them",
            &mut |samples| {
                report.groups.iter().try_for_each(|(group, behind)| samples.add(group, behind.messages))
            },
        )?;
        of("group_lag_seconds", "How long the first of them has been waiting", &mut |samples| {
            report.groups.iter().try_for_each(|(group, behind)| samples.add(group, behind.seconds))
        })?;
        of("group_lanes", "Lanes of all groups and brokers, by state", &mut |samples| {
            report.states.iter().try_for_each(|(state, lanes)| samples.add(state, *lanes))
        })?;
        let parked = |sum: &ParkedSum| ParkedLabels { topic: sum.topic.clone(), group: sum.group.clone() };
        of("group_parked_keys", "Keys that a group has parked", &mut |samples| {
            report.parked.iter().try_for_each(|sum| samples.add(&parked(sum), sum.keys))
        })?;
        of("group_parked_messages", "Messages that stand aside with them", &mut |samples| {
            report.parked.iter().try_for_each(|sum| samples.add(&parked(sum), sum.messages))
        })?;
        of("topic_scheduled_messages", "Messages of a topic that wait for their time", &mut |samples| {
            let labels = |sum: &ScheduledSum| TopicLabels { topic: sum.topic.clone() };
            report.scheduled.iter().try_for_each(|sum| samples.add(&labels(sum), sum.messages))
        })?;
        of("lag_lanes_left_out", "Lanes that have no series of their own", &mut |samples| {
            samples.encoder.encode_gauge(&report.left_out)
        })
    }
}

/// Where the samples of one gauge go.
struct Samples<'a> {
    encoder: prometheus_client::encoding::MetricEncoder<'a>,
}

impl Samples<'_> {
    fn add(&mut self, labels: &impl EncodeLabelSet, value: impl EncodeGaugeValue) -> std::fmt::Result {
        ConstGauge::new(value).encode(self.encoder.encode_family(labels)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Offset, SessionId};

    fn lane(partition: u32, lag: i64, holder: Option<SessionId>) -> LaneOverview {
        LaneOverview {
            topic: "orders".into(),
            group: "billing".into(),
            partition,
            epoch: Epoch(1),
            state: if holder.is_some() { LaneState::Held } else { LaneState::Free },
            holder,
            broker_id: None,
            wanted: holder,
            committed: Offset(0),
            next_offset: Offset(lag),
            lag,
            lag_seconds: lag as f64 / 2.0,
        }
    }

    #[test]
    fn lanes_beyond_the_bound_are_in_the_sums_and_counted_as_left_out() {
        let holder = Some(SessionId(uuid::Uuid::new_v4()));
        let mut lanes: Vec<_> = (0..LAG_LANES_MAX as u32).map(|number| lane(number, 1, holder)).collect();
        lanes.push(lane(9_000, 0, holder));
        lanes.push(lane(9_001, 7, None));
        let report = Report::new(lanes, 3);
        assert_eq!(report.lanes.len(), LAG_LANES_MAX);
        assert_eq!(report.left_out, 2 + 3);
        assert_eq!(report.lanes[0].0.partition, 9_001, "the furthest behind is never left out");
        let sums: Vec<_> =
            report.groups.iter().map(|(group, behind)| (group.held, behind.messages)).collect();
        assert_eq!(sums, [("false", 7), ("true", LAG_LANES_MAX as i64)]);
        assert_eq!(report.groups.values().map(|behind| behind.seconds).collect::<Vec<_>>(), [3.5, 0.5]);
    }
}
