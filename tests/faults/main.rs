//! What breaks, and what is promised meanwhile: PostgreSQL that crashes, hangs, is away, is full, or is held by others.
//!
//! Every test has a server of its own and ends it.

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod away;
mod backends;
mod crashes;
mod disk;
mod exhausted;
mod failover;
mod frozen;
mod offsets;
mod snapshots;
mod witness;
