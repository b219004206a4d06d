//! From the upgrade to `welcome`: waits for `hello`, and takes up the session that it wants to resume.
//!
//! A session that this broker knows is claimed from its old connection and attached to its groups with its epochs. One that
//! came from another broker is taken over in the database, with its lanes, whose epochs rise: its subscriptions are made
//! again under their old numbers, `welcome` lists no lane, and `lane_granted` follows for each.
//! Order: `welcome` is the first frame of a session; what its groups push meanwhile waits in the outbox.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use laneway_client::ErrorCode;
use laneway_client::wire::{
    BrokerFrame, CloseCode, ErrorFrame, Hello, Limits, Resume, ResumeOutcome, ResumeReport, ResumedLane,
    Token, Welcome, bounds,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Sessions;
use super::ending::{Ending, Verdict};
use super::fault::Refusal;
use super::members::{GroupMember, Way, leave_all};
use super::reader::Incoming;
use super::registry::{Claim, Known, Tenure, token, token_hash};
use super::remains::away;
use super::selecting::{self, Sorted};
use super::state::{Action, State};
use super::writer::FrameSink;
use crate::broker::groups::{Leaving, Subscription, Terms};
use crate::broker::outbox::{Outbox, OutboxReceiver};
use crate::broker::selections::{self, Numbers};
use crate::ids::{BrokerId, SessionId};
use crate::limits::{
    CLIENT_NAME_CHARS_MAX, CLOSE_TIMEOUT, CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX, FRAME_BYTES_MAX,
    LEASE_PATIENCE, PUBLISHES_IN_FLIGHT_MAX, SUBSCRIPTIONS_MAX,
};
use crate::store::sessions::{Membership, Taken};

/// A session whose `hello` was accepted.
#[derive(Debug)]
pub(super) struct Opened {
    pub known: Arc<Known>,
    pub tenure: Tenure,
    pub members: Vec<GroupMember>,
    pub outbox: Outbox,
    pub overflow: CancellationToken,
    /// The id of the broker before any lane was attached.
    pub broker_id: Option<BrokerId>,
    pub welcome: Box<Welcome>,
}

/// The same, with the other end of its outbox.
#[derive(Debug)]
pub(super) struct Admitted {
    pub opened: Opened,
    pub pushed: OutboxReceiver,
    /// Subscriptions that could not be made again.
    refused: Vec<ErrorFrame>,
}

/// Waits for `hello` and answers it. An ending is the answer that is still to be given.
pub(super) async fn greet(
    sessions: &Sessions,
    state: &mut State,
    inbox: &mut mpsc::Receiver<Incoming>,
    sink: &mut FrameSink,
) -> Result<Box<Admitted>, Ending> {
    loop {
        let deadline = state.next_deadline().unwrap_or_else(Instant::now);
        let actions = tokio::select! {
            biased; // a draining broker takes nobody in
            () = sessions.draining() => state.on_drain(sessions.go_away(), Instant::now()),
            incoming = inbox.recv() => match incoming {
                Some(Incoming::Frame(frame)) => state.on_frame(frame),
                Some(Incoming::Bad(error)) => state.on_bad_frame(*error),
                Some(Incoming::Ended(ending)) => state.on_ended(*ending),
                None => state.on_ended(Ending::lost()),
            },
            () = tokio::time::sleep_until(deadline.into()) => state.on_tick(Instant::now()),
        };
        for action in actions {
            match action {
                Action::Send(frame) => send(sink, &frame).await?,
                Action::Open(hello) => return open(sessions, &hello, state, sink).await,
                Action::End(ending) => return Err(ending),
                Action::Publish(_)
                | Action::Transact(_)
                | Action::Subscribe { .. }
                | Action::Select { .. }
                | Action::Tail { .. }
                | Action::Watch { .. }
                | Action::Trace(_)
                | Action::Forward { .. }
                | Action::Leave { .. }
                | Action::Untail { .. }
                | Action::Hold(_) => debug_assert!(false, "nothing of this can be asked before hello"),
            }
        }
    }
}

/// A frame of the handshake, which nobody is waited long for.
async fn send(sink: &mut FrameSink, frame: &BrokerFrame) -> Result<(), Ending> {
    let written = async {
        sink.feed(frame).await?;
        sink.flush().await
    };
    match tokio::time::timeout(CLOSE_TIMEOUT, written).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Ending::lost()),
    }
}

