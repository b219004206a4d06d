//! Searching the messages of a topic over HTTP.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use laneway_client::TopicName;
use laneway_client::message::FoundMessages;
use laneway_client::openapi::{Moment, SearchKey};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::messages::stored;
use super::openapi::{Common, Malformed, NotFound, Unprocessable};
use super::problem::{Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::message::check_transaction_id;
use crate::broker::search::{Cursor, Page, Wanted};
use crate::limits::SEARCH_PAGE_MAX;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchQuery {
    /// Messages of this key, which is text; they stand in one partition.
    #[param(value_type = String, required = false)]
    key: Option<String>,
    /// Messages of this transaction id.
    #[param(value_type = String, required = false, min_length = 1, max_length = 255)]
    transaction_id: Option<String>,
    /// In this partition only; needed for messages whose producer has chosen the partition itself.
    #[param(value_type = u32, required = false, maximum = 999)]
    partition: Option<u32>,
    /// Published at or after this moment.
    #[param(value_type = Moment, required = false)]
    from: Option<String>,
    /// Published before this moment.
    #[param(value_type = Moment, required = false)]
    to: Option<String>,
    /// The `next` of the page before.
    #[param(value_type = SearchKey, required = false)]
    before: Option<String>,
    /// At most this many.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Messages of a topic by key, transaction id or time, the newest first.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/search",
    operation_id = "search_messages",
    tag = "messages",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), SearchQuery),
    responses((status = 200, body = FoundMessages, description = "One page"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn search(
    State(context): State<Context>,
    Path(topic): Path<String>,
    Query(query): Query<SearchQuery>,
) -> Result<Json<FoundMessages>, Failure> {
    let topic = topic_name(topic)?;
    let wanted = wanted(query)?;
    let Page { messages, next } = context.broker.search.page(&topic, &wanted).await?;
    let stored = |(partition, message)| stored(topic.as_str(), partition, message);
    let next =
        next.map(|Cursor { published_us, partition, offset }| format!("{published_us}-{partition}-{offset}"));
    Ok(Json(FoundMessages { messages: messages.into_iter().map(stored).collect(), next }))
}

fn wanted(query: SearchQuery) -> Result<Wanted, Failure> {
    if let Some(id) = &query.transaction_id {
        check_transaction_id(Some(id)).map_err(|rule| malformed("transaction_id", rule.to_string()))?;
    }
    Ok(Wanted {
        key: query.key.map(String::into_bytes),
        transaction_id: query.transaction_id,
        partition: query.partition,
        from: query.from.map(|text| moment("from", &text)).transpose()?,
        to: query.to.map(|text| moment("to", &text)).transpose()?,
        before: query.before.map(|text| cursor(&text)).transpose()?,
        limit: match query.limit.unwrap_or(100) {
            limit @ 1..=SEARCH_PAGE_MAX => limit,
            limit => {
                let detail = format!("limit must be between 1 and {SEARCH_PAGE_MAX}, not {limit}");
                return Err(malformed("limit", detail));
            }
        },
    })
}

fn moment(field: &str, text: &str) -> Result<Timestamp, Failure> {
    let wrong =
        |error| malformed(field, format!("{text:?} is not a time like 2026-01-31T12:00:00Z: {error}"));
    text.parse().map_err(wrong)
}

fn cursor(text: &str) -> Result<Cursor, Failure> {
    let number = |part: &str, digits: usize| {
        let is_number = (1..=digits).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { part.parse::<i64>().ok() } else { None }
    };
    let parts: Vec<&str> = text.split('-').collect();
    let cursor = match parts.as_slice() {
        [published_us, partition, offset] => number(published_us, 18)
            .zip(number(partition, 3))
            .zip(number(offset, 18))
            .map(|((published_us, partition), offset)| Cursor {
                published_us,
                partition: partition as u32,
                offset,
            }),
        _ => None,
    };
    cursor.ok_or_else(|| malformed("before", format!("{text:?} is not the next of a page of a search")))
}
