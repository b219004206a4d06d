//! `compare`: rounds in which all systems take turns, and what comes out of them.

use std::collections::BTreeMap;

use crate::cli::Compare;
use crate::error::Error;
use crate::measure::{Sample, measure};
use crate::report::{Comparison, Environment, Row, write};
use crate::system::System;
use crate::table;
use crate::work::Work;

type Samples = BTreeMap<(Work, System), Vec<Sample>>;

/// Measures, then prints a table. What was measured before something failed is told all the same.
pub async fn run(compare: &Compare) -> Result<(), Error> {
    let environment = Environment::of(&compare.setup).await?;
    let mut samples = Samples::new();
    let measured = rounds(compare, &mut samples).await;
    let results = rows(compare, &samples);
    let (rounds, seconds, offered) = (compare.rounds, compare.seconds, compare.rate);
    let comparison = Comparison { environment, rounds, seconds, offered, results };
    if let Some(path) = &compare.json {
        write(path, &comparison)?;
    }
    println!("{}", table::of(&comparison));
    measured
}

async fn rounds(compare: &Compare, samples: &mut Samples) -> Result<(), Error> {
    for work in compare.work.iter().copied() {
        for round in 1..=compare.rounds {
            for system in compare.setup.systems.iter().copied() {
                let sample = measure(system, compare.load(work), compare.seconds, &compare.setup).await?;
                let (work_name, name, of) = (work.name(), system.name(), compare.rounds);
                eprintln!(
                    "{work_name:>8}  round {round} of {of}  {name:<14}  {}",
                    table::figure(work, &sample)
                );
                samples.entry((work, system)).or_default().push(sample);
            }
        }
    }
    Ok(())
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
