//! When which fault falls. Pure: the same seed gives the same plan.
//!
//! Two tracks run beside each other. Faults that take a process away come one after the other, so that somebody is always left;
//! the others fall into their midst.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::settings::{FaultKind, TTL, VerifySettings};

/// Before the first fault and after the last one: something to compare with.
const CALM: Duration = Duration::from_secs(3);
/// Shortest and longest calm gap between two light faults.
const LIGHT_GAPS_MS: (u64, u64) = (300, 1_200);
/// The same between two heavy ones: a ttl at least, after which whoever was struck may bury others again.
const HEAVY_GAPS_MS: (u64, u64) = (2_000, 2_600);

/// A fault that will fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    pub at: Duration,
    pub kind: FaultKind,
    pub hold: Duration,
    /// Decides whom it strikes.
    pub dice: u64,
}

/// The faults of the heavy track, and of the light one.
pub(super) fn plan(settings: &VerifySettings) -> [Vec<Planned>; 2] {
    [true, false].map(|heavy| {
        let kinds: Vec<FaultKind> =
            settings.faults.iter().copied().filter(|kind| kind.is_heavy() == heavy).collect();
        track(&kinds, settings.duration, settings.seed ^ u64::from(heavy))
    })
}

fn track(kinds: &[FaultKind], duration: Duration, seed: u64) -> Vec<Planned> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut planned, mut at) = (Vec::new(), CALM.min(duration / 4));
    let end = duration.saturating_sub(CALM.min(duration / 4));
    while !kinds.is_empty() {
        let mut turn = kinds.to_vec();
        turn.shuffle(&mut random); // each kind once before any comes again
        for kind in turn {
            let hold = hold(kind);
            if at + hold >= end {
                return planned;
            }
            planned.push(Planned { at, kind, hold, dice: random.random() });
            let gaps = if kind.is_heavy() { HEAVY_GAPS_MS } else { LIGHT_GAPS_MS };
            at += hold + cost(kind) + Duration::from_millis(random.random_range(gaps.0..=gaps.1));
        }
    }
    planned
}

/// How long a fault lasts.
fn hold(kind: FaultKind) -> Duration {
    use FaultKind::*;
    match kind {
        FreezeBroker | FreezeConsumer | BlackholeDatabase => TTL * 3 / 2,
        KillBroker => TTL / 2,
        BlackholeClients | ExhaustConnections => TTL,
        IdleInTransaction | RepeatableRead => TTL * 3 / 2,
        DelayClients | DelayDatabase => TTL / 2,
        RestartPostgres | StopBroker | SkewClock => Duration::from_millis(300),
        TruncateClients | TruncateDatabase => Duration::from_millis(200),
        KillConsumer | ChurnConsumers | CutClients | CutDatabase | TerminateBackends | LoseListen => {
            Duration::ZERO
        }
    }
}

/// How long things take beside that: a start, a recovery.
fn cost(kind: FaultKind) -> Duration {
    use FaultKind::*;
    match kind {
        KillBroker | StopBroker | SkewClock => Duration::from_millis(700),
        RestartPostgres => Duration::from_millis(1_500),
        FreezeBroker | BlackholeDatabase => Duration::from_millis(500),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seconds: u64, seed: u64) -> VerifySettings {
        VerifySettings {
            brokers: 3,
            duration: Duration::from_secs(seconds),
            faults: FaultKind::ALL.to_vec(),
            seed,
            postgres_bin_dir: None,
        }
    }

    #[test]
    fn a_seed_repeats_its_plan_and_another_one_does_not() {
        assert_eq!(plan(&settings(90, 7)), plan(&settings(90, 7)));
        assert_ne!(plan(&settings(90, 7)), plan(&settings(90, 8)));
    }

    #[test]
    fn ninety_seconds_hold_every_kind_at_least_twice_with_calm_at_both_ends() {
        for seed in 0..50 {
            let tracks = plan(&settings(90, seed));
            for kind in FaultKind::ALL {
                let count = tracks.iter().flatten().filter(|planned| planned.kind == *kind).count();
                assert!(count >= 2, "{} falls {count} times with seed {seed}", kind.name());
            }
            for track in &tracks {
                assert!(track.first().is_some_and(|first| first.at >= CALM));
                assert!(
                    track.iter().all(|planned| planned.at + planned.hold + CALM <= Duration::from_secs(90))
                );
                assert!(track.windows(2).all(|two| two[0].at + two[0].hold < two[1].at));
            }
        }
    }

    #[test]
    fn a_run_without_faults_or_time_has_none() {
        assert!(plan(&settings(0, 1)).iter().all(Vec::is_empty));
        let none = VerifySettings { faults: Vec::new(), ..settings(90, 1) };
        assert!(plan(&none).iter().all(Vec::is_empty));
    }
}
