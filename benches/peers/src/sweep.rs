//! `sweep`: what rate is reached and how long messages take, against the rate that is offered.

use crate::cli::Sweep;
use crate::error::Error;
use crate::measure::measure;
use crate::report::{Curves, Environment, Failure, Point, write};
use crate::table;
use crate::work::Work;

/// Measures each rate on all systems in turn, and writes what is there after each of them. A system that fails under a load is told,
/// and the others go on.
pub async fn run(sweep: &Sweep) -> Result<(), Error> {
    let environment = Environment::of(&sweep.setup).await?;
    let mut curves = Curves { environment, seconds: sweep.seconds, points: Vec::new(), failures: Vec::new() };
    for offered in sweep.rates.iter().copied() {
        for system in sweep.setup.systems.iter().copied() {
            let measured = measure(system, sweep.load(offered), sweep.seconds, &sweep.setup).await;
            let told = format!("offered {:>7}/s  {:<14}", table::grouped(f64::from(offered)), system.name());
            match measured {
                Ok(sample) => {
                    eprintln!("{told}  {}", table::figure(Work::Latency, &sample));
                    curves.points.push(Point { system, offered, sample });
                }
                Err(error) => {
                    eprintln!("{told}  failed: {error}");
                    curves.failures.push(Failure { system, offered, error: error.to_string() });
                }
            }
        }
        write(&sweep.json, &curves)?;
    }
    match curves.failures.len() {
        0 => Ok(()),
        failures => Err(Error::Points { failures }),
    }
}
