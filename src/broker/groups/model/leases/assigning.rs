//! What `assign` may decide about a group, whatever its sessions and lanes are called.

use std::collections::HashMap;

use uuid::Uuid;

use super::world::{LANES, SESSIONS, World};
use crate::broker::groups::assignment::assign;
use crate::ids::{Epoch, PartitionId, SessionId};
use crate::store::groups::GroupView;
use crate::store::lanes::LaneRow;

/// The wanted session of each lane.
pub type Wanted = [Option<usize>; LANES];

/// The orders of three session ids.
const ORDERS: [[usize; SESSIONS]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// What a decision depends on: holder, wanted and avoided per lane, and who is a member.
type Given = ([[Option<usize>; 3]; LANES], [bool; SESSIONS]);

/// Decisions that were made before.
#[derive(Default)]
pub struct Assignments(HashMap<Given, Vec<Wanted>>);

impl Assignments {
    /// Every decision that `assign` comes to, over all orders of members and lanes.
    pub fn of(&mut self, world: &World, members: [bool; SESSIONS]) -> &[Wanted] {
        let lanes = world.rows.map(|row| [row.holder, row.wanted, row.avoided]);
        self.0.entry((lanes, members)).or_insert_with(|| {
            let mut decisions: Vec<Wanted> = Vec::new();
            for ids in ORDERS {
                for first in 0..LANES {
                    decisions.push(decide(world, members, ids, first));
                }
            }
            decisions.sort_unstable();
            decisions.dedup();
            decisions
        })
    }
}

fn decide(world: &World, members: [bool; SESSIONS], ids: [usize; SESSIONS], first: usize) -> Wanted {
    let id = |session: usize| SessionId(Uuid::from_u128(ids[session] as u128));
    let number = |id: SessionId| ids.iter().position(|place| *place as u128 == id.0.as_u128());
    let lane = |place: usize| {
        let row = &world.rows[place ^ first];
        LaneRow {
            partition_id: PartitionId(place as i64),
            number: place as u32,
            epoch: Epoch(1),
            holder: row.holder.map(id),
            holder_broker: None,
            wanted: row.wanted.map(id),
            wanted_lives: row.wanted.is_some_and(|session| members[session]),
            avoided: row.avoided.map(id),
            drain: None,
            pop: crate::store::lanes::PopState::None,
        }
    };
    let mut sorted: Vec<SessionId> = (0..SESSIONS).filter(|session| members[*session]).map(id).collect();
    sorted.sort_unstable();
    let view = GroupView { lanes: (0..LANES).map(lane).collect(), members: sorted, away: Vec::new() };
    let mut wanted = world.rows.map(|row| row.wanted);
    for want in assign(&view) {
        wanted[want.partition_id.0 as usize ^ first] = want.session_id.and_then(number);
    }
    wanted
}
