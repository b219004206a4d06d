//! What a gauge lets in, and what it must count although no look has seen it.

use super::*;

const ALLOWANCE: Load = Load { messages: 100, bytes: 1_000_000 };

fn limits(messages: u64) -> TopicLimits {
    TopicLimits { backlog_messages: Some(messages), ..TopicLimits::default() }
}

fn load(messages: u64) -> Load {
    Load { messages, bytes: messages * 10 }
}

fn look(messages: u64, at: Instant) -> Look {
    Look { backlog: Some(load(messages)), stored_bytes: messages * 10, era: Era::default(), at }
}

fn full_at(verdict: Verdict) -> Option<u64> {
    match verdict {
        Verdict::Full { reading, .. } => Some(reading.depth),
        Verdict::Admitted | Verdict::LookFirst => None,
    }
}

#[test]
fn what_no_look_has_seen_is_counted_until_one_that_began_later_has() {
    let (mut gauge, now) = (Gauge::default(), Instant::now());
    let when = (now, Era::default());
    assert_eq!(gauge.judge(load(1), &limits(10), ALLOWANCE, when), Verdict::LookFirst);
    gauge.on_looked(look(0, now), &limits(10));
    assert_eq!(gauge.judge(load(6), &limits(10), ALLOWANCE, when), Verdict::Admitted);
    assert_eq!(full_at(gauge.judge(load(5), &limits(10), ALLOWANCE, when)), Some(6));
    gauge.on_answered(load(6));
    // Answered and not seen: too much, unless the look has it already.
    assert_eq!(gauge.judge(load(5), &limits(10), ALLOWANCE, when), Verdict::LookFirst);
    // A look that began before an answer does not take it out; the next one does.
    gauge.on_look_begun();
    assert_eq!(gauge.judge(load(4), &limits(10), ALLOWANCE, when), Verdict::Admitted);
    gauge.on_answered(load(4));
    gauge.on_looked(look(6, now), &limits(10));
    assert_eq!(gauge.judge(load(1), &limits(10), ALLOWANCE, when), Verdict::LookFirst);
    gauge.on_look_begun();
    gauge.on_looked(look(10, now), &limits(10));
    assert_eq!(full_at(gauge.judge(load(1), &limits(10), ALLOWANCE, when)), Some(10));
    gauge.on_look_begun();
    gauge.on_looked(look(3, now), &limits(10));
    assert_eq!(gauge.judge(load(7), &limits(10), ALLOWANCE, when), Verdict::Admitted);
}

#[test]
fn an_old_look_refuses_nothing_by_itself_and_one_of_another_era_is_none() {
    let (mut gauge, now) = (Gauge::default(), Instant::now());
    gauge.on_looked(look(10, now), &limits(10));
    assert_eq!(full_at(gauge.judge(load(1), &limits(10), ALLOWANCE, (now, Era::default()))), Some(10));
    let later = (now + CAPACITY_INTERVAL * 2, Era::default());
    assert_eq!(gauge.judge(load(1), &limits(10), ALLOWANCE, later), Verdict::LookFirst);
}

#[test]
fn no_more_than_the_allowance_goes_in_between_two_looks_and_a_giant_only_alone() {
    let (mut gauge, now) = (Gauge::default(), Instant::now());
    let (wide, when) = (limits(1_000_000), (now, Era::default()));
    gauge.on_looked(look(0, now), &wide);
    assert_eq!(gauge.judge(load(60), &wide, ALLOWANCE, when), Verdict::Admitted);
    assert_eq!(gauge.judge(load(60), &wide, ALLOWANCE, when), Verdict::LookFirst);
    gauge.on_answered(load(60));
    assert_eq!(gauge.judge(load(60), &wide, ALLOWANCE, when), Verdict::LookFirst);
    gauge.on_look_begun();
    gauge.on_looked(look(60, now), &wide);
    assert_eq!(gauge.judge(load(500), &wide, ALLOWANCE, when), Verdict::Admitted, "more than a flush, alone");
    // More than the limit: into an empty topic only.
    let (mut gauge, narrow) = (Gauge::default(), limits(10));
    gauge.on_looked(look(1, now), &narrow);
    assert_eq!(full_at(gauge.judge(load(50), &narrow, ALLOWANCE, when)), Some(1));
    gauge.on_looked(look(0, now), &narrow);
    assert_eq!(gauge.judge(load(50), &narrow, ALLOWANCE, when), Verdict::Admitted);
}

#[test]
fn a_mark_is_news_once_each_way_and_every_limit_counts() {
    let (mut gauge, now) = (Gauge::default(), Instant::now());
    let both = TopicLimits { stored_bytes: Some(1_000), ..limits(1_000) };
    assert_eq!(gauge.on_looked(look(79, now), &both), None);
    let reading = Reading { limited: Limited::StoredBytes, depth: 800, limit: 1_000 };
    assert_eq!(gauge.on_looked(look(80, now), &both), Some(Crossing::NearlyFull(reading)));
    assert_eq!(gauge.on_looked(look(99, now), &both), None);
    assert_eq!(gauge.on_looked(look(76, now), &both), None, "not yet");
    let reading = Reading { depth: 740, ..reading };
    assert_eq!(gauge.on_looked(look(74, now), &both), Some(Crossing::RoomAgain(reading)));
    assert_eq!(gauge.on_looked(look(79, now), &both), None);
}
