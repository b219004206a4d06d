//! What every test of the real thing needs: a PostgreSQL, a database of its own, a broker on it, a server process.
//!
//! | file | owns |
//! |---|---|
//! | `source` | which PostgreSQL the tests use, and why |
//! | `shared` | one local server for all test processes of a run, ended when the last of them has ended |
//! | `database` | a database per test, cloned from one migrated template |
//! | `member` | a member of a group without a socket |
//! | `own` | a PostgreSQL of a test's own, to stop, kill or starve |
//! | `quiet` | a broker without its chores |
//! | `produce` | units and messages to publish |
//! | `process` | the `laneway` binary, run as people run it |
//! | `pty` | the same on a terminal, as people see it |
//! | `socket` | a client of the WebSocket protocol, frame by frame |
//! | `standby` | a standby of such a server, to cut off and to promote |
//! | `wait` | waiting for an event, never for a time |
//! | `wire` | a wire between a broker and its database, to cut and to clog |

#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::too_many_lines)]

pub mod database;
pub mod member;
pub mod own;
pub mod process;
pub mod produce;
pub mod pty;
pub mod quiet;
pub mod shared;
pub mod socket;
pub mod source;
pub mod standby;
pub mod wait;
pub mod wire;

pub use database::TestDatabase;
pub use process::Server;
