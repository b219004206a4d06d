//! What is stored, how it is found again, and how it goes: segments, retention, reading, heads, the trace index, delivery
//! times.

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod capacity;
mod completed;
mod delivery_times;
mod doubtful_settlements;
mod heads;
mod hostile;
mod parked_plans;
mod purging;
mod quiet_partitions;
mod reading;
mod retention;
mod schedule_plans;
mod segments;
mod thousand;
mod topics;
mod trace_cuts;
mod traces;
