//! A comparison as a table for people.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::figures::Figures;
use crate::measure::Sample;
use crate::report::{Comparison, Row};
use crate::work::Work;

const COLUMNS: [&str; 6] = ["work", "system", "median", "spread", "Laneway to it", "durability"];

/// The whole text: what ran, the rows, how to read them.
pub fn of(comparison: &Comparison) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(COLUMNS);
    for row in &comparison.results {
        table.add_row(cells(row, comparison));
    }
    for column in [2, 3, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{}\n{table}\n\n{}", head(comparison), foot(comparison))
}

fn head(comparison: &Comparison) -> String {
    let environment = &comparison.environment;
    let mut text = format!(
        "\n{} cores, {} rounds of {} s in which the systems took turns.\n",
        environment.cores, comparison.rounds, comparison.seconds
    );
    for program in &environment.programs {
        text += &format!("  {}: {}\n", program.system.name(), program.version);
    }
    text
}

fn foot(comparison: &Comparison) -> String {
    let mut text = String::new();
    for failed in &comparison.failures {
        let (work, system) = (failed.work.name(), failed.system.name());
        text += &format!("Failed: {work} on {system}, round {}: {}\n", failed.round, failed.error);
    }
    text + &format!(
        "Rates are messages (fanout: deliveries) per second; latency is p50 / p99 at {}/s offered.\n\
         Laneway to it: median of the ratios of the rounds, of rates (more is better for Laneway), for latency of p99s\n\
         (less is better for Laneway).",
        grouped(f64::from(comparison.offered))
    )
}

fn cells(row: &Row, comparison: &Comparison) -> [String; COLUMNS.len()] {
    let (median, spread) = match (row.work, &row.p50_us, &row.p99_us) {
        (Work::Latency, Some(p50), Some(p99)) => latency(row, p50, p99),
        _ => (format!("{}/s", grouped(row.rate.median)), spread(&row.rate, grouped)),
    };
    let ratio = row.laneway.as_ref();
    let ratio = ratio.map_or("–".to_owned(), |ratio| format!("{:.2} ({})", ratio.median, spread_of(ratio)));
    let programs = comparison.environment.programs.iter();
    let durability =
        programs.filter(|program| program.system == row.system).map(|program| program.durability);
    let durability = durability.collect::<String>();
    [row.work.name().to_owned(), row.system.name().to_owned(), median, spread, ratio, durability]
}

fn latency(row: &Row, p50: &Figures, p99: &Figures) -> (String, String) {
    let mut median = format!("{} / {}", time(p50.median), time(p99.median));
    if row.missing > 0 {
        median += &format!(", {} too late", row.missing);
    }
    (median, format!("{} / {}", spread(p50, time), spread(p99, time)))
}

fn spread(figures: &Figures, shown: fn(f64) -> String) -> String {
    format!("{}–{}", shown(figures.min), shown(figures.max))
}

fn spread_of(ratio: &Figures) -> String {
    spread(ratio, |ratio| format!("{ratio:.2}"))
}

/// A sample in a few words.
pub fn figure(work: Work, sample: &Sample) -> String {
    let rate = format!("{}/s", grouped(sample.rate));
    match (work, sample.p50_us, sample.p99_us, sample.p999_us) {
        (Work::Latency, Some(p50), Some(p99), Some(p999)) => {
            let late =
                if sample.missing > 0 { format!(", {} too late", sample.missing) } else { String::new() };
            format!("{rate}  p50 {}  p99 {}  p99.9 {}{late}", time(p50), time(p99), time(p999))
        }
        _ => rate,
    }
}

/// A number with its thousands apart.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds in the unit that suits them.
fn time(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Environment, FailedRound, Program};
    use crate::system::System;

    fn sample(rate: f64, p99_us: Option<f64>) -> Sample {
        Sample { rate, p50_us: p99_us.map(|us| us / 2.0), p99_us, p999_us: p99_us, missing: 0 }
    }

    #[test]
    fn numbers_and_times_are_readable() {
        let numbers = [0.0, 999.4, 1_000.0, 123_456.0, 1_234_567.0].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!([812.0, 2_345.0, 81_000.0, 2.5e6].map(time), ["812 µs", "2.35 ms", "81 ms", "2.5 s"]);
    }

    #[test]
    fn a_row_has_the_median_the_spread_the_ratio_and_the_durability() {
        let theirs = [sample(100_000.0, None), sample(120_000.0, None), sample(110_000.0, None)];
        let ours = [sample(50_000.0, None), sample(60_000.0, None), sample(66_000.0, None)];
        let system = System::RedisAlways;
        let row = Row::of(Work::Publish, system, &theirs.map(Some), &ours.map(Some)).unwrap();
        let timed = Row::of(Work::Latency, system, &[Some(sample(5_000.0, Some(800.0)))], &[]).unwrap();
        let program = Program { system, version: "7.0.15".to_owned(), durability: "fsync first" };
        let environment = Environment { cores: 2, programs: vec![program] };
        let results = vec![row, timed];
        let failed = FailedRound { work: Work::E2e, system, round: 2, error: "gone".to_owned() };
        let failures = vec![failed];
        let text = of(&Comparison { environment, rounds: 3, seconds: 8, offered: 5_000, results, failures });
        let line =
            |work: &str| text.lines().find(|line| line.starts_with(&format!("| {work}"))).unwrap().to_owned();
        let publish: Vec<String> = line("publish").split('|').map(|cell| cell.trim().to_owned()).collect();
        let expected =
            ["publish", "redis-always", "110,000/s", "100,000–120,000", "0.50 (0.50–0.60)", "fsync first"];
        assert_eq!(publish[1..7], expected);
        assert!(line("latency").contains("400 µs / 800 µs"), "{text}");
        assert!(text.contains("redis-always: 7.0.15"), "{text}");
        assert!(text.contains("e2e on redis-always, round 2: gone"), "{text}");
    }
}
