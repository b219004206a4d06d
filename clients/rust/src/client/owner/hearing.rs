//! What a broker says to a client, frame by frame: handed to whoever it concerns.

use std::time::{Duration, Instant};

use super::{Owner, Parting};
use crate::client::delivery::refuse;
use crate::client::error::Error;
use crate::client::readers::Verdict;
use crate::client::reroute::Found;
use crate::error_code::ErrorCode;
use crate::wire::{BrokerFrame, ErrorFrame};

impl Owner {
    pub(super) fn on_found(&mut self, found: Found) {
        self.publisher.on_found(found, Instant::now());
    }

    /// Hands over what needs another home.
    fn reroute(&mut self) {
        for astray in self.publisher.take_astray() {
            // Never full: whoever is astray has its room. Closed: the task has ended, and its ticket says so.
            if let Err(error) = self.rerouting.astray.try_send(astray) {
                let (astray, now) = (error.into_inner(), Instant::now());
                self.publisher.on_found(Err((astray.ticket, Error::Closed)), now);
            }
        }
    }

    pub(super) fn on_frame(&mut self, frame: BrokerFrame) -> Option<Parting> {
        let now = Instant::now();
        match frame {
            BrokerFrame::Published(published) => {
                self.publisher.on_published(published, now);
                self.reroute();
            }
            BrokerFrame::Subscribed(subscribed) => self.readers.on_subscribed(&subscribed),
            BrokerFrame::Selected(selected) => self.readers.on_selected(&selected),
            BrokerFrame::TopicJoined(joined) => self.readers.on_topic_joined(&joined),
            BrokerFrame::TopicLeft(left) => self.readers.on_topic_left(&left),
            BrokerFrame::Tailing(tailing) => self.readers.on_tailing(&tailing),
            BrokerFrame::Unsubscribed(left) => self.readers.on_left(left.subscription),
            BrokerFrame::Untailed(left) => self.readers.on_left(left.subscription),
            BrokerFrame::Acked(acked) => self.readers.on_acked(acked.id),
            BrokerFrame::Traced(_) | BrokerFrame::Watching(_) | BrokerFrame::TraceChanged(_) => {
                tracing::warn!("news of a trace that nobody asked for");
            }
            BrokerFrame::Transacted(done) => {
                let step_id = done.step_id;
                if !self.steps.on_transacted(done) {
                    tracing::warn!(step.id = %step_id, "a step that nobody asked for");
                }
            }
            BrokerFrame::Batch(batch) => self.readers.on_batch(batch),
            BrokerFrame::LaneGranted(lane) => {
                if let Some(reset) = &lane.reset {
                    let (from, to) = (reset.from, reset.to);
                    tracing::warn!(
                        partition = lane.partition,
                        from,
                        to,
                        reason = reset.reason,
                        "the group has lost messages"
                    );
                }
                if let Some((shared, own)) = self.readers.lane(lane.subscription, lane.partition) {
                    refuse(shared.with(|inbox| inbox.on_granted(own, lane.epoch, lane.round)));
                }
            }
            BrokerFrame::LaneDraining(lane) => {
                if let Some((shared, own)) = self.readers.lane(lane.subscription, lane.partition) {
                    shared.with(|inbox| inbox.on_draining(own, lane.epoch));
                }
            }
            BrokerFrame::LaneRevoked(lane) => {
                tracing::debug!(
                    partition = lane.partition,
                    epoch = lane.epoch,
                    reason = lane.reason,
                    "lane revoked"
                );
                if let Some((shared, own)) = self.readers.lane(lane.subscription, lane.partition) {
                    refuse(shared.with(|inbox| inbox.on_revoked(own, lane.epoch)));
                }
            }
            BrokerFrame::GoAway(go_away) => {
                tracing::info!(reason = go_away.reason, delay_ms = go_away.delay_ms, "the broker is leaving");
                self.leaving = Some(now + Duration::from_millis(go_away.delay_ms));
                self.readers.flush(&mut self.next_id, &mut self.out);
            }
            BrokerFrame::Error(error) => return self.on_error(&error, now),
            BrokerFrame::Welcome(_) | BrokerFrame::Heartbeat => {}
        }
        None
    }

    fn on_error(&mut self, error: &ErrorFrame, now: Instant) -> Option<Parting> {
        if self.publisher.on_error(error, now) {
            self.reroute();
            return None;
        }
        if self.steps.on_error(error, now) {
            return None;
        }
        match self.readers.on_error(error, now) {
            Verdict::Settled => None,
            Verdict::NewSession => Some(Parting::NewSession),
            Verdict::NotOurs if error.code == ErrorCode::OutOfRange => {
                let (partition, start) = (error.partition, error.start);
                tracing::warn!(partition, start, detail = error.detail, "a tail goes on elsewhere");
                self.readers.on_moved(error);
                None
            }
            Verdict::NotOurs => {
                tracing::debug!(code = error.code.as_str(), detail = error.detail, "the broker says");
                None
            }
        }
    }
}
