//! `compare`: rounds in which all systems take turns, and what comes out of them.

use std::collections::BTreeMap;

use crate::cli::Compare;
use crate::error::Error;
use crate::measure::{Sample, measure};
use crate::report::{Comparison, Environment, FailedRound, Row, write};
use crate::system::System;
use crate::table;
use crate::work::Work;

/// One place for each round; `None`: it failed.
type Samples = BTreeMap<(Work, System), Vec<Option<Sample>>>;

/// Measures, then prints a table. A system that fails in a round is told, and everything else goes on.
pub async fn run(compare: &Compare) -> Result<(), Error> {
    let environment = Environment::of(&compare.setup).await?;
    let mut samples = Samples::new();
    let failures = rounds(compare, &mut samples).await;
    let results = rows(compare, &samples);
    let (rounds, seconds, offered) = (compare.rounds, compare.seconds, compare.rate);
    let comparison = Comparison { environment, rounds, seconds, offered, results, failures };
    if let Some(path) = &compare.json {
        write(path, &comparison)?;
    }
    println!("{}", table::of(&comparison));
    match comparison.failures.len() {
        0 => Ok(()),
        failures => Err(Error::Measurements { failures }),
    }
}

async fn rounds(compare: &Compare, samples: &mut Samples) -> Vec<FailedRound> {
    let mut failures = Vec::new();
    for work in compare.work.iter().copied() {
        for round in 1..=compare.rounds {
            for system in turns(&compare.setup.systems, round) {
                let measured = measure(system, compare.load(work), compare.seconds, &compare.setup).await;
                let (work_name, name, of) = (work.name(), system.name(), compare.rounds);
                let told = format!("{work_name:>8}  round {round} of {of}  {name:<14}");
                let sample = match measured {
                    Ok(sample) => {
                        eprintln!("{told}  {}", table::figure(work, &sample));
                        Some(sample)
                    }
                    Err(error) => {
                        eprintln!("{told}  failed: {error}");
                        failures.push(FailedRound { work, system, round, error: error.to_string() });
                        None
                    }
                };
                samples.entry((work, system)).or_default().push(sample);
            }
        }
    }
    failures
}

/// The systems in the order of a round: another one begins each time, so that nobody always comes after the same.
fn turns(systems: &[System], round: u32) -> impl Iterator<Item = System> + '_ {
    systems.iter().copied().cycle().skip(round as usize - 1).take(systems.len())
}

fn rows(compare: &Compare, samples: &Samples) -> Vec<Row> {
    let none = Vec::new();
    let of = |work, system| samples.get(&(work, system)).unwrap_or(&none);
    let pairs =
        compare.work.iter().flat_map(|work| compare.setup.systems.iter().map(|system| (*work, *system)));
    pairs
        .filter_map(|(work, system)| Row::of(work, system, of(work, system), of(work, System::Laneway)))
        .collect()
}
