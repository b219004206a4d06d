//! The commands that stream, through the real binary: `laneway publish`, `subscribe` and `tail`.
//!
//! | file | shows |
//! |---|---|
//! | `running` | what the tests need: a broker with a topic, and a command that runs beside the test |
//! | `publish` | lines, names, summaries, mistakes |
//! | `publish_stream` | restarts in the middle, Ctrl-C, flat memory |
//! | `schedule` | messages that wait: published, listed, shown, moved, cancelled |
//! | `subscribe` | formats, counts, mistakes, what is committed when |
//! | `subscribe_stream` | restarts in the middle |
//! | `pop` | counts, waits, what is done when |
//! | `parked` | groups ordered by key, and their parked keys: listed, shown, replayed, dropped |
//! | `trace` | the drawing, the document, following, mistakes |
//! | `tail` | places, filters, mistakes, restarts in the middle |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod running;

mod parked;
mod pop;
mod publish;
mod publish_stream;
mod schedule;
mod subscribe;
mod subscribe_stream;
mod tail;
mod tour;
mod trace;
