//! Frames of subscriptions that select their topics: by names, by a pattern, or by labels.
//!
//! Such a subscription has a number of its own, for credit and for leaving; each topic that it joins gets another one, under
//! which its lanes, batches and acks are as in any subscription.

use serde::{Deserialize, Serialize};

use super::broker_frames::Fault;
use super::client_frames::{BatchOptions, WantedSettings};
use super::group_settings::GroupSettings;
use super::members;
use super::shared::{CreditGrant, Start};
use crate::labels::Labels;
use crate::selection::Selection;

/// The first number of topics that subscriptions have selected; those of other subscriptions are below.
pub const TOPIC_NUMBERS_FROM: u32 = 1 << 31;

/// Joins a group on every topic that is selected, now and later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// Repeated in `selected`.
    pub id: u64,
    /// The name of the group, on each of the topics.
    pub group: String,
    /// These topics; all of them exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<String>,
    /// Topics whose names match: `*` stands for any characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Topics that have all of these labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Where a new group begins on a topic that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// What is accepted to begin with, from all topics together.
    #[serde(deserialize_with = "members::required")]
    pub credit: CreditGrant,
    /// How to cut batches.
    #[serde(default, deserialize_with = "members::optional", skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchOptions>,
    /// Settings of the groups.
    #[serde(default, deserialize_with = "members::optional", skip_serializing_if = "Option::is_none")]
    pub settings: Option<WantedSettings>,
}

impl Select {
    /// What the types alone cannot say: the field at fault and a sentence.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match (&self.start, &self.settings) {
            (Some(Start::Offset(..0)), _) => Err(("start.offset", "offset must not be negative")),
            (_, Some(WantedSettings { backoff_factor: Some(factor), .. })) if !factor.is_finite() => {
                Err(("settings.backoff_factor", "backoff_factor must be a finite number"))
            }
            (_, _) => Ok(()),
        }
    }

    /// What it selects.
    pub fn selection(&self) -> Selection {
        Selection { topics: self.topics.clone(), pattern: self.pattern.clone(), labels: self.labels.clone() }
    }
}

/// The session selects topics; each that it joins is told by `topic_joined`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selected {
    /// Of `select`.
    pub id: u64,
    /// The number for credit and for leaving.
    pub subscription: u32,
    /// The name of the groups.
    pub group: String,
    /// How many topics are selected now.
    pub topics: u32,
    /// What a group that is made has; of those that exist, the one with the shortest ack deadline.
    pub settings: GroupSettings,
}

/// A topic takes part in a subscription that selects it. Comes before its first lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicJoined {
    /// The number of the subscription that selects it.
    pub selection: u32,
    /// The number of the topic in it: its lanes are told, acknowledged and drained under this one.
    pub subscription: u32,
    /// The group.
    pub group: String,
    /// Its topic.
    pub topic: String,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// The group's settings, all of them.
    pub settings: GroupSettings,
}

/// A topic no longer takes part, or cannot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicLeft {
    /// The number of the subscription that selects it, or did.
    pub selection: u32,
    /// The number that it had; absent: it could not join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<u32>,
    /// The topic.
    pub topic: String,
    /// `deleted`, `unselected`, `group_deleted` or `refused`.
    pub reason: String,
    /// With `refused`: why. It is tried again.
    #[serde(default, deserialize_with = "members::optional", skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}
