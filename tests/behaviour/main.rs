//! What the parts promise, on a real PostgreSQL: a database per test, real connections, real processes.

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod appender;
mod groups;
mod numbered_http;
mod purges;
mod trace_index;
