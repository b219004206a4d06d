//! Who gets which lane: balanced, and moving only what must move. Pure.
//!
//! Every member gets the same number of lanes, give or take one. A lane stays with its holder while that is fair. With
//! more members than lanes the rest wait. A lane that somebody has let time out goes to somebody else, if there is anybody. A
//! member that has lost its connection keeps what it holds, up to its share, and gets nothing more while others are there.

use std::collections::HashMap;

use crate::ids::SessionId;
use crate::store::groups::{GroupView, Want};
use crate::store::lanes::LaneRow;

/// What has to be written down: the lanes whose wanted session changes.
pub fn assign(view: &GroupView) -> Vec<Want> {
    let chosen = choose(view);
    let lanes = view.lanes.iter().zip(chosen);
    let changed = lanes.filter(|(lane, session_id)| lane.wanted != *session_id);
    changed.map(|(lane, session_id)| Want { partition_id: lane.partition_id, session_id }).collect()
}

/// The session of each lane, in the order of the lanes.
fn choose(view: &GroupView) -> Vec<Option<SessionId>> {
    let (lanes, members) = (&view.lanes, &view.members);
    if members.is_empty() {
        return vec![None; lanes.len()];
    }
    let here: Vec<SessionId> = members.iter().copied().filter(|member| !view.away.contains(member)).collect();
    if here.is_empty() || here.len() == members.len() {
        return share(&lanes.iter().collect::<Vec<_>>(), members);
    }
    let share_max = lanes.len().div_ceil(members.len());
    let mut kept: HashMap<SessionId, usize> = HashMap::new();
    let keeps = |lane: &LaneRow, kept: &mut HashMap<SessionId, usize>| {
        let holder = lane.holder.filter(|holder| view.away.contains(holder) && members.contains(holder))?;
        let count = kept.entry(holder).or_default();
        (*count < share_max).then(|| {
            *count += 1;
            holder
        })
    };
    let mut chosen: Vec<Option<SessionId>> = lanes.iter().map(|lane| keeps(lane, &mut kept)).collect();
    let rest: Vec<usize> = (0..lanes.len()).filter(|place| chosen[*place].is_none()).collect();
    let shared = share(&rest.iter().map(|place| &lanes[*place]).collect::<Vec<_>>(), &here);
    for (place, session_id) in rest.into_iter().zip(shared) {
        chosen[place] = session_id;
    }
    chosen
}

/// The session of each lane among members that are there; at least one.
fn share(lanes: &[&LaneRow], members: &[SessionId]) -> Vec<Option<SessionId>> {
    let place: HashMap<SessionId, usize> =
        members.iter().enumerate().map(|(place, session_id)| (*session_id, place)).collect();
    let mut chosen: Vec<Option<usize>> = lanes.iter().map(|lane| stays(lane, &place)).collect();
    let quotas = quotas(&chosen, lanes.len(), members.len());
    let mut counts = vec![0; members.len()];
    for slot in &mut chosen {
        match *slot {
            Some(member) if counts[member] < quotas[member] => counts[member] += 1,
            Some(_) | None => *slot = None,
        }
    }
    for (lane, slot) in lanes.iter().zip(&mut chosen) {
        if slot.is_none() {
            let avoided = lane.avoided.and_then(|session_id| place.get(&session_id).copied());
            let member = least_loaded(&counts, &quotas, avoided);
            counts[member] += 1;
            *slot = Some(member);
        }
    }
    chosen.into_iter().map(|member| member.map(|member| members[member])).collect()
}

/// Who has the lane now, or is about to: the member that it should stay with. A member that let it time out is nobody.
fn stays(lane: &LaneRow, place: &HashMap<SessionId, usize>) -> Option<usize> {
    let living = |session_id: SessionId| place.get(&session_id).copied();
    let others = place.len() > 1;
    let fair =
        |session_id: &SessionId| !(others && lane.holder.is_none() && lane.avoided == Some(*session_id));
    let wanted = lane.wanted.filter(fair).and_then(living);
    wanted.or_else(|| lane.holder.and_then(living))
}

/// How many lanes each member may have: those that have most now get the larger shares, so that least moves.
fn quotas(chosen: &[Option<usize>], lanes: usize, members: usize) -> Vec<usize> {
    let mut have = vec![0; members];
    chosen.iter().flatten().for_each(|member| have[*member] += 1);
    let (share, larger) = (lanes / members, lanes % members);
    let mut order: Vec<usize> = (0..members).collect();
    order.sort_by_key(|member| (std::cmp::Reverse(have[*member]), *member));
    let mut quotas = vec![share; members];
    order.into_iter().take(larger).for_each(|member| quotas[member] += 1);
    quotas
}

