//! What goes on, told: logs here, spans in `spans`, and their way to a collector in `otlp`, with the feature of that name.
//!
//! Logs: pretty on a terminal, JSON otherwise, always on standard error. `LANEWAY_LOG` filters, like `info,laneway=debug`.

#[cfg(feature = "otlp")]
pub mod otlp;
pub mod spans;

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::store::DRIVER_LOG_TARGET;

/// The environment variable that filters logs.
pub const FILTER: &str = "LANEWAY_LOG";

/// Starts logging. Called once, by commands that run for long.
pub fn start() {
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| default_filter());
    // A log that nobody reads any more must not end the broker: told of a failed write, the subscriber would panic.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    if std::io::stderr().is_terminal() {
        builder.with_target(false).init();
    } else {
        builder.json().flatten_event(true).init();
    }
    keep_payloads_out();
}

/// The library of WebSockets traces whole frames, through `log`; whatever `LANEWAY_LOG` says, they stay out.
fn keep_payloads_out() {
    log::set_max_level(log::max_level().min(log::LevelFilter::Debug));
}

/// The driver passes on every notice of the server, such as "already exists, skipping": news to nobody.
fn default_filter() -> EnvFilter {
    EnvFilter::new(format!("info,{DRIVER_LOG_TARGET}=warn"))
}

/// Warnings of the client, for commands that stream: plain sentences. `LANEWAY_LOG` filters here, too.
pub fn start_warnings() {
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new("laneway_client=warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let is_terminal = std::io::stderr().is_terminal();
    builder.log_internal_errors(false).with_ansi(is_terminal).without_time().with_target(false).init();
    keep_payloads_out();
}
