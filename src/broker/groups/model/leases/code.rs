//! A state in 128 bits, the same for all states that differ only in names.
//!
//! Brokers, sessions and lanes have no order that means anything: session ids are random, and the assignment is explored for every order of
//! members and lanes. So of all the ways to name them, one is kept.

use super::world::{BROKERS, Broker, Grant, Home, LANES, Lease, Process, Row, SESSIONS, SLOTS, World};

/// A state, packed.
pub type Code = u128;

/// Whether names are kept as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    Kept,
    Forgotten,
}

pub fn code(world: &World, names: Names) -> Code {
    match names {
        Names::Kept => pack(world),
        Names::Forgotten => nameless(world),
    }
}

/// Brokers and lanes in the order of what can be said of them without names; where that is a tie, both orders are tried.
fn nameless(world: &World) -> Code {
    let mut worlds = [*world; 4];
    let mut count = 1;
    let (first, second) = (broker_key(world, 0), broker_key(world, 1));
    if first > second {
        worlds[0] = with_brokers_swapped(world);
    } else if first == second {
        worlds[1] = with_brokers_swapped(world);
        count = 2;
    }
    let (first, second) = (lane_key(world, 0), lane_key(world, 1));
    for place in 0..count {
        if first > second {
            worlds[place] = with_lanes_swapped(&worlds[place]);
        } else if first == second {
            worlds[count + place] = with_lanes_swapped(&worlds[place]);
        }
    }
    let count = if first == second { 2 * count } else { count };
    worlds[..count].iter().map(|world| pack(&with_sessions_sorted(world))).min().unwrap_or_default()
}

fn broker_key(world: &World, broker: usize) -> (Process, Lease, usize) {
    let Broker { process, lease, .. } = world.brokers[broker];
    (process, lease, world.sessions.iter().filter(|home| **home == Home::At(broker)).count())
}

/// The same whichever way round the brokers are.
fn lane_key(world: &World, lane: usize) -> usize {
    let Row { holder, wanted, avoided, committed } = world.rows[lane];
    let flags = [holder.is_some(), wanted.is_some(), avoided.is_some(), holder == wanted, wanted == avoided];
    let flags = flags.iter().fold(usize::from(committed), |bits, flag| bits << 1 | usize::from(*flag));
    let count = |grants: &[Option<Grant>], is: fn(&Grant) -> bool| {
        grants.iter().flatten().filter(|grant| is(grant)).count()
    };
    let (held, flushes) = (&world.held[lane], &world.flushes[lane]);
    let counts = [
        count(held, |_| true),
        count(held, |grant| grant.same_epoch),
        count(flushes, |_| true),
        count(flushes, |grant| grant.same_epoch),
    ];
    counts.iter().fold(flags, |bits, count| bits << 2 | count)
}

fn with_brokers_swapped(world: &World) -> World {
    let mut world = *world;
    world.brokers.swap(0, 1);
    for lane in 0..LANES {
        world.held[lane].swap(0, 1);
        world.flushes[lane].swap(0, 1);
    }
    for home in &mut world.sessions {
        if let Home::At(broker) = home {
            *broker = 1 - *broker;
        }
    }
    world
}

fn with_lanes_swapped(world: &World) -> World {
    let mut world = *world;
    world.rows.swap(0, 1);
    world.held.swap(0, 1);
    world.flushes.swap(0, 1);
    world
}

/// Sessions by everything that is known of them: where they are, and where they are named.
fn with_sessions_sorted(world: &World) -> World {
    let mut order: [(u32, usize); SESSIONS] =
        std::array::from_fn(|session| (signature(world, session), session));
    order.sort_unstable();
    let mut place = [0; SESSIONS];
    for (new, (_, old)) in order.iter().enumerate() {
        place[*old] = new;
    }
    let mut renamed = *world;
    for (new, (_, old)) in order.iter().enumerate() {
        renamed.sessions[new] = world.sessions[*old];
    }
    let rename = |session: &mut Option<usize>| *session = session.map(|session| place[session]);
    for lane in 0..LANES {
        let row = &mut renamed.rows[lane];
        rename(&mut row.holder);
        rename(&mut row.wanted);
        rename(&mut row.avoided);
        for grant in renamed.held[lane].iter_mut().chain(&mut renamed.flushes[lane]).flatten() {
            grant.session = if is_named(grant) { place[grant.session] } else { 0 };
        }
    }
    renamed
}