/// The member furthest below its share, and not the avoided one unless it is alone.
fn least_loaded(counts: &[usize], quotas: &[usize], avoided: Option<usize>) -> usize {
    let candidates = (0..counts.len()).filter(|member| counts.len() == 1 || Some(*member) != avoided);
    let missing = |member: usize| quotas[member] as i64 - counts[member] as i64;
    candidates.max_by_key(|member| (missing(*member), std::cmp::Reverse(*member))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::ids::{Epoch, PartitionId};

    fn session(number: u128) -> SessionId {
        SessionId(Uuid::from_u128(number))
    }

    fn lane(number: u32, holder: Option<u128>) -> LaneRow {
        let holder = holder.map(session);
        let partition_id = PartitionId(i64::from(number));
        LaneRow {
            partition_id,
            number,
            epoch: Epoch(1),
            holder,
            holder_broker: None,
            wanted: holder,
            wanted_lives: true,
            avoided: None,
            drain: None,
            pop: crate::store::lanes::PopState::None,
        }
    }

    fn view(holders: &[Option<u128>], members: &[u128]) -> GroupView {
        let lanes = holders.iter().enumerate().map(|(number, holder)| lane(number as u32, *holder)).collect();
        let members = members.iter().map(|number| session(*number)).collect();
        GroupView { lanes, members, away: Vec::new() }
    }

    proptest! {
        #[test]
        fn shares_are_fair_and_only_what_must_move_moves(
            holders in prop::collection::vec(prop::option::of(0u128..6), 1..40),
            members in prop::collection::btree_set(0u128..6, 1..6),
        ) {
            let members: Vec<u128> = members.into_iter().collect();
            let view = view(&holders, &members);
            let chosen = choose(&view);
            let count = |member: u128| chosen.iter().filter(|owner| **owner == Some(session(member))).count();
            let counts: Vec<usize> = members.iter().map(|member| count(*member)).collect();
            prop_assert_eq!(counts.iter().sum::<usize>(), holders.len());
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            let kept = |member: u128| holders.iter().filter(|holder| **holder == Some(member)).count();
            let moved = holders.iter().zip(&chosen).filter(|(old, new)| old.map(session) != **new).count();
            let share = holders.len() / members.len();
            let larger = holders.len() % members.len();
            let mut have: Vec<usize> = members.iter().map(|member| kept(*member)).collect();
            have.sort_unstable_by(|a, b| b.cmp(a));
            let must_stay: usize =
                have.iter().enumerate().map(|(place, n)| (*n).min(share + usize::from(place < larger))).sum();
            prop_assert_eq!(moved, holders.len() - must_stay);
            prop_assert_eq!(assign(&GroupView { lanes: settled(&view.lanes, &chosen), ..view.clone() }), vec![]);
        }
    }

    fn settled(lanes: &[LaneRow], chosen: &[Option<SessionId>]) -> Vec<LaneRow> {
        let lanes = lanes.iter().zip(chosen);
        lanes
            .map(|(lane, session_id)| LaneRow { holder: *session_id, wanted: *session_id, ..*lane })
            .collect()
    }

    #[test]
    fn a_member_that_is_away_keeps_what_it_holds_and_gets_nothing_more() {
        let mut view = view(&[Some(1), Some(1), None, Some(2), None, None], &[1, 2, 3]);
        view.away = vec![session(1)];
        view.lanes[2].wanted = Some(session(1));
        let chosen = choose(&view);
        let count = |member: u128| chosen.iter().filter(|owner| **owner == Some(session(member))).count();
        assert_eq!((count(1), count(2), count(3)), (2, 2, 2));
        assert_eq!(chosen[..2], [Some(session(1)), Some(session(1))]);
        assert_ne!(chosen[2], Some(session(1)), "what is free does not wait for it");
        view.away = vec![session(1), session(2), session(3)];
        assert!(choose(&view).iter().all(Option::is_some), "if nobody is there, somebody will come back");
    }

    #[test]
    fn more_members_than_lanes_leave_the_rest_waiting() {
        let chosen = choose(&view(&[None, None], &[1, 2, 3]));
        assert_eq!(chosen, [Some(session(1)), Some(session(2))]);
    }

    #[test]
    fn a_lane_that_timed_out_goes_to_somebody_else_if_there_is_anybody() {
        let mut view = view(&[None], &[1, 2]);
        view.lanes[0].avoided = Some(session(1));
        view.lanes[0].wanted = Some(session(1));
        assert_eq!(choose(&view), [Some(session(2))]);
        view.members.pop();
        assert_eq!(choose(&view), [Some(session(1))]);
    }
}
