//! The task that owns everything a client has: its connection, its publishes, its readers. It ends with the last handle.
//!
//! It never waits for the socket: frames that do not fit wait in `out` and in the structures that they are made from, which
//! are bounded by room (publishes) and credit (deliveries). So it always reads, and neither side can block the other.
//! Order: what the broker says comes first, then what is to be sent, then what users ask for.

mod hearing;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::Leftover;
use super::connection::Connection;
use super::error::Error;
use super::link::{self, DialError, Ending, Incoming, Link, ToWriter};
use super::options::{Options, backoff};
use super::publisher::{Admitted, Publisher};
use super::readers::{NewReader, Readers};
use super::reroute::Rerouting;
use super::step::NewStep;
use super::steps::Steps;
use crate::wire::bounds::HEARTBEATS_MISSED_MAX;
use crate::wire::{ClientFrame, Hello, Limits, Resume};

/// Requests that are taken in one turn: what waits together goes into one frame.
const TURN_REQUESTS_MAX: usize = 1_024;
/// How long the broker may take to answer our close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest sleep of the owner: a timer that is computed wrongly costs no more.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// What users ask for.
#[derive(Debug)]
pub(super) enum Request {
    Publish(Box<Admitted>),
    Step(Box<NewStep>),
    Open(Box<NewReader>),
    Close(oneshot::Sender<Leftover>),
}

/// How the time on a connection ended.
#[derive(Debug)]
enum Parting {
    Ended(Ending),
    /// We have closed it, and are done.
    Done,
    /// The session cannot be used any more.
    NewSession,
    /// Nothing was heard for too long.
    Silent,
}

#[derive(Debug)]
struct Closing {
    deadline: Instant,
    reply: Option<oneshot::Sender<Leftover>>,
    /// Acks that had been refused before.
    refused: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Owner {
    options: Options,
    urls: Vec<String>,
    tls: Arc<ClientConfig>,
    /// The address of the connection, or the one to try next.
    url: usize,
    requests: mpsc::Receiver<Request>,
    wake: Arc<Notify>,
    limits: Arc<Mutex<Limits>>,
    connection: watch::Sender<Connection>,
    rerouting: Rerouting,
    publisher: Publisher,
    steps: Steps,
    readers: Readers,
    out: VecDeque<ClientFrame>,
    next_id: u64,
    session: Option<Resume>,
    closing: Option<Closing>,
    /// The broker has said goodbye: when to connect again.
    leaving: Option<Instant>,
}

/// What an owner is made from.
#[derive(Debug)]
pub(super) struct Parts {
    pub options: Options,
    pub urls: Vec<String>,
    pub tls: Arc<ClientConfig>,
    pub requests: mpsc::Receiver<Request>,
    pub wake: Arc<Notify>,
    pub limits: Arc<Mutex<Limits>>,
    pub connection: watch::Sender<Connection>,
    pub rerouting: Rerouting,
}

/// The hello of a client.
pub(super) fn hello(options: &Options, id: u64, resume: Option<Resume>) -> Hello {
    let ms = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
    Hello {
        id,
        client: options.name.clone(),
        token: None,
        resume,
        resume_grace_ms: Some(ms(options.resume_grace)),
        heartbeat_ms: Some(ms(options.heartbeat)),
    }
}

impl Owner {
    pub fn new(parts: Parts, url: usize) -> Self {
        let Parts { options, urls, tls, requests, wake, limits, connection, rerouting } = parts;
        Self {
            publisher: Publisher::new(&options),
            options,
            urls,
            tls,
            url,
            requests,
            wake,
            limits,
            connection,
            rerouting,
            steps: Steps::default(),
            readers: Readers::default(),
            out: VecDeque::new(),
            next_id: 1,
            session: None,
            closing: None,
            leaving: None,
        }
    }

    /// Cancel safety: none. Spawned once and polled to completion.
    pub async fn run(mut self, first: Link) {
        let mut link = first;
        let error = loop {
            let parting = self.serve(link).await;
            self.publisher.on_disconnected();
            self.steps.on_disconnected(Instant::now());
            self.out.clear();
            match self.next(parting).await {
                Ok(next) => link = next,
                Err(error) => break error,
            }
        };
        if let Some(Closing { reply, refused, .. }) = self.closing.take() {
            let leftover = self.leftover(refused);
            let is_told = reply.is_some_and(|reply| reply.send(leftover).is_ok());
            if !is_told && !leftover.is_empty() {
                let Leftover { publishes, steps, lanes } = leftover;
                tracing::warn!(publishes, steps, lanes, "closed before everything was confirmed");
            }
        }
        self.publisher.end(&error);
        self.steps.end(&error);
        self.readers.end(&error);
    }

    fn leftover(&self, refused_before: usize) -> Leftover {
        let refused = self.readers.acks_refused() - refused_before;
        let lanes = self.readers.lanes_unconfirmed() + refused;
        Leftover { publishes: self.publisher.waiting(), steps: self.steps.len(), lanes }
    }