/// Whether it still matters whose a grant was: no fence lets a former epoch pass.
fn is_named(grant: &Grant) -> bool {
    grant.same_epoch || grant.passed
}

fn signature(world: &World, session: usize) -> u32 {
    let mut bits = match world.sessions[session] {
        Home::None => 0,
        Home::At(broker) => 1 + broker as u32,
        Home::Dangling => 3,
    };
    let mut add = |names: bool| bits = bits << 1 | u32::from(names);
    for lane in 0..LANES {
        let row = &world.rows[lane];
        add(row.holder == Some(session));
        add(row.wanted == Some(session));
        add(row.avoided == Some(session));
        for grant in world.held[lane].iter().chain(&world.flushes[lane]) {
            add(grant.is_some_and(|grant| is_named(&grant) && grant.session == session));
        }
    }
    bits
}

struct Packer(Code);

impl Packer {
    fn push(&mut self, value: usize, bits: u32) {
        self.0 = self.0 << bits | value as Code;
    }

    fn push_name(&mut self, session: Option<usize>) {
        self.push(session.unwrap_or(SESSIONS), 2);
    }

    fn push_grant(&mut self, grant: Option<&Grant>) {
        let Some(grant) = grant else { return self.push(0, 8) };
        let (session, done) = if is_named(grant) { (grant.session, grant.done) } else { (0, 0) };
        let flags = 1
            | usize::from(grant.same_epoch) << 1
            | usize::from(grant.ended) << 2
            | usize::from(grant.passed) << 3;
        self.push(flags | session << 4 | usize::from(done) << 6, 8);
    }
}

fn pack(world: &World) -> Code {
    let mut packer = Packer(0);
    for broker in &world.brokers {
        packer.push(broker.process as usize, 2);
        packer.push(broker.lease as usize, 2);
        packer.push(usize::from(broker.to_bury), 1);
    }
    for home in world.sessions {
        let value = match home {
            Home::None => 0,
            Home::At(broker) => 1 + broker,
            Home::Dangling => 3,
        };
        packer.push(value, 2);
    }
    for lane in 0..LANES {
        let Row { holder, wanted, avoided, committed } = world.rows[lane];
        [holder, wanted, avoided].into_iter().for_each(|name| packer.push_name(name));
        packer.push(usize::from(committed), 2);
        for grant in world.held[lane].iter().chain(&world.flushes[lane]) {
            packer.push_grant(grant.as_ref());
        }
    }
    packer.0
}

struct Unpacker(Code);

/// Reads what a [`Packer`] has written, from the last to the first.
impl Unpacker {
    fn pop(&mut self, bits: u32) -> usize {
        let value = self.0 & ((1 << bits) - 1);
        self.0 >>= bits;
        value as usize
    }

    fn pop_name(&mut self) -> Option<usize> {
        Some(self.pop(2)).filter(|session| *session < SESSIONS)
    }

    fn pop_grant(&mut self) -> Option<Grant> {
        let value = self.pop(8);
        let is = |bit: u32| value & (1 << bit) != 0;
        is(0).then(|| Grant {
            same_epoch: is(1),
            ended: is(2),
            passed: is(3),
            session: value >> 4 & 3,
            done: (value >> 6) as u8,
        })
    }
}

pub fn decode(code: Code) -> World {
    let mut from = Unpacker(code);
    let mut world = World::new();
    for lane in (0..LANES).rev() {
        (0..SLOTS).rev().for_each(|slot| world.flushes[lane][slot] = from.pop_grant());
        (0..BROKERS).rev().for_each(|broker| world.held[lane][broker] = from.pop_grant());
        let committed = from.pop(2) as u8;
        let (avoided, wanted, holder) = (from.pop_name(), from.pop_name(), from.pop_name());
        world.rows[lane] = Row { holder, wanted, avoided, committed };
    }
    for session in (0..SESSIONS).rev() {
        world.sessions[session] = match from.pop(2) {
            0 => Home::None,
            3 => Home::Dangling,
            broker => Home::At(broker - 1),
        };
    }
    for broker in (0..BROKERS).rev() {
        let to_bury = from.pop(1) == 1;
        let lease = [Lease::Trusted, Lease::Expired, Lease::Buried][from.pop(2)];
        let process = [Process::Up, Process::Frozen, Process::Down][from.pop(2)];
        world.brokers[broker] = Broker { process, lease, to_bury };
    }
    world
}
