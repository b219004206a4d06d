//! What became of the messages of one `laneway publish`: per partition, and what was not stored.

use std::collections::BTreeMap;

use laneway_client::{Class, Error, Receipt};
use serde::Serialize;

use super::input::place;
use crate::cli::access::print_table;
use crate::cli::output::println;

/// The messages of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Part {
    partition: u32,
    messages: u64,
    /// Of them: an earlier copy was found, and no second one stored.
    duplicates: u64,
    first_offset: Option<i64>,
    last_offset: Option<i64>,
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    topic: String,
    /// Messages that are stored, by this run or before.
    pub messages: u64,
    duplicates: u64,
    /// Messages that are not stored.
    pub failed: u64,
    /// Messages that may be stored or not.
    pub unknown: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled: Option<Waiting>,
    partitions: Vec<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure: Option<FirstFailure>,
    #[serde(skip)]
    places: BTreeMap<u32, usize>,
    /// Messages that wait for their fate.
    #[serde(skip)]
    waiting: u64,
}

/// Of the messages, those that wait for their time.
#[derive(Debug, Serialize)]
struct Waiting {
    messages: u64,
    first_schedule: i64,
    last_schedule: i64,
}

#[derive(Debug, Serialize)]
struct FirstFailure {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    reason: String,
}

impl Summary {
    pub fn new(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            messages: 0,
            duplicates: 0,
            failed: 0,
            unknown: 0,
            scheduled: None,
            partitions: Vec::new(),
            first_failure: None,
            places: BTreeMap::new(),
            waiting: 0,
        }
    }

    /// A message is on its way.
    pub fn on_let_in(&mut self) {
        self.waiting += 1;
    }

    /// A message that was let in is stored.
    pub fn on_receipt(&mut self, receipt: Receipt) {
        self.waiting -= 1;
        self.messages += 1;
        self.duplicates += u64::from(receipt.duplicate);
        if let Some(id) = receipt.schedule {
            let none = Waiting { messages: 0, first_schedule: id, last_schedule: id };
            let waiting = self.scheduled.get_or_insert(none);
            waiting.messages += 1;
            waiting.first_schedule = waiting.first_schedule.min(id);
            waiting.last_schedule = waiting.last_schedule.max(id);
        }
        let end = self.partitions.len();
        let index = *self.places.entry(receipt.partition).or_insert(end);
        if index == end {
            let partition = receipt.partition;
            self.partitions.push(Part {
                partition,
                messages: 0,
                duplicates: 0,
                first_offset: None,
                last_offset: None,
            });
        }
        let part = &mut self.partitions[index];
        part.messages += 1;
        part.duplicates += u64::from(receipt.duplicate);
        part.first_offset = [part.first_offset, receipt.offset].into_iter().flatten().min();
        part.last_offset = part.last_offset.max(receipt.offset);
    }

    /// A message that was let in was not stored, or nobody knows.
    pub fn on_lost(&mut self, line: u64, error: &Error) {
        self.waiting -= 1;
        self.on_error(line, error);
    }

    /// A message was not stored, or nobody knows.
    pub fn on_error(&mut self, line: u64, error: &Error) {
        match error.class() {
            Class::Unknown => self.unknown += 1,
            Class::Retry | Class::Refused | Class::Fatal => self.failed += 1,
        }
        let reason = format!("{}: {error}", place(line));
        self.first_failure.get_or_insert(FirstFailure { line: (line > 0).then_some(line), reason });
    }

    /// The input could not be read further, or not all of it was waited for.
    pub fn on_stopped(&mut self, reason: String) {
        self.first_failure.get_or_insert(FirstFailure { line: None, reason });
    }

    /// Why it has failed, if it has.
    pub fn failure(&self) -> Option<&str> {
        self.first_failure.as_ref().map(|failure| failure.reason.as_str())
    }

    /// Nothing more will be known.
    pub fn finish(&mut self) {
        self.unknown += std::mem::take(&mut self.waiting);
        self.partitions.sort_unstable_by_key(|part| part.partition);
    }

    pub fn print(&self) {
        let Self { topic, messages, duplicates, failed, unknown, .. } = self;
        let more = |many: &u64, what: &str| match many {
            0 => String::new(),
            many => format!(", {many} {what}"),
        };
        let word = if *messages == 1 { "message" } else { "messages" };
        let waiting = match &self.scheduled {
            None => String::new(),
            Some(Waiting { messages: 1, first_schedule, .. }) => {
                format!(", one of them waits: schedule {first_schedule}")
            }
            Some(Waiting { messages, first_schedule, last_schedule }) => {
                format!(", {messages} of them wait: schedules {first_schedule} to {last_schedule}")
            }
        };
        println!(
            "{messages} {word} in topic {topic}{waiting}{}{}{}",
            more(duplicates, "of them stored before"),
            more(failed, "not stored"),
            more(unknown, "stored or not, nobody knows"),
        );
        if self.partitions.is_empty() {
            return;
        }
        let offset = |offset: Option<i64>| offset.map_or("-".to_owned(), |offset| offset.to_string());
        let row = |part: &Part| {
            let (first, last) = (offset(part.first_offset), offset(part.last_offset));
            [part.partition.to_string(), part.messages.to_string(), first, last]
        };
        print_table(
            ["PARTITION", "MESSAGES", "FIRST OFFSET", "LAST OFFSET"],
            self.partitions.iter().map(row),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_counts_and_the_first_and_last_offset_of_each_partition() {
        let mut summary = Summary::new("orders");
        for (partition, offset, duplicate) in
            [(3, Some(7), false), (0, Some(2), false), (3, Some(8), false), (3, None, true)]
        {
            summary.on_let_in();
            summary.on_receipt(Receipt { partition, offset, duplicate, schedule: None });
        }
        summary.on_let_in();
        summary.on_lost(9, &Error::TimedOut { doubtful: true });
        summary.on_error(10, &Error::Closed);
        summary.on_let_in(); // and never heard of again
        summary.finish();
        let document = serde_json::to_value(&summary).unwrap();
        assert_eq!(
            document["partitions"],
            serde_json::json!([
                {"partition": 0, "messages": 1, "duplicates": 0, "first_offset": 2, "last_offset": 2},
                {"partition": 3, "messages": 3, "duplicates": 1, "first_offset": 7, "last_offset": 8},
            ])
        );
        assert_eq!((&document["messages"], &document["duplicates"]), (&4.into(), &1.into()));
        assert_eq!((&document["failed"], &document["unknown"]), (&1.into(), &2.into()));
        assert_eq!(document["first_failure"]["line"], 9, "the first one is told");
    }
}