    /// The next connection, or why there is none.
    async fn next(&mut self, parting: Parting) -> Result<Link, Error> {
        let leaving = self.leaving.take();
        let reason = match parting {
            Parting::Done => return Err(Error::Closed),
            Parting::NewSession => {
                self.session = None;
                "the session is begun anew".to_owned()
            }
            Parting::Silent => "nothing was heard from the broker".to_owned(),
            Parting::Ended(ending) => match ending.stopped() {
                Some(error) => return Err(error),
                None => ending.to_string(),
            },
        };
        tracing::info!(reason, "connection lost");
        self.connection.send_modify(|told| *told = Connection::Down { losses: told.losses() + 1, reason });
        if let Some(at) = leaving {
            self.url += 1;
            let pause = tokio::time::sleep_until(at.into());
            self.meanwhile(pause).await.ok_or(Error::Closed)?;
        }
        self.redial().await
    }

    async fn redial(&mut self) -> Result<Link, Error> {
        for tries in 0_u32.. {
            let rounds = tries / self.urls.len() as u32;
            if tries.is_multiple_of(self.urls.len() as u32) {
                let (min, max) = (self.options.backoff_min, self.options.backoff_max);
                let pause = backoff(rounds, min, max, rand::random());
                self.meanwhile(tokio::time::sleep(pause)).await.ok_or(Error::Closed)?;
            }
            let url = self.urls[self.url % self.urls.len()].clone();
            self.next_id += 1;
            let hello = hello(&self.options, self.next_id, self.session.clone());
            let tls = self.tls.clone();
            let (subprotocol, timeout) = (self.options.subprotocol, self.options.connect_timeout);
            let dial = link::dial(&url, &tls, subprotocol, hello, timeout);
            match self.meanwhile(dial).await.ok_or(Error::Closed)? {
                Ok(link) => return Ok(link),
                Err(DialError::Refused(error)) => return Err(error),
                Err(DialError::Away(reason)) => {
                    tracing::debug!(url, reason, "no connection");
                    self.url += 1;
                }
            }
        }
        Err(Error::Closed)
    }

    /// Waits for something while nobody is connected; requests and deadlines go on. `None`: the client is done.
    async fn meanwhile<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        loop {
            let now = Instant::now();
            let wake_at = self.publisher.on_time(now).unwrap_or(now + SLEEP_MAX).min(now + SLEEP_MAX);
            if let Some(closing) = &self.closing
                && (now >= closing.deadline || (self.is_answered() && self.readers.lanes_unconfirmed() == 0))
            {
                return None;
            }
            tokio::select! {
                biased;
                done = &mut future => return Some(done),
                Some(found) = self.rerouting.found.recv() => self.on_found(found),
                request = self.requests.recv(), if self.closing.is_none() => self.on_request(request),
                () = tokio::time::sleep_until(wake_at.into()) => {}
            }
        }
    }

    /// One connection from its welcome to its end.
    async fn serve(&mut self, mut link: Link) -> Parting {
        let heartbeat = self.on_welcome(&link);
        let (mut heard_at, mut sent_at, mut closed_at) = (Instant::now(), Instant::now(), None);
        loop {
            let now = Instant::now();
            let (sent, is_blocked) = self.pump(&link, now, closed_at.is_some());
            if sent {
                sent_at = now;
            }
            if now >= heard_at + heartbeat * HEARTBEATS_MISSED_MAX {
                return Parting::Silent;
            }
            if closed_at.is_none() && self.is_drained(now) {
                // A writer that is gone is noticed by the reader; one that is stuck gets no last word in.
                link.outgoing.try_send(ToWriter::Close).ok();
                closed_at = Some(now + CLOSE_TIMEOUT);
            }
            if closed_at.is_some_and(|until| now >= until) {
                return Parting::Done;
            }
            if now >= sent_at + heartbeat && closed_at.is_none() && !is_blocked {
                self.out.push_back(ClientFrame::Heartbeat);
                continue;
            }
            // While nothing can be sent, what is due waits for room, and not for a moment that has passed.
            let can_send = !is_blocked && closed_at.is_none();
            let beat_at = can_send.then_some(sent_at + heartbeat);
            let readers_at = self.readers.wake_at(self.leaving.is_none()).filter(|_| can_send);
            let steps_at = self.steps.wake_at(now).filter(|_| can_send);
            let silent_at = Some(heard_at + heartbeat * HEARTBEATS_MISSED_MAX);
            let due = [beat_at, readers_at, steps_at, closed_at, self.publisher.on_time(now), silent_at];
            let wake_at = due.into_iter().flatten().fold(now + SLEEP_MAX, Instant::min);
            tokio::select! {
                biased; // see the module
                news = link.incoming.recv() => {
                    heard_at = Instant::now();
                    let ended = match news {
                        Some(Incoming::Frame(frame)) => self.on_frame(frame),
                        Some(Incoming::Ended(ending)) => Some(Parting::Ended(ending)),
                        None => Some(Parting::Ended(Ending::Lost { reason: "the connection has ended".to_owned() })),
                    };
                    match ended {
                        Some(_) if closed_at.is_some() => return Parting::Done,
                        Some(Parting::NewSession) => {
                            // The old one says goodbye: nobody waits for it to be resumed.
                            link.outgoing.try_send(ToWriter::Close).ok();
                            return Parting::NewSession;
                        }
                        Some(parting) => return parting,
                        None => {}
                    }
                }
                _ = link.outgoing.reserve(), if is_blocked => {}
                Some(found) = self.rerouting.found.recv() => self.on_found(found),
                request = self.requests.recv(), if self.closing.is_none() => self.on_request(request),
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(wake_at.into()) => {}
            }
        }
    }

