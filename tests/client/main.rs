//! The Rust client against the real binary: real sockets, real PostgreSQL, brokers that are stopped and killed.
//!
//! | file | shows |
//! |---|---|
//! | `publishing` | receipts, limits, one copy each and in order over restarts and take-overs |
//! | `subscribing` | both encodings, rounds, credit, acks in any order, confirmations |
//! | `sessions` | resuming, redelivery, `go_away`, closing |
//! | `running` | the `run` helper |
//! | `secure` | `wss://`, with an authority of the test's own |
//! | `bus` | what the tests need |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod bus;
mod publishing;
mod running;
mod secure;
mod sessions;
mod subscribing;
