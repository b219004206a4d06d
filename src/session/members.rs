//! What a session takes part in: groups, selections of topics, and tails, by the number of their subscription.

use futures_util::future::join_all;
use laneway_client::ErrorCode;
use laneway_client::wire::{BrokerFrame, ClientFrame, ErrorFrame, ResumedLane};

use crate::broker::groups::{GroupHandle, Leaving};
use crate::broker::outbox::Outbox;
use crate::broker::selections::SelectionHandle;
use crate::broker::tailing::TailHandle;
use crate::broker::watching::WatchHandle;
use crate::ids::SessionId;

/// A subscription of a session to a group.
#[derive(Debug, Clone)]
pub(super) struct GroupMember {
    pub number: u32,
    pub group: String,
    pub way: Way,
}

/// Whom a subscription is served by.
#[derive(Debug, Clone)]
pub(super) enum Way {
    Group { topic: String, handle: GroupHandle },
    Selection(SelectionHandle),
}

impl GroupMember {
    /// Its topic; `None`: it selects some.
    pub fn topic(&self) -> Option<&str> {
        match &self.way {
            Way::Group { topic, .. } => Some(topic),
            Way::Selection(_) => None,
        }
    }

    pub async fn leave(&self, session_id: SessionId, leaving: Leaving) {
        match &self.way {
            Way::Group { handle, .. } => handle.leave(session_id, leaving).await,
            Way::Selection(selection) => selection.leave(leaving).await,
        }
    }

    async fn detach(&self, session_id: SessionId) {
        match &self.way {
            Way::Group { handle, .. } => handle.detach(session_id).await,
            Way::Selection(selection) => selection.detach().await,
        }
    }

    async fn reassign(&self) {
        match &self.way {
            Way::Group { handle, .. } => handle.reassign().await,
            Way::Selection(selection) => selection.reassign().await,
        }
    }

    pub async fn attach(&self, session_id: SessionId, outbox: Outbox) -> Vec<ResumedLane> {
        match &self.way {
            Way::Group { handle, .. } => handle.attach(session_id, outbox).await,
            Way::Selection(selection) => selection.attach(outbox).await,
        }
    }
}

/// One subscription.
#[derive(Debug)]
pub(super) enum Member {
    Group(GroupMember),
    Tail(TailHandle),
    Watch(WatchHandle),
}

impl Member {
    /// The selection that it is, if it is one.
    pub fn selection(&self) -> Option<&SelectionHandle> {
        match self {
            Member::Group(GroupMember { way: Way::Selection(selection), .. }) => Some(selection),
            Member::Group(GroupMember { way: Way::Group { .. }, .. })
            | Member::Tail(_)
            | Member::Watch(_) => None,
        }
    }

    /// Hands a frame of the client on to whom it concerns.
    pub async fn forward(&self, session_id: SessionId, frame: ClientFrame, outbox: &Outbox) {
        match (self, frame) {
            (Member::Group(GroupMember { way: Way::Group { handle, .. }, .. }), frame) => {
                to_group(handle, session_id, frame).await;
            }
            (
                Member::Group(GroupMember { way: Way::Selection(selection), number, .. }),
                ClientFrame::Credit(credit),
            ) => {
                if let Err(error) = selection.credit(credit.messages, credit.bytes) {
                    let mut frame = ErrorFrame::new(ErrorCode::InvalidCredit, error.to_string());
                    frame.subscription = Some(*number);
                    outbox.push(BrokerFrame::Error(Box::new(frame)));
                }
            }
            (Member::Tail(tail), ClientFrame::Credit(credit)) => {
                tail.credit(credit.messages, credit.bytes).await;
            }
            (Member::Group(_) | Member::Tail(_) | Member::Watch(_), _other) => {
                debug_assert!(false, "the state forwards only what a subscription takes");
            }
        }
    }
}

/// Hands a frame of the client on to a group.
pub(super) async fn to_group(handle: &GroupHandle, session_id: SessionId, frame: ClientFrame) {
    match frame {
        ClientFrame::Ack(ack) => handle.ack(session_id, ack).await,
        ClientFrame::Nack(nack) => handle.nack(session_id, nack).await,
        ClientFrame::Progress(progress) => handle.progress(session_id, progress).await,
        ClientFrame::Credit(credit) => handle.credit(session_id, credit.messages, credit.bytes).await,
        ClientFrame::Hello(_)
        | ClientFrame::Publish(_)
        | ClientFrame::Transact(_)
        | ClientFrame::Subscribe(_)
        | ClientFrame::Select(_)
        | ClientFrame::Unsubscribe(_)
        | ClientFrame::Tail(_)
        | ClientFrame::Untail(_)
        | ClientFrame::Trace(_)
        | ClientFrame::Watch(_)
        | ClientFrame::Heartbeat => debug_assert!(false, "the state forwards only what a group takes"),
    }
}

/// Leaves groups; returns when the session holds none of their lanes any more.
pub(super) async fn leave_all(session_id: SessionId, members: &[GroupMember], leaving: Leaving) {
    join_all(members.iter().map(|member| member.leave(session_id, leaving))).await;
}

/// Tells groups that the connection is lost, but may come back.
pub(super) async fn detach_all(session_id: SessionId, members: &[GroupMember]) {
    join_all(members.iter().map(|member| member.detach(session_id))).await;
}

/// Lets groups decide anew who gets what, after a session has gone away or come back.
pub(super) async fn reassign_all(members: &[GroupMember]) {
    join_all(members.iter().map(GroupMember::reassign)).await;
}
