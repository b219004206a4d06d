//! The private PostgreSQL: what `laneway serve` runs when it is given no database URL. A real database in
//! every respect (checksums, fsync, WAL), only nobody has to set it up. The way of a start, file by file:
//!
//! - `settings` → `account` (who) → `binaries`, `version` (with what) → `layout`, `directories` (where)
//! - `lock` (one broker per data directory) → `initdb` (once) → `machine`, `fit`, `conf`, `foreign`
//! - `spawn` or, by `postmaster_pid` and `process`, adoption → `postmaster` → `readiness`, `probe`
//! - `supervisor` with `backoff`, `upgrade`; when it does not start: `server_log`, `failure`
//!
//! - `look`: what `laneway doctor` sees of it, without touching it
//!
//! `cluster` ties these together without lock or supervision; `private` is the handle that `serve` holds.
//! Must stay true: the server outlives a killed broker and is adopted by the next; no failure that needs a
//! person leads to a restart loop; every error names its fix.

mod account;
mod backoff;
mod binaries;
mod cluster;
mod conf;
mod directories;
mod error;
mod failure;
mod fit;
mod foreign;
mod initdb;
mod layout;
mod lock;
mod look;
mod machine;
mod postmaster;
mod postmaster_pid;
mod private;
mod probe;
mod process;
mod readiness;
mod server_log;
mod settings;
mod spawn;
mod supervisor;
mod upgrade;
mod version;

pub use cluster::Cluster;
pub use error::{Error, Recovery};
pub use failure::Cause;
pub use look::{Look, look};
pub use postmaster::StopMode;
pub use private::PrivatePostgres;
pub use settings::{Pace, Places, Settings, default_data_dir};
pub use supervisor::Status;
pub use version::Version;