async fn open(
    sessions: &Sessions,
    hello: &Hello,
    state: &mut State,
    sink: &mut FrameSink,
) -> Result<Box<Admitted>, Ending> {
    let mut admitted = Box::pin(admit(sessions, hello)).await?;
    let opened = &admitted.opened;
    let client: Option<String> =
        hello.client.as_ref().map(|client| client.chars().take(CLIENT_NAME_CHARS_MAX).collect());
    tracing::debug!(session = %opened.known.session_id, ?client, "session opened");
    let heartbeat = Duration::from_millis(u64::from(opened.welcome.heartbeat_ms));
    let named =
        |member: &GroupMember| (member.number, member.group.clone(), member.topic().map(str::to_owned));
    state.on_opened(heartbeat, opened.members.iter().map(named).collect(), Instant::now());
    for error in admitted.refused.drain(..) {
        opened.outbox.push(BrokerFrame::Error(Box::new(error)));
    }
    if send(sink, &BrokerFrame::Welcome(opened.welcome.clone())).await.is_err() {
        opened.overflow.cancel(); // it ends like any session whose client does not read: a resumed one may be resumed again
    }
    Ok(admitted)
}

/// Takes a session in: the one that is wanted back, or a new one.
async fn admit(sessions: &Sessions, hello: &Hello) -> Result<Box<Admitted>, Ending> {
    let Some(Resume { session, token }) = &hello.resume else {
        return Ok(Box::new(Admitted::fresh(sessions, hello, None)));
    };
    let (session_id, hash) = (SessionId(*session), token_hash(token.as_str()));
    let reset = |reason: &str| {
        let (outcome, reason) = (ResumeOutcome::Reset, Some(reason.to_owned()));
        let report = ResumeReport { outcome, reason, lanes: Vec::new() };
        Ok(Box::new(Admitted::fresh(sessions, hello, Some(report))))
    };
    match sessions.registry().claim(session_id, &hash).await {
        Claim::Claimed { known, tenure, members } if is_elsewhere(sessions, &known).await => {
            match move_back(sessions, hello, token, (known, tenure, members)).await? {
                Some(admitted) => Ok(Box::new(admitted)),
                None => reset("session_expired"),
            }
        }
        Claim::Claimed { known, tenure, members } => {
            tracing::info!(session = %session_id, "session resumed");
            let mut admitted = Admitted::again(sessions, hello, known, tenure, token);
            let lanes = admitted.opened.attach(members).await;
            let Opened { known, members, .. } = &admitted.opened;
            away(sessions, known, members.clone(), Duration::ZERO);
            admitted.opened.welcome.resume = Some(resumed(lanes));
            Ok(Box::new(admitted))
        }
        Claim::Expired => reset("session_expired"),
        Claim::Refused => reset("unknown_session"),
        Claim::Unknown => match take(sessions, session_id, &hash, hello.id).await? {
            None => reset("unknown_session"),
            Some(taken) => {
                tracing::info!(session = %session_id, "session taken over from another broker");
                let (known, tenure) = sessions.registry().enter(session_id, hash);
                let mut admitted = Admitted::again(sessions, hello, known, tenure, token);
                admitted.refused = admitted.opened.adopt(sessions, taken).await;
                admitted.opened.welcome.resume = Some(resumed(Vec::new()));
                Ok(Box::new(admitted))
            }
        },
    }
}

