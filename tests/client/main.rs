//! The Rust client against the real binary: real sockets, real PostgreSQL, brokers that are stopped and killed.
//!
//! | file | shows |
//! |---|---|
//! | `publishing` | receipts, limits, one copy each and in order over restarts and take-overs |
//! | `subscribing` | both encodings, rounds, credit, acks in any order, confirmations |
//! | `sessions` | resuming, redelivery, `go_away`, closing |
//! | `selecting` | one subscription to many topics |
//! | `running` | the `run` helper |
//! | `steps` | acks and publishes that happen together, through lost connections and lost lanes |
//! | `step_frames` | what a client says about a step, and when |
//! | `pipelines` | `run_pipeline`, through failing messages and brokers that are killed |
//! | `capacity` | topics that are full: messages that wait, or come back |
//! | `partitions` | topics with fewer or more partitions than the client believes |
//! | `secure` | `wss://`, with an authority of the test's own |
//! | `acks` | acks that were lost or not answered, and closing in an outage |
//! | `endings` | silence, and close codes |
//! | `bus`, `wire`, `fake` | what the tests need: brokers, a wire that can be cut, a broker that says what a test wants |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod bus;
mod fake;
mod wire;

mod acks;
mod capacity;
mod endings;
mod partitions;
mod pipelines;
mod publishing;
mod running;
mod secure;
mod selecting;
mod sessions;
mod step_frames;
mod steps;
mod subscribing;
