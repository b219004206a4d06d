//! The schema: brought up to date by any number of brokers at once, refused when it is not ours, equal to `schema.sql`.

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod previous;
mod queries;
mod runner;
mod shape;
mod upgrade;
