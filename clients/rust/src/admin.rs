//! Topics, messages, groups, lanes, brokers and dead letters over HTTP: what the command line and operators' programs use.

use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use url::Url;

use crate::capacity::RetentionHistory;
use crate::dead_letter::{DeadLetter, DeadLetterList, DeadLetterQuery, Replayed};
use crate::group_api::{BrokerList, GroupDetail, GroupList, GroupQuery, LaneList, LaneQuery, Seek, Sought};
use crate::labels::Labels;
use crate::message::{PublishMessage, PublishResult, StoredMessage};
use crate::parked::{ParkedKey, ParkedList, ParkedQuery};
use crate::problem::Problem;
use crate::schedule::{MoveSchedule, Schedule, ScheduleList, ScheduleQuery};
use crate::tls::{self, CaError};
use crate::topic::{AlterTopic, CreateTopic, TopicDetail, TopicList};
use crate::trace::Trace;
use crate::wire::WantedSettings;

/// Where a broker listens unless it is told otherwise.
pub const DEFAULT_URL: &str = "ws://127.0.0.1:7420/v1/ws";

/// The header in which `/healthz` names the broker's version.
pub const VERSION_HEADER: &str = "laneway-version";

/// An answer that takes longer is given up; making a topic of 1,000 partitions takes well under a second.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why an administrative request failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is none of a broker.
    #[error("{url:?} is not the address of a broker: give one like {DEFAULT_URL}")]
    Address {
        /// As it was given.
        url: String,
    },
    /// Certificates that were given cannot be used.
    #[error(transparent)]
    Certificates(#[from] CaError),
    /// Nobody answered.
    #[error("no broker answers at {url}: {reason} (is `laneway serve` running there?)")]
    Unreachable {
        /// The address tried.
        url: String,
        /// What the connection said.
        reason: String,
    },
    /// The broker refused, with its reason.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The answer is none that this client understands.
    #[error("the answer of {url} is not one of a Laneway broker ({status}): {reason}")]
    Foreign {
        /// The address tried.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        reason: String,
    },
}

/// A handle on one broker's HTTP API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admin {
    pub(crate) http: reqwest::Client,
    base: Url,
}

impl Admin {
    /// Takes the same address as a client (`ws://host:port/v1/ws`), or an HTTP one; no connection is made yet.
    ///
    /// ```
    /// use laneway_client::Admin;
    /// assert!(Admin::new("ws://127.0.0.1:7420/v1/ws").is_ok());
    /// assert!(Admin::new("http://127.0.0.1:7420").is_ok());
    /// assert!(Admin::new("127.0.0.1").is_err());
    /// ```
    pub fn new(url: &str) -> Result<Self, AdminError> {
        let config = tls::config([url], tls::Extra::default())?;
        Self::with_tls(url, (*config).clone())
    }

    /// As [`new`](Self::new), for `wss://` and `https://`: believes the authorities of a PEM file, too.
    pub fn with_ca_file(url: &str, file: &Path) -> Result<Self, AdminError> {
        let config = tls::config([url], tls::Extra { file: Some(file), pem: None })?;
        Self::with_tls(url, (*config).clone())
    }

