//! Subscriptions of a session that select their topics: begun, and taken up again after they were at another broker.

use std::collections::HashMap;

use laneway_client::wire::{ErrorFrame, Select};
use laneway_client::{ErrorCode, GroupName};

use super::fault::Refusal;
use super::members::{GroupMember, Way};
use crate::broker::Broker;
use crate::broker::groups::Terms;
use crate::broker::selections::{Numbers, Owner, SelectionTerms};
use crate::store::sessions::Membership;

/// Begins a selection.
pub(super) async fn begin(
    broker: Broker,
    number: u32,
    select: Select,
    owner: Owner,
) -> Result<GroupMember, Refusal> {
    let group = select.group.clone();
    if let Err(error) = GroupName::new(group.clone()) {
        return Err(Refusal::new(ErrorCode::InvalidGroupName, error.to_string()).with_field("group"));
    }
    let handle = broker.selections.begin(number, select, owner).await?;
    Ok(GroupMember { number, group, way: Way::Selection(handle) })
}

/// What a session had elsewhere: subscriptions to single topics, and selections with the numbers of their topics.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub single: Vec<Membership>,
    /// By the number of the selection: topics and their numbers.
    pub of_selections: HashMap<u32, HashMap<String, u32>>,
}

pub(super) fn sort(memberships: Vec<Membership>) -> Sorted {
    let mut sorted = Sorted::default();
    for membership in memberships {
        match serde_json::from_str(&membership.terms) {
            Ok(Terms { number, selection: Some(selection), .. }) => {
                sorted.of_selections.entry(selection).or_default().insert(membership.topic, number);
            }
            // What cannot be read is told where it is made again.
            Ok(Terms { selection: None, .. }) | Err(_) => sorted.single.push(membership),
        }
    }
    sorted
}

/// Takes a selection up again.
pub(super) async fn adopt(
    broker: &Broker,
    terms: &str,
    owner: Owner,
    of_selections: &HashMap<u32, HashMap<String, u32>>,
) -> Result<GroupMember, Box<ErrorFrame>> {
    let terms: SelectionTerms = serde_json::from_str(terms).map_err(|error| {
        tracing::error!(%error, "the terms of a selection cannot be read");
        let detail = "the terms of a subscription could not be read: subscribe again";
        Box::new(ErrorFrame::new(ErrorCode::Internal, detail))
    })?;
    let (number, group) = (terms.number, terms.group.clone());
    let known = of_selections.get(&number).cloned().unwrap_or_default();
    match broker.selections.adopt(terms, owner, known).await {
        Ok(handle) => Ok(GroupMember { number, group, way: Way::Selection(handle) }),
        Err(error) => {
            let frame = Refusal::from(error).into_frame(None);
            Err(Box::new(ErrorFrame { subscription: Some(number), ..frame }))
        }
    }
}

/// Where the numbers of the topics of a session come from: the same source for all its selections.
pub(super) fn numbers<'a>(members: impl Iterator<Item = &'a GroupMember>) -> Numbers {
    let of = |member: &GroupMember| match &member.way {
        Way::Selection(selection) => Some(selection.numbers().clone()),
        Way::Group { .. } => None,
    };
    members.filter_map(of).next().unwrap_or_default()
}