    /// Takes the news of a new connection in. Returns its heartbeat.
    fn on_welcome(&mut self, link: &Link) -> Duration {
        let welcome = &link.welcome;
        self.connection.send_modify(|told| *told = Connection::Up { losses: told.losses() });
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = welcome.limits;
        self.session = Some(Resume { session: welcome.session, token: welcome.resume_token.clone() });
        let now = Instant::now();
        self.readers.on_welcome(welcome.resume.as_ref(), now, &mut self.next_id, &mut self.out);
        Duration::from_millis(welcome.heartbeat_ms.into())
    }

    /// Hands frames to the writer while it takes them. Whether any was handed over, and whether more wait for room.
    fn pump(&mut self, link: &Link, now: Instant, is_closed: bool) -> (bool, bool) {
        let mut sent = false;
        if is_closed {
            return (false, false);
        }
        loop {
            let permit = match link.outgoing.try_reserve() {
                Ok(permit) => permit,
                Err(mpsc::error::TrySendError::Full(())) => return (sent, true),
                Err(mpsc::error::TrySendError::Closed(())) => return (sent, false),
            };
            let Some(frame) = self.next_frame(now) else { break };
            permit.send(ToWriter::Frame(Box::new(frame)));
            sent = true;
        }
        (sent, false)
    }

    fn next_frame(&mut self, now: Instant) -> Option<ClientFrame> {
        if self.out.is_empty() {
            let limits = *self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            if self.leaving.is_none() {
                self.readers.ask(now, &mut self.next_id, &limits, &mut self.out);
            }
            self.readers.collect(now, self.options.ack_pause, &mut self.next_id, &mut self.out);
            if self.out.is_empty()
                && let Some(step) = self.next_step(now, &limits)
            {
                return Some(step); // also to a broker that is leaving: it finishes what is in flight
            }
            if self.out.is_empty() && self.leaving.is_none() {
                let publish = self.publisher.next_frame(self.next_id + 1, now, &self.options, &limits)?;
                self.next_id += 1;
                return Some(ClientFrame::Publish(publish));
            }
        }
        self.out.pop_front()
    }

    /// A broker counts steps and publishes together: publishes keep their share.
    fn next_step(&mut self, now: Instant, limits: &Limits) -> Option<ClientFrame> {
        let most = limits.publishes_in_flight_max as usize;
        let most = most.saturating_sub(self.options.publishes_in_flight_max).max(1);
        self.steps.next_frame(now, most, &self.readers, &mut self.next_id).map(ClientFrame::Transact)
    }

    /// Whether nobody waits for a receipt or for the answer to a step.
    fn is_answered(&self) -> bool {
        self.publisher.is_idle() && self.steps.len() == 0
    }

    /// Whether a client that is closing has nothing left to wait for. Asks for the last confirmations when it is time.
    fn is_drained(&mut self, now: Instant) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        if now >= closing.deadline {
            return true;
        }
        if !self.is_answered() || !self.out.is_empty() || !self.readers.is_answered() {
            return false;
        }
        if self.readers.lanes_unconfirmed() > 0 {
            self.readers.confirm_all(&mut self.next_id, &mut self.out);
            self.wake.notify_one(); // once more around, to send them
            return false;
        }
        true
    }

    fn on_request(&mut self, request: Option<Request>) {
        let now = Instant::now();
        let mut next = request;
        for _ in 0..TURN_REQUESTS_MAX {
            match next {
                Some(Request::Publish(admitted)) => self.publisher.admit(*admitted, now),
                Some(Request::Step(step)) => self.steps.admit(*step, now),
                Some(Request::Open(reader)) => return self.readers.open(*reader, now),
                Some(Request::Close(reply)) => return self.close(Some(reply), now),
                None => return self.close(None, now), // no handles left: nobody can be waiting
            }
            next = self.requests.try_recv().ok();
            if next.is_none() {
                return;
            }
        }
        if let Some(left) = next {
            self.on_request(Some(left));
        }
    }

    fn close(&mut self, reply: Option<oneshot::Sender<Leftover>>, now: Instant) {
        let deadline = now + self.options.close_timeout;
        self.closing = Some(Closing { deadline, reply, refused: self.readers.acks_refused() });
    }
}
