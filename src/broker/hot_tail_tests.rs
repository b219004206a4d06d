//! Hot tails: contiguous growth, gaps, and forgetting.

use bytes::Bytes;
use jiff::Timestamp;

use super::*;
use crate::ids::TraceId;
use crate::store::timeline::Timelines;

const PARTITION: PartitionId = PartitionId(7);

fn messages(offsets: std::ops::Range<i64>, size: usize) -> Vec<Message> {
    let message = |offset| Message {
        data_key_id: None,
        offset: Offset(offset),
        published_at: Timestamp::UNIX_EPOCH,
        trace_id: TraceId(uuid::Uuid::nil()),
        cause: None,
        origin: None,
        key: None,
        transaction_id: None,
        headers: None,
        content_type: None,
        payload: Bytes::from(vec![0; size]),
        producer: None,
        ttl: None,
    };
    offsets.map(message).collect()
}

fn followed() -> (HotTails, Arc<Wake>) {
    let (tails, wake) = (HotTails::default(), Arc::new(Wake::default()));
    tails.follow(PARTITION, &wake);
    (tails, wake)
}

fn found(tails: &HotTails, from: i64) -> Option<Vec<i64>> {
    match tails.find(PARTITION, Offset(from), 1_000_000, u64::MAX) {
        Found::Pieces(pieces) => {
            Some(pieces.iter().flat_map(|piece| piece.messages()).map(|message| message.offset.0).collect())
        }
        Found::AtEnd => Some(Vec::new()),
        Found::Behind => None,
    }
}

#[test]
fn flushes_join_and_everybody_reads_the_same() {
    let (tails, wake) = followed();
    assert_eq!(found(&tails, 0), None, "it knows nothing yet");
    assert_eq!(tails.on_flushed(PARTITION, messages(5..8, 1), tails.era()), None);
    assert_eq!(tails.on_flushed(PARTITION, messages(8..10, 1), tails.era()), None);
    assert!(wake.take().contains(&PARTITION));
    assert_eq!(found(&tails, 5), Some(vec![5, 6, 7, 8, 9]));
    assert_eq!(found(&tails, 7), Some(vec![7, 8, 9]));
    assert_eq!(found(&tails, 10), Some(vec![]));
    assert_eq!(found(&tails, 4), None);
    assert_eq!(found(&tails, 11), None);
}

#[test]
fn a_gap_is_read_before_what_lies_above_it_joins() {
    let (tails, _wake) = followed();
    tails.on_flushed(PARTITION, messages(0..2, 1), tails.era());
    let gap = Gap { partition_id: PARTITION, from: Offset(2), to: Offset(6), era: tails.era() };
    assert_eq!(tails.on_flushed(PARTITION, messages(6..8, 1), tails.era()), Some(gap));
    assert_eq!(tails.on_flushed(PARTITION, messages(8..9, 1), tails.era()), None, "one read at a time");
    assert_eq!(found(&tails, 0), Some(vec![0, 1]));
    let rest = Gap { from: Offset(4), ..gap };
    assert_eq!(tails.on_filled(gap, messages(2..4, 1)), Some(rest));
    assert_eq!(tails.on_filled(rest, messages(4..6, 1)), None);
    assert_eq!(found(&tails, 0), Some((0..9).collect()));
}

#[test]
fn what_starts_below_the_end_empties_it_and_what_cannot_be_read_too() {
    let (tails, _wake) = followed();
    tails.on_flushed(PARTITION, messages(0..5, 1), tails.era());
    tails.on_flushed(PARTITION, messages(3..4, 1), tails.era());
    assert_eq!(found(&tails, 0), None);
    assert_eq!(found(&tails, 3), Some(vec![3]));
    let gap = tails.on_grown(PARTITION, Offset(9)).unwrap();
    assert_eq!(tails.on_filled(gap, Vec::new()), None);
    assert_eq!(found(&tails, 3), None);
}

#[test]
fn the_oldest_leave_first_and_nothing_stays_when_nobody_follows() {
    let (tails, wake) = followed();
    for number in 0..40 {
        tails.on_flushed(PARTITION, messages(number..number + 1, TAIL_BYTES_MAX / 10), tails.era());
    }
    assert_eq!(found(&tails, 0), None);
    assert!(found(&tails, 39).is_some());
    assert!(tails.bytes.load(Ordering::Relaxed) <= TAIL_BYTES_MAX);
    tails.unfollow(PARTITION, &wake);
    assert_eq!(tails.bytes.load(Ordering::Relaxed), 0);
    assert!(tails.followed().is_empty());
    assert_eq!(tails.on_flushed(PARTITION, messages(40..41, 1), tails.era()), None);
}

#[test]
fn another_era_empties_a_tail_and_nothing_of_the_one_before_joins_it_afterwards() {
    let timelines = Timelines::default();
    let (tails, wake) = (HotTails::new(timelines.clone()), Arc::new(Wake::default()));
    tails.follow(PARTITION, &wake);
    let before = tails.era();
    tails.on_flushed(PARTITION, messages(0..5, 1), before);
    let gap = tails.on_grown(PARTITION, Offset(9)).unwrap();
    timelines.distrust();
    assert_eq!(found(&tails, 3), None, "it was committed on a timeline that is lost");
    // What was on its way when it changed.
    assert_eq!(tails.on_filled(gap, messages(5..9, 1)), None);
    assert_eq!(found(&tails, 5), None);
    wake.take();
    assert_eq!(tails.on_flushed(PARTITION, messages(9..10, 1), before), None);
    assert_eq!(found(&tails, 9), None);
    assert!(wake.take().contains(&PARTITION), "whoever follows it reads for itself");
    // The same offsets again, with other messages.
    tails.on_flushed(PARTITION, messages(3..6, 1), tails.era());
    assert_eq!(found(&tails, 3), Some(vec![3, 4, 5]));
    assert_eq!(tails.bytes.load(Ordering::Relaxed), Slab::new(messages(3..6, 1)).unwrap().bytes());
}
