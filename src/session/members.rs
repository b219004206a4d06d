//! What a session takes part in: groups and tails, by the number of their subscription.

use futures_util::future::join_all;
use laneway_client::wire::ClientFrame;

use crate::broker::groups::{GroupHandle, Leaving};
use crate::broker::tailing::TailHandle;
use crate::broker::watching::WatchHandle;
use crate::ids::SessionId;

/// A group that a session is a member of.
#[derive(Debug, Clone)]
pub(super) struct GroupMember {
    pub number: u32,
    pub group: String,
    pub topic: String,
    pub handle: GroupHandle,
}

/// One subscription.
#[derive(Debug)]
pub(super) enum Member {
    Group(GroupMember),
    Tail(TailHandle),
    Watch(WatchHandle),
}

impl Member {
    /// Hands a frame of the client on to whom it concerns.
    pub async fn forward(&self, session_id: SessionId, frame: ClientFrame) {
        match (self, frame) {
            (Member::Group(member), ClientFrame::Ack(ack)) => member.handle.ack(session_id, ack).await,
            (Member::Group(member), ClientFrame::Nack(nack)) => member.handle.nack(session_id, nack).await,
            (Member::Group(member), ClientFrame::Progress(progress)) => {
                member.handle.progress(session_id, progress).await;
            }
            (Member::Group(member), ClientFrame::Credit(credit)) => {
                member.handle.credit(session_id, credit.messages, credit.bytes).await;
            }
            (Member::Tail(tail), ClientFrame::Credit(credit)) => {
                tail.credit(credit.messages, credit.bytes).await;
            }
            (Member::Watch(_), ClientFrame::Credit(_))
            | (
                Member::Tail(_) | Member::Watch(_),
                ClientFrame::Ack(_) | ClientFrame::Nack(_) | ClientFrame::Progress(_),
            )
            | (
                Member::Group(_) | Member::Tail(_) | Member::Watch(_),
                ClientFrame::Hello(_)
                | ClientFrame::Publish(_)
                | ClientFrame::Transact(_)
                | ClientFrame::Subscribe(_)
                | ClientFrame::Unsubscribe(_)
                | ClientFrame::Tail(_)
                | ClientFrame::Untail(_)
                | ClientFrame::Trace(_)
                | ClientFrame::Watch(_)
                | ClientFrame::Heartbeat,
            ) => debug_assert!(false, "the state forwards only what a subscription takes"),
        }
    }
}

/// Leaves groups; returns when the session holds none of their lanes any more.
pub(super) async fn leave_all(session_id: SessionId, members: &[GroupMember], leaving: Leaving) {
    join_all(members.iter().map(|member| member.handle.leave(session_id, leaving))).await;
}

/// Tells groups that the connection is lost, but may come back.
pub(super) async fn detach_all(session_id: SessionId, members: &[GroupMember]) {
    join_all(members.iter().map(|member| member.handle.detach(session_id))).await;
}

/// Lets groups decide anew who gets what, after a session has gone away or come back.
pub(super) async fn reassign_all(members: &[GroupMember]) {
    join_all(members.iter().map(|member| member.handle.reassign())).await;
}