fn resumed(lanes: Vec<ResumedLane>) -> ResumeReport {
    ResumeReport { outcome: ResumeOutcome::Resumed, reason: None, lanes }
}

/// Whether the session was resumed at another broker since it was lost here. If the database cannot say, it is taken for
/// ours: what it holds here is fenced anyway.
async fn is_elsewhere(sessions: &Sessions, known: &Known) -> bool {
    known.has_joined() && sessions.broker().sessions_is_elsewhere(known.session_id).await.unwrap_or(false)
}

/// Takes a session back that has been at another broker since: what this one remembers of it is made anew. `None`: it is
/// over there too.
async fn move_back(
    sessions: &Sessions,
    hello: &Hello,
    token: &Token,
    (known, tenure, members): (Arc<Known>, Tenure, Vec<GroupMember>),
) -> Result<Option<Admitted>, Ending> {
    let session_id = known.session_id;
    let taken = match take(sessions, session_id, &known.token_hash, hello.id).await {
        Ok(Some(taken)) => taken,
        over => {
            known.end(&tenure);
            leave_all(session_id, &members, Leaving::Closed).await;
            sessions.registry().forget(&known);
            return over.map(|_| None);
        }
    };
    let mut admitted = Admitted::again(sessions, hello, known, tenure, token);
    let (selections, single): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|member| member.topic().is_none());
    leave_all(session_id, &selections, Leaving::Closed).await; // before they are made again, for the same groups
    let members = single;
    admitted.refused = admitted.opened.adopt(sessions, taken).await;
    let stays = |member: &GroupMember| {
        let again = |other: &GroupMember| (&other.group, other.topic()) == (&member.group, member.topic());
        admitted.opened.members.iter().any(again)
    };
    let left: Vec<GroupMember> = members.into_iter().filter(|member| !stays(member)).collect();
    leave_all(session_id, &left, Leaving::Closed).await;
    admitted.opened.welcome.resume = Some(resumed(Vec::new()));
    Ok(Some(admitted))
}

/// What another broker has left of a session. If the database cannot say, the client has to come again: a reset would
/// throw away what may be there.
async fn take(
    sessions: &Sessions,
    session_id: SessionId,
    hash: &[u8; 32],
    id: u64,
) -> Result<Option<Taken>, Ending> {
    let broker = sessions.broker();
    let mut lease = broker.lease.clone();
    let refusal = match tokio::time::timeout(LEASE_PATIENCE, lease.held()).await {
        Ok(_) => match broker.sessions_take(session_id, hash).await {
            Ok(taken) => return Ok(taken),
            Err(error) => Refusal::from(error),
        },
        Err(_) => Refusal::new(ErrorCode::Unavailable, "the broker has no lease at the moment; try again"),
    };
    let error = Some(Box::new(refusal.into_frame(Some(id))));
    Err(Ending { error, ..Ending::of(CloseCode::TryAgainLater, Verdict::Gone) })
}

impl Admitted {
    /// A new session.
    fn fresh(sessions: &Sessions, hello: &Hello, resume: Option<ResumeReport>) -> Self {
        let token = token();
        let session_id = SessionId(Uuid::new_v4());
        let (known, tenure) = sessions.registry().enter(session_id, token_hash(&token));
        let mut admitted = Self::again(sessions, hello, known, tenure, &Token::new(token));
        admitted.opened.welcome.resume = resume;
        admitted
    }

    /// A session under its id and token.
    fn again(sessions: &Sessions, hello: &Hello, known: Arc<Known>, tenure: Tenure, token: &Token) -> Self {
        let overflow = CancellationToken::new();
        let (outbox, pushed) = Outbox::new(overflow.clone());
        let broker_id = sessions.broker().lease.broker_id();
        let welcome = Box::new(Welcome {
            id: hello.id,
            session: known.session_id.0,
            resume_token: token.clone(),
            broker: broker_id.map_or(Uuid::nil(), |broker_id| broker_id.0), // nil: it is not registered yet
            heartbeat_ms: hello.agreed_heartbeat_ms(),
            resume_grace_ms: hello.agreed_resume_grace_ms(),
            limits: limits(),
            resume: None,
        });
        let opened = Opened { known, tenure, members: Vec::new(), outbox, overflow, broker_id, welcome };
        Self { opened, pushed, refused: Vec::new() }
    }
}

