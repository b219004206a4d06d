//! HTTP as any client speaks it, with answers that can be looked at.

use laneway_client::Problem;
use laneway_client::message::{MessageList, PublishResponse, StoredMessage};
use laneway_client::topic::{PartitionDescription, TopicDetail};
use serde_json::Value;

use crate::harness::Server;

/// A client of one broker. Cheap to clone.
#[derive(Clone)]
pub struct Web {
    pub http: reqwest::Client,
    base: String,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

impl Web {
    pub fn new(server: &Server) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { http, base: server.url("") }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.http.get(self.url(path))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.http.post(self.url(path)).json(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.http.delete(self.url(path))).await
    }

    /// A body that no serializer would make.
    pub async fn post_raw(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.http.post(self.url(path)).header("content-type", "application/json").body(body);
        self.send(request).await
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        Answer::of(request.send().await.unwrap()).await
    }

    pub async fn create(&self, topic: Value) -> TopicDetail {
        let answer = self.post("/v1/topics", &topic).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    pub async fn publish(&self, topic: &str, messages: Value) -> PublishResponse {
        let path = format!("/v1/topics/{topic}/messages");
        let answer = self.post(&path, &serde_json::json!({ "messages": messages })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub async fn partitions(&self, topic: &str) -> Vec<PartitionDescription> {
        self.get(&format!("/v1/topics/{topic}")).await.json::<TopicDetail>().partition_details
    }

    /// One page; `query` as in the URL.
    pub async fn list(&self, topic: &str, partition: u32, query: &str) -> Vec<StoredMessage> {
        let answer = self.get(&format!("/v1/topics/{topic}/partitions/{partition}/messages?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json::<MessageList>().messages
    }

    /// Everything that a partition holds, page by page.
    pub async fn all(&self, topic: &str, partition: u32) -> Vec<StoredMessage> {
        let mut messages: Vec<StoredMessage> = Vec::new();
        loop {
            let from = messages.last().map_or(0, |last| last.offset + 1);
            let more = self.list(topic, partition, &format!("from={from}&limit=10000")).await;
            if more.is_empty() {
                return messages;
            }
            messages.extend(more);
        }
    }
}

impl Answer {
    pub async fn of(response: reqwest::Response) -> Self {
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type").map(|value| value.to_str().unwrap());
        let content_type = content_type.unwrap_or_default().to_owned();
        Self { status, content_type, body: response.text().await.unwrap() }
    }

    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The problem that it must be, consistent in itself.
    pub fn problem(&self) -> Problem {
        assert_eq!(self.content_type, "application/problem+json", "{self:?}");
        let problem: Problem = self.json();
        assert_eq!(problem.status, self.status);
        assert_eq!(problem.status, problem.code.http_status());
        assert_eq!(problem.class, problem.code.class());
        assert_eq!(problem.kind, format!("/problems/{}", problem.code.as_str()));
        assert!(!problem.detail.is_empty());
        problem
    }
}

/// A text payload as it went in.
pub fn text(message: &StoredMessage) -> String {
    serde_json::from_str(message.payload.get()).unwrap()
}
