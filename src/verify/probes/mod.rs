//! Promises that need a scene of their own. Each scene plays on the healed stage, on topics of its own, and says what it saw.
//!
//! | file | promises |
//! |---|---|
//! | `actor` | a session that does what it is told |
//! | `bad_input` | 25 |
//! | `failures` | 17, and the trace ids of dead letters for 18 |
//! | `moves` | 15, 22, 23 |
//! | `database` | 5, 6, 20, 21 |

mod actor;
mod bad_input;
mod database;
mod failures;
mod moves;

use std::collections::BTreeMap;

use super::scene::Findings;
use super::stage::Stage;

/// What became of the probes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probes {
    /// By number of the promise: the violations that a probe saw. Absent: not tried.
    pub scenes: BTreeMap<usize, Vec<String>>,
    /// Figures that scenes have measured, for the report.
    pub figures: BTreeMap<&'static str, String>,
    /// Whether dead letters have the trace ids of their messages; absent: there were none.
    pub dead_letter_traces_exact: Option<bool>,
    /// Acks of what was never sent, all of them refused.
    pub odd_acks: usize,
    /// Such acks that were confirmed.
    pub odd_acks_confirmed: Vec<String>,
    /// Close codes that told a consumer not to come back.
    pub closes_not_retryable: Vec<u16>,
    /// Producers whose publishes were not answered in the end.
    pub producers_unsettled: usize,
}

/// What a scene ends with: the violations it saw, or why it could not be played, which is a violation too.
type Seen = Result<Vec<String>, String>;

impl Probes {
    /// Plays every scene. `rate_before` is what the cluster could do before anything had happened to it.
    pub(super) async fn play(stage: &Stage, findings: Findings, rate_before: f64) -> Self {
        let mut probes = Self {
            odd_acks: findings.odd_acks,
            odd_acks_confirmed: findings.odd_acks_confirmed,
            closes_not_retryable: findings.closes_not_retryable,
            producers_unsettled: findings.producers_unsettled,
            ..Self::default()
        };
        let mut figures = BTreeMap::new();
        probes.note(20, database::chaos_is_survived(stage, rate_before, &mut figures).await);
        probes.note(6, database::foreign_transactions(stage, &mut figures).await);
        probes.note(5, database::aborted_flushes(stage, &mut figures).await);
        probes.note(21, database::lost_hints(stage, &mut figures).await);
        probes.note(15, moves::one_of_many(stage, &mut figures).await);
        probes.note(22, moves::retention(stage).await);
        probes.note(23, moves::half_open(stage, &mut figures).await);
        probes.note(17, failures::poison(stage).await);
        probes.dead_letter_traces_exact = failures::dead_letter_traces_exact(stage).await;
        probes.note(25, bad_input::bad_input(stage).await);
        probes.figures = figures;
        probes
    }

    fn note(&mut self, promise: usize, seen: Seen) {
        self.scenes.insert(promise, seen.unwrap_or_else(|failure| vec![failure]));
    }
}

pub(super) use database::publish_rate;