impl Opened {
    /// Gives the groups their session back.
    async fn attach(&mut self, members: Vec<GroupMember>) -> Vec<ResumedLane> {
        let attach = |member: &GroupMember| {
            let (member, outbox) = (member.clone(), self.outbox.clone());
            let session_id = self.known.session_id;
            async move { member.attach(session_id, outbox).await }
        };
        let lanes = join_all(members.iter().map(attach)).await;
        self.members = members;
        lanes.into_iter().flatten().collect()
    }

    /// Makes the subscriptions again that a session had at another broker. Returns those that could not be made.
    async fn adopt(&mut self, sessions: &Sessions, taken: Taken) -> Vec<ErrorFrame> {
        self.known.on_joined();
        let Taken { memberships, selections } = taken;
        let Sorted { single: memberships, of_selections } = selecting::sort(memberships);
        let groups = &sessions.broker().groups;
        let adopt = |membership: Membership| {
            let subscription = self.subscription(&membership);
            async move {
                let (number, subscription) = subscription?;
                let Membership { group, topic, .. } = membership;
                let again = |error| {
                    let frame = Refusal::from(error).into_frame(None);
                    Box::new(ErrorFrame { subscription: Some(number), ..frame })
                };
                let subscribed = groups.subscribe(subscription).await.map_err(again)?;
                Ok(GroupMember { number, group, way: Way::Group { topic, handle: subscribed.group } })
            }
        };
        let mut adopted: Vec<Result<GroupMember, Box<ErrorFrame>>> =
            join_all(memberships.into_iter().map(adopt)).await;
        let owner = selections::Owner {
            session_id: self.known.session_id,
            resume_hash: self.known.token_hash.to_vec(),
            outbox: self.outbox.clone(),
            numbers: Numbers::default(),
        };
        for terms in &selections {
            let again = selecting::adopt(sessions.broker(), terms, owner.clone(), &of_selections).await;
            adopted.push(again);
        }
        let mut refused = Vec::new();
        for result in adopted {
            match result {
                Ok(member) => self.members.push(member),
                Err(error) => refused.push(*error),
            }
        }
        refused
    }

    fn subscription(&self, membership: &Membership) -> Result<(u32, Subscription), Box<ErrorFrame>> {
        let terms: Terms = serde_json::from_str(&membership.terms).map_err(|error| {
            tracing::error!(%error, "the terms of a membership cannot be read");
            let detail = "the terms of a subscription could not be read: subscribe again";
            Box::new(ErrorFrame::new(ErrorCode::Internal, detail))
        })?;
        let Terms { number, credit, batch, selection: _ } = terms;
        let subscription = Subscription {
            id: None,
            session_id: self.known.session_id,
            resume_hash: self.known.token_hash.to_vec(),
            number,
            group: membership.group.clone(),
            topic: membership.topic.clone(),
            selected: None,
            start: None,
            credit,
            batch,
            settings: laneway_client::wire::WantedSettings::default(),
            outbox: self.outbox.clone(),
        };
        Ok((number, subscription))
    }
}

fn limits() -> Limits {
    Limits {
        frame_bytes_max: FRAME_BYTES_MAX as u64,
        publish_messages_max: bounds::PUBLISH_MESSAGES_MAX as u32,
        publishes_in_flight_max: PUBLISHES_IN_FLIGHT_MAX as u32,
        subscriptions_max: SUBSCRIPTIONS_MAX as u32,
        credit_messages_max: CREDIT_MESSAGES_MAX as u32,
        credit_bytes_max: CREDIT_BYTES_MAX as u64,
    }
}
