//! Sessions that are members of a group and do nothing but say that they are there.

use std::time::Duration;

use futures_util::SinkExt as _;
use laneway_client::wire::{BrokerFrame, ClientFrame, CreditGrant, Start, Subscribe};

use super::session::{self, Receiver, Sender, Traffic, encoded};
use super::{Post, Rounds, WorkerError, say};
use crate::bench::tally::Tally;

/// Sessions that come at the same time.
const AT_ONCE: usize = 32;
/// How often each says that it is there; the default heartbeat is 20 s.
const BEAT: Duration = Duration::from_secs(15);
/// They take turns in so many parts of that time.
const BEATS: usize = 100;

pub(super) async fn run(
    post: &Post,
    groups: &[String],
    sessions: usize,
    mut rounds: Rounds,
) -> Result<(), WorkerError> {
    let mut open: Vec<(Sender, Receiver)> = Vec::with_capacity(sessions);
    while open.len() < sessions {
        let count = AT_ONCE.min(sessions - open.len());
        let numbers = open.len()..open.len() + count;
        let opening = numbers.map(|number| member(post, &groups[number % groups.len()], number));
        open.extend(futures_util::future::try_join_all(opening).await?);
    }
    say(&Tally::default())?; // it is ready
    let mut beat = tokio::time::interval(BEAT / BEATS as u32);
    let mut turn = 0;
    loop {
        tokio::select! {
            round = rounds.next() => match round? {
                Some(_) => say(&Tally { ever: open.len() as u64, ..Tally::default() })?,
                None => return Ok(()),
            },
            _ = beat.tick() => {
                for (sender, _) in open.iter_mut().skip(turn).step_by(BEATS) {
                    sender.send(encoded(&ClientFrame::Heartbeat)).await?;
                }
                turn = (turn + 1) % BEATS;
            }
        }
    }
}

async fn member(post: &Post, group: &str, number: usize) -> Result<(Sender, Receiver), WorkerError> {
    let (mut sender, mut receiver) = session::open(post.broker(number), Traffic::Idle).await?;
    let subscribe = Subscribe {
        id: 1,
        group: group.to_owned(),
        topic: post.topic.clone(),
        start: Some(Start::Earliest),
        credit: CreditGrant { messages: 100, bytes: 1 << 20 },
        batch: None,
        settings: None,
    };
    sender.send(encoded(&ClientFrame::Subscribe(subscribe))).await?;
    receiver.until(|frame| matches!(frame, BrokerFrame::Subscribed(_))).await?;
    Ok((sender, receiver))
}
