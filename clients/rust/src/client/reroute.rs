//! Messages that a broker has refused because their partition is not there: facts are read anew, and they get another home.
//!
//! That happens when a topic is deleted and made again with fewer partitions. Only messages whose partition the client has
//! chosen come here; one that names its partition is refused. Messages keep their order among each other; a message that is
//! let in after the facts are known may pass them.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::check;
use super::error::Error;
use super::options::Options;
use super::publisher::{Admitted, Ticket};
use super::topics::Topics;
use crate::wire::{Limits, NewMessage};

/// Answers that wait for the owner.
const FOUND_MAX: usize = 1_024;

/// A message without a home.
#[derive(Debug)]
pub(super) struct Astray {
    pub topic: Arc<str>,
    /// Where it was refused.
    pub partition: u32,
    pub message: NewMessage,
    pub ticket: Ticket,
}

/// The message with another home, or why there is none.
pub(super) type Found = Result<Admitted, (Ticket, Error)>;

/// The owner's ends of the two channels.
#[derive(Debug)]
pub(super) struct Rerouting {
    pub astray: mpsc::Sender<Astray>,
    pub found: mpsc::Receiver<Found>,
}

/// Starts the task. It ends with the owner.
pub(super) fn start(topics: Arc<Topics>, limits: Arc<Mutex<Limits>>, options: Options) -> Rerouting {
    // Room: whoever is astray has its room as a message, so that this channel is never full.
    let (to, mut astray) = mpsc::channel::<Astray>(options.publish_messages_max.max(1));
    let (found, back) = mpsc::channel(FOUND_MAX);
    tokio::spawn(async move {
        while let Some(one) = astray.recv().await {
            let limits = *limits.lock().unwrap_or_else(PoisonError::into_inner);
            if found.send(reroute(&topics, &limits, &options, one).await).await.is_err() {
                return; // the owner has ended: nobody can be waiting
            }
        }
    });
    Rerouting { astray: to, found: back }
}

async fn reroute(topics: &Topics, limits: &Limits, options: &Options, astray: Astray) -> Found {
    let Astray { topic, partition, message, ticket } = astray;
    topics.doubt(&topic, partition);
    let (topic, facts) = match topics.facts(&topic, options.publish_timeout).await {
        Ok(known) => known,
        Err(error) => return Err((ticket, error)),
    };
    match check::check(&message, facts, limits, options.subprotocol) {
        Ok(bytes) => {
            let partition = topics.home(&topic, &message, facts);
            Ok(Admitted { topic, partition, message, bytes, ticket })
        }
        Err(error) => Err((ticket, error)),
    }
}
