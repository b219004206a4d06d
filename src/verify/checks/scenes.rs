//! Promises that probes try in scenes of their own: the probe has judged already, the promise is read off.

use super::{Evidence, Verdict};

macro_rules! scenes {
    ($($name:ident = $number:literal;)*) => {
        $(pub(super) fn $name(evidence: Evidence<'_>) -> Verdict {
            scene(evidence, $number)
        })*
    };
}

scenes! {
    aborted_flush = 5;
    foreign_transaction = 6;
    rebalance = 15;
    poison = 17;
    database_chaos = 20;
    lost_notifications = 21;
    retention = 22;
    slow_readers = 23;
    bad_input = 25;
}

fn scene(evidence: Evidence<'_>, number: usize) -> Verdict {
    match evidence.probes.scenes.get(&number) {
        Some(violations) => Verdict::of(true, violations.clone()),
        None => Verdict::NotTried,
    }
}