    pub(crate) fn with_tls(url: &str, tls: rustls::ClientConfig) -> Result<Self, AdminError> {
        let bad = || AdminError::Address { url: url.to_owned() };
        let mut base = Url::parse(url).map_err(|_| bad())?;
        let scheme = match base.scheme() {
            "ws" | "http" => "http",
            "wss" | "https" => "https",
            _ => return Err(bad()),
        };
        base.set_scheme(scheme).map_err(|()| bad())?;
        base.set_path("/");
        let builder = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).no_proxy();
        let http = builder.tls_backend_preconfigured(tls).build().map_err(|_| bad())?;
        Ok(Self { http, base })
    }

    /// Asks the broker whether it lives. Answers its version, if it names one.
    pub async fn health(&self) -> Result<Option<String>, AdminError> {
        let url = self.base.to_string();
        let unreachable =
            |error: reqwest::Error| AdminError::Unreachable { url: url.clone(), reason: innermost(&error) };
        let response = self.http.get(self.url(&["healthz"])).send().await.map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            let reason = "it is not healthy".to_owned();
            return Err(AdminError::Foreign { url, status: status.as_u16(), reason });
        }
        let version = response.headers().get(VERSION_HEADER).and_then(|value| value.to_str().ok());
        Ok(version.map(str::to_owned))
    }

    /// Asks the broker whether it can do its work now.
    pub async fn ready(&self) -> Result<(), AdminError> {
        self.done(self.http.get(self.url(&["readyz"]))).await
    }

    /// Makes a topic.
    pub async fn create_topic(&self, topic: &CreateTopic) -> Result<TopicDetail, AdminError> {
        self.answer(self.http.post(self.url(&["v1", "topics"])).json(topic)).await
    }

    /// One page of topics by name, after a given one.
    pub async fn list_topics(&self, after: Option<&str>) -> Result<TopicList, AdminError> {
        self.list_labelled_topics(after, &Labels::new()).await
    }

    /// As [`list_topics`](Self::list_topics), those that have all of these labels.
    pub async fn list_labelled_topics(
        &self,
        after: Option<&str>,
        labels: &Labels,
    ) -> Result<TopicList, AdminError> {
        let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let labels = (!pairs.is_empty()).then(|| pairs.join(","));
        let pairs = [("after", after.map(str::to_owned)), ("labels", labels)];
        self.answer(self.http.get(with_query(self.url(&["v1", "topics"]), pairs))).await
    }

    /// One topic with its partitions.
    pub async fn show_topic(&self, name: &str) -> Result<TopicDetail, AdminError> {
        self.answer(self.http.get(self.url(&["v1", "topics", name]))).await
    }

    /// Everything that is known about a trace.
    pub async fn show_trace(&self, trace_id: uuid::Uuid) -> Result<Trace, AdminError> {
        self.answer(self.http.get(self.url(&["v1", "traces", &trace_id.to_string()]))).await
    }

    /// Deletes a topic with everything in it.
    pub async fn delete_topic(&self, name: &str) -> Result<(), AdminError> {
        self.done(self.http.delete(self.url(&["v1", "topics", name]))).await
    }

    /// Changes settings of a topic, or adds partitions.
    pub async fn alter_topic(&self, name: &str, changes: &AlterTopic) -> Result<TopicDetail, AdminError> {
        self.answer(self.http.patch(self.url(&["v1", "topics", name])).json(changes)).await
    }

    /// One page of what retention has dropped of a topic, newest first; `before`: only what is older than this event.
    pub async fn show_retention(
        &self,
        name: &str,
        before: Option<i64>,
        limit: Option<u32>,
    ) -> Result<RetentionHistory, AdminError> {
        let mut url = self.url(&["v1", "topics", name, "retention"]);
        for (key, value) in [("before", before), ("limit", limit.map(i64::from))] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(key, &value.to_string());
            }
        }
        self.answer(self.http.get(url)).await
    }

    /// One page of groups.
    pub async fn list_groups(&self, query: &GroupQuery) -> Result<GroupList, AdminError> {
        let limit = query.limit.map(|limit| limit.to_string());
        let pairs = [("topic", query.topic.clone()), ("after", query.after.clone()), ("limit", limit)];
        self.answer(self.http.get(with_query(self.url(&["v1", "groups"]), pairs))).await
    }

    /// One group with its members and lanes.
    pub async fn show_group(&self, topic: &str, group: &str) -> Result<GroupDetail, AdminError> {
        self.answer(self.http.get(self.group(topic, group, &[]))).await
    }

    /// Changes settings of a group, for all its members; what is left out stays as it is.
    pub async fn alter_group(
        &self,
        topic: &str,
        group: &str,
        changes: &WantedSettings,
    ) -> Result<GroupDetail, AdminError> {
        self.answer(self.http.patch(self.group(topic, group, &[])).json(changes)).await
    }

    /// Deletes a group that has no members and no parked keys.
    pub async fn delete_group(&self, topic: &str, group: &str) -> Result<(), AdminError> {
        self.done(self.http.delete(self.group(topic, group, &[]))).await
    }

    /// Deletes a group whether it has members or not, and with its parked keys; members are told `unknown_group`.
    pub async fn delete_group_with_members(&self, topic: &str, group: &str) -> Result<(), AdminError> {
        let force = [("force", Some("true".to_owned()))];
        self.done(self.http.delete(with_query(self.group(topic, group, &[]), force))).await
    }

    /// Moves a group to another place, live.
    pub async fn seek_group(&self, topic: &str, group: &str, seek: &Seek) -> Result<Sought, AdminError> {
        self.answer(self.http.post(self.group(topic, group, &["seek"])).json(seek)).await
    }

    /// One page of lanes.
    pub async fn list_lanes(&self, query: &LaneQuery) -> Result<LaneList, AdminError> {
        let limit = query.limit.map(|limit| limit.to_string());
        let (topic, group, after) = (query.topic.clone(), query.group.clone(), query.after.clone());
        let pairs = [("topic", topic), ("group", group), ("after", after), ("limit", limit)];
        self.answer(self.http.get(with_query(self.url(&["v1", "lanes"]), pairs))).await
    }

    /// The brokers that live, and those that were buried lately.
    pub async fn list_brokers(&self) -> Result<BrokerList, AdminError> {
        self.answer(self.http.get(self.url(&["v1", "brokers"]))).await
    }

    /// One page of dead letters.
    pub async fn list_dead_letters(&self, query: &DeadLetterQuery) -> Result<DeadLetterList, AdminError> {
        let pairs = [
            ("topic", query.topic.clone()),
            ("group", query.group.clone()),
            ("after", query.after.map(|after| after.to_string())),
            ("limit", query.limit.map(|limit| limit.to_string())),
        ];
        self.answer(self.http.get(with_query(self.url(&["v1", "dead-letters"]), pairs))).await
    }

    /// One dead letter.
    pub async fn show_dead_letter(&self, id: i64) -> Result<DeadLetter, AdminError> {
        self.answer(self.http.get(self.dead_letter(id, &[]))).await
    }

    /// Publishes a dead letter to its partition again; it is no dead letter any more from then on.
    pub async fn replay_dead_letter(&self, id: i64) -> Result<Replayed, AdminError> {
        self.answer(self.http.post(self.dead_letter(id, &["replay"]))).await
    }

    /// Drops a dead letter for good.
    pub async fn delete_dead_letter(&self, id: i64) -> Result<(), AdminError> {
        self.done(self.http.delete(self.dead_letter(id, &[]))).await
    }

    /// One page of parked keys, oldest first.
    pub async fn list_parked(&self, query: &ParkedQuery) -> Result<ParkedList, AdminError> {
        let pairs = [
            ("topic", query.topic.clone()),
            ("group", query.group.clone()),
            ("after", query.after.map(|after| after.to_string())),
            ("limit", query.limit.map(|limit| limit.to_string())),
        ];
        self.answer(self.http.get(with_query(self.url(&["v1", "parked"]), pairs))).await
    }

    /// A parked key with its first message.
    pub async fn show_parked(&self, id: i64) -> Result<ParkedKey, AdminError> {
        self.answer(self.http.get(self.parked(id, &[]))).await
    }

    /// Delivers the messages of a parked key again, in order. Returns the key as it was.
    pub async fn replay_parked(&self, id: i64) -> Result<ParkedKey, AdminError> {
        self.answer(self.http.post(self.parked(id, &["replay"]))).await
    }

    /// Drops the first message of a parked key, and delivers those behind it. Returns the key as it was.
    pub async fn drop_parked(&self, id: i64) -> Result<ParkedKey, AdminError> {
        self.answer(self.http.post(self.parked(id, &["drop"]))).await
    }

    /// One page of the messages that wait for their time, in the order in which they were published.
    pub async fn list_schedules(&self, query: &ScheduleQuery) -> Result<ScheduleList, AdminError> {
        let pairs = [
            ("topic", query.topic.clone()),
            ("after", query.after.map(|after| after.to_string())),
            ("limit", query.limit.map(|limit| limit.to_string())),
        ];
        self.answer(self.http.get(with_query(self.url(&["v1", "schedules"]), pairs))).await
    }

    /// One message that waits for its time.
    pub async fn show_schedule(&self, id: i64) -> Result<Schedule, AdminError> {
        self.answer(self.http.get(self.schedule(id))).await
    }

    /// Gives a message that waits another time.
    pub async fn move_schedule(&self, id: i64, to: &MoveSchedule) -> Result<Schedule, AdminError> {
        self.answer(self.http.patch(self.schedule(id)).json(to)).await
    }

    /// Cancels a message that waits: it is never appended.
    pub async fn cancel_schedule(&self, id: i64) -> Result<(), AdminError> {
        self.done(self.http.delete(self.schedule(id))).await
    }

    /// Publishes one message; a numbered one needs a producer, and so [`Client::publish`](crate::Client::publish).
    pub async fn publish_message(
        &self,
        topic: &str,
        message: &PublishMessage,
    ) -> Result<PublishResult, AdminError> {
        self.answer(self.http.post(self.url(&["v1", "topics", topic, "message"])).json(message)).await
    }

    /// Reads one message.
    pub async fn show_message(
        &self,
        topic: &str,
        partition: u32,
        offset: i64,
    ) -> Result<StoredMessage, AdminError> {
        let (partition, offset) = (partition.to_string(), offset.to_string());
        let path = ["v1", "topics", topic, "partitions", &partition, "messages", &offset];
        self.answer(self.http.get(self.url(&path))).await
    }

    pub(crate) fn group(&self, topic: &str, group: &str, action: &[&str]) -> Url {
        self.url(&[&["v1", "topics", topic, "groups", group], action].concat())
    }

    /// Asks something of a group.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        topic: &str,
        group: &str,
        action: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, AdminError> {
        self.answer(self.http.post(self.group(topic, group, &[action])).json(body)).await
    }

    fn parked(&self, id: i64, action: &[&str]) -> Url {
        let id = id.to_string();
        let parts: Vec<&str> = ["v1", "parked", &id].into_iter().chain(action.iter().copied()).collect();
        self.url(&parts)
    }

    fn dead_letter(&self, id: i64, action: &[&str]) -> Url {
        let id = id.to_string();
        self.url(&[&["v1", "dead-letters", id.as_str()], action].concat())
    }

    fn schedule(&self, id: i64) -> Url {
        self.url(&["v1", "schedules", id.to_string().as_str()])
    }

    pub(crate) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("http addresses have paths").clear().extend(path);
        url
    }

    pub(crate) async fn answer<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<T, AdminError> {
        let (status, body) = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|error| AdminError::Foreign {
            url: self.base.to_string(),
            status,
            reason: error.to_string(),
        })
    }

    /// For answers that say nothing but that it is done.
    async fn done(&self, request: reqwest::RequestBuilder) -> Result<(), AdminError> {
        self.send(request).await.map(drop)
    }

    /// The status and the body of a success.
    async fn send(&self, request: reqwest::RequestBuilder) -> Result<(u16, Vec<u8>), AdminError> {
        let url = self.base.to_string();
        let response = request
            .send()
            .await
            .map_err(|error| AdminError::Unreachable { url: url.clone(), reason: innermost(&error) })?;
        let status = response.status();
        let foreign =
            |reason: String| AdminError::Foreign { url: url.clone(), status: status.as_u16(), reason };
        let body = response.bytes().await.map_err(|error| foreign(innermost(&error)))?;
        if status.is_success() {
            return Ok((status.as_u16(), body.to_vec()));
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(AdminError::Refused(Box::new(problem))),
            Err(error) => Err(foreign(error.to_string())),
        }
    }
}

/// An address with those parameters that have a value.
fn with_query<const N: usize>(mut url: Url, pairs: [(&str, Option<String>); N]) -> Url {
    for (name, value) in pairs.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        url.query_pairs_mut().append_pair(name, &value);
    }
    url
}

/// The cause at the bottom of an error: "connection refused" rather than "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
