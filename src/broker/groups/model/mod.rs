//! The protocol of lanes, explored to its end by the pure code that brokers run. It runs in the tests only.
//!
//! | model | drives | within | checks |
//! |---|---|---|---|
//! | `leases` | `assignment::assign` | 2 brokers, 3 sessions, 2 lanes, any 2 faults, 1 ack per lane | 1–4 |
//! | `rounds` | `lane::Lane`, `Ranges` | 1 lane, 3 messages; 2 epochs of 2 rounds, and 1 of 3 | 3, 5–7 |
//! | `trust` | `lease::Standing` | 1 broker, 2 clocks, a ttl of 5 ticks | 2 |
//!
//! 1. A lane has one accepted owner per epoch.
//! 2. Nobody is buried who trusts its lease.
//! 3. What is committed only grows.
//! 4. No lane is stuck.
//! 5. Acks count as far as their round does, and nothing else is committed.
//! 6. What is sent is what is due.
//! 7. Everything gets done.
//!
//! Faults are crashes, freezes, heartbeats that come too late, missed deadlines, and sessions that join, leave or resume elsewhere.
//! Hints and timers that are lost or late are steps that are not taken yet, and cost nothing; so are commits that arrive late. *Stuck*
//! is a state from which work, without further faults, can end or go round for ever before every lane is served. The models meet where
//! one assumes what another shows: `leases` that trust ends first, `rounds` that a lane has one epoch at a time.
//!
//! The tests print how many states there are; `docs/RELIABILITY.md` has the figures. Bugs are seeded, eight in all, one test each: a
//! model that does not find them proves nothing. `explore` says what shortest means.

mod explore;
mod leases;
mod rounds;
mod trust;

use explore::{Explored, Model, explore};
use leases::Leases;
use rounds::{Bounds, Rounds};
use trust::Trust;

/// Explores a model, and prints how much there was to see.
fn explore_all(name: &str, model: &impl Model, faults_max: u8) -> Explored {
    let started = std::time::Instant::now();
    let explored = explore(model, faults_max);
    let Explored { states, transitions, .. } = explored;
    eprintln!("{name}: {states} states, {transitions} transitions, {:.1?}", started.elapsed());
    explored
}

#[track_caller]
fn assert_right(name: &str, model: &impl Model, faults_max: u8, states_min: usize) {
    let explored = explore_all(name, model, faults_max);
    assert_eq!(explored.violation, None);
    assert!(
        explored.states >= states_min,
        "only {} states: the bounds leave too little to see",
        explored.states
    );
}

/// The shortest way to a seeded bug shows this, after so many steps.
#[track_caller]
fn assert_found(model: &impl Model, faults_max: u8, what: &str, steps: usize) {
    let found = explore_all(what, model, faults_max).violation.expect("a seeded bug is found");
    eprintln!("{found:#?}");
    assert!(found.what.contains(what), "it shows itself as {found:#?}");
    assert_eq!(found.path.len(), steps, "another way is the shortest: {found:#?}");
}

#[test]
fn leases_burials_and_assignment_go_right_in_any_order_of_events() {
    assert_right("leases", &Leases::right(), 2, 70_000);
}

#[test]
fn rounds_and_late_commits_go_right_in_any_order_of_events() {
    assert_right("two epochs", &Rounds::right(Bounds { epochs: 2, rounds: 2 }), 0, 60_000);
}

#[test]
fn three_rounds_go_right_in_any_order_of_events() {
    assert_right("three rounds", &Rounds::right(Bounds { epochs: 1, rounds: 3 }), 0, 9_900);
}

#[test]
fn trust_ends_before_the_row_does_in_any_order_of_events() {
    assert_right("trust", &Trust::right(), 0, 30_000);
}

#[test]
fn a_fence_that_reads_a_snapshot_is_found() {
    assert_found(&Leases::with(leases::Bug::FenceReadsSnapshot), 2, "counted after lane 0 was taken", 6);
}

#[test]
fn a_burial_that_reads_before_it_writes_is_found() {
    assert_found(&Leases::with(leases::Bug::BurialReadsFirst), 2, "was buried while it trusted", 4);
}

#[test]
fn a_lane_that_is_acquired_without_a_new_epoch_is_found() {
    assert_found(&Leases::with(leases::Bug::AcquireKeepsEpoch), 2, "counted after lane 0 was taken", 7);
}

#[test]
fn a_burial_that_leaves_sessions_behind_is_found() {
    assert_found(&Leases::with(leases::Bug::BurialForgetsSessions), 1, "stuck", 1);
}

#[test]
fn acks_that_count_whatever_their_round_are_found() {
    assert_found(&Rounds::with(rounds::Bug::RoundsAreIgnored), 0, "in round 1 was answered", 3);
}

#[test]
fn commits_that_count_in_the_order_of_their_arrival_are_found() {
    assert_found(&Rounds::with(rounds::Bug::LastCommitWins), 0, "what is done fell", 9);
}

#[test]
fn late_commits_without_a_fence_are_found() {
    assert_found(&Rounds::with(rounds::Bug::FlushIsNotFenced), 0, "001 is stored, and only 000 counted", 3);
}

#[test]
fn trust_that_counts_from_the_answer_is_found() {
    assert_found(&Trust::with(trust::Bug::TrustCountsFromTheAnswer), 0, "buried while it trusted", 10);
}
