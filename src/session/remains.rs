//! What remains of a session when its connection has ended: it is settled with its groups, or waits for its client.
//!
//! Lives after the socket, without it: for the grace that the client has asked for, and until the groups hold nothing of the
//! session any more. Cut off only when the broker itself ends.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::Sessions;
use super::ending::Verdict;
use super::members::{GroupMember, detach_all, leave_all, reassign_all};
use super::registry::{Known, Tenure};
use crate::broker::groups::Leaving;
use crate::limits::TAKEOVER_TIMEOUT;

pub(super) struct Remains {
    pub sessions: Sessions,
    pub known: Arc<Known>,
    pub tenure: Tenure,
    /// How long its client may take to come back.
    pub grace: Duration,
    pub members: Vec<GroupMember>,
    /// Groups that were being left: nobody comes back to them.
    pub leaving: Vec<GroupMember>,
    /// Groups that are still being joined.
    pub late: Pin<Box<dyn Future<Output = Vec<GroupMember>> + Send>>,
}

impl Remains {
    /// Tells the groups how the session ended, or keeps it for its client for a while.
    pub async fn settle(mut self, verdict: Verdict) {
        tracing::debug!(session = %self.known.session_id, ?verdict, "session ended");
        let (session_id, leaving) = (self.known.session_id, std::mem::take(&mut self.leaving));
        let (left, grace) = match verdict {
            Verdict::Gone => (Leaving::Closed, None),
            Verdict::Lost => (Leaving::Crashed, (!self.grace.is_zero()).then_some(self.grace)),
            Verdict::TakenOver => (Leaving::Closed, Some(self.grace.max(TAKEOVER_TIMEOUT))),
        };
        let (sessions, known) = (self.sessions.clone(), self.known.clone());
        let rest = async move {
            match grace {
                None => self.leave(left).await,
                Some(grace) => self.park(grace).await,
            }
        };
        let ((), ended) = tokio::join!(leave_all(session_id, &leaving, left), rest);
        if ended == Ended::ForGood {
            forget(&sessions, &known).await; // frees lanes: only after every group has written down what was done
        }
    }

    /// Nobody may come back.
    async fn leave(self, leaving: Leaving) -> Ended {
        self.known.end(&self.tenure);
        let session_id = self.known.session_id;
        let late = async { leave_all(session_id, &self.late.await, leaving).await };
        tokio::join!(leave_all(session_id, &self.members, leaving), late);
        Ended::ForGood
    }

    /// Waits for the client.
    async fn park(self, grace: Duration) -> Ended {
        let Self { sessions, known, tenure, mut members, late, .. } = self;
        detach_all(known.session_id, &members).await;
        let late = late.await;
        detach_all(known.session_id, &late).await;
        members.extend(late);
        let groups = members.clone();
        known.park(&tenure, members);
        tracing::debug!(session = %known.session_id, ?grace, "session parked");
        tokio::select! {
            () = known.claimed_from(&tenure) => return Ended::Claimed,
            () = tokio::time::sleep(AWAY_AFTER.min(grace)) => away(&sessions, &known, groups, grace),
        }
        let leaving = tokio::select! {
            biased; // a client that came in time has come
            () = known.claimed_from(&tenure) => return Ended::Claimed,
            () = sessions.draining() => Leaving::Closed, // not the client's fault
            () = tokio::time::sleep(grace) => Leaving::Crashed,
        };
        let Some(members) = known.end(&tenure) else { return Ended::Claimed }; // at the last moment
        leave_all(known.session_id, &members, leaving).await;
        Ended::ForGood
    }
}

/// What became of what remained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Its client came back: somebody else has it now.
    Claimed,
    ForGood,
}

/// A client that comes back at once was not away.
const AWAY_AFTER: Duration = Duration::from_millis(50);

/// While it is away, what becomes free goes to others. Beside everything else: nobody waits for it.
pub(super) fn away(sessions: &Sessions, known: &Known, groups: Vec<GroupMember>, grace: Duration) {
    let (broker, session_id) = (sessions.broker().clone(), known.session_id);
    tokio::spawn(async move {
        if !groups.is_empty() {
            broker.sessions_away(session_id, grace).await;
            reassign_all(&groups).await;
        }
    });
}

/// The session holds nothing any more.
async fn forget(sessions: &Sessions, known: &Arc<Known>) {
    if known.has_joined() {
        sessions.broker().sessions_close(known.session_id).await;
    }
    sessions.registry().forget(known);
}
