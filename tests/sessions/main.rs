//! Sessions: a real `laneway serve`, a real PostgreSQL, real sockets, in both subprotocols.
//!
//! | file | shows |
//! |---|---|
//! | `handshake` | how a session opens, and what is refused before it does |
//! | `bad_frames`, `mutations`, `unmasked` | one bad client never hurts another |
//! | `publishing` | many messages, one answer; once, in order, bit for bit |
//! | `heartbeats` | silence is noticed by both sides |
//! | `resuming`, `moving` | a lost connection is taken up again, here or elsewhere |
//! | `draining`, `away` | the broker leaves, PostgreSQL leaves; nothing is lost |
//! | `tails` | reading without a group |
//! | `slow`, `idle` | memory: of clients that do not read, and of those that do nothing |
//! | `cuts` | connections that are lost at any byte |
//! | `proxy`, `witness`, `pack` | what the tests need |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../clients/rust/tests/mutate/mod.rs"]
mod mutate;

mod away;
mod bad_frames;
mod cuts;
mod draining;
mod handshake;
mod heartbeats;
mod idle;
mod moving;
mod mutations;
mod pack;
mod proxy;
mod publishing;
mod resuming;
mod slow;
mod tails;
mod unmasked;
mod witness;
