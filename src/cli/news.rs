//! Connecting for commands that stream, and telling people on standard error what happens to the connection.

use laneway_client::{Client, Connection, Error, Options};
use std::time::Duration;

use super::Failure;
use super::access::Address;
use crate::telemetry;

/// Longest pause before connecting again: somebody may be looking.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Connects; warnings of the client go to standard error from here on.
pub(super) async fn connect(address: &Address, options: Options) -> Result<Client, Failure> {
    telemetry::start_warnings();
    let options = Options { backoff_max: BACKOFF_MAX, ca_file: address.ca_file.clone(), ..options };
    Client::connect(&address.url, options).await.map_err(|error| match error {
        Error::Unreachable { ref reason, .. } if !reason.contains("certificate") => {
            format!("{error} (is `laneway serve` running there?)").into()
        }
        error => error.into(),
    })
}

/// Tells of lost connections until the client is closed.
pub(super) fn tell(client: &Client, say: impl Fn(&str) + Send + 'static) {
    let mut connection = client.connection();
    let mut told = connection.borrow_and_update().losses();
    tokio::spawn(async move {
        let mut is_up = true;
        while connection.changed().await.is_ok() {
            let now = connection.borrow_and_update().clone();
            if now.losses() > told {
                let reason = match &now {
                    Connection::Down { reason, .. } => reason.as_str(),
                    Connection::Up { .. } => "it came back at once",
                };
                say(&format!("laneway: connection lost, trying again: {reason}"));
                (told, is_up) = (now.losses(), false);
            }
            if now.is_up() && !is_up {
                say("laneway: the connection is back");
                is_up = true;
            }
        }
    });
}
