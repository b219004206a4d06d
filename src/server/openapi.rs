//! `/openapi.json`: what every route takes and answers, generated from the handlers and the types that they share with clients.
//!
//! A route cannot exist without its description: `routes!` takes handlers that have one. The refusals that routes have in
//! common are named here, one type per status, with the codes that it carries.
//!
//! `/v1/ws` is the one route that is not described: what follows the upgrade is no HTTP. `docs/PROTOCOL.md` describes it.

use std::collections::BTreeMap;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;
use bytes::Bytes;
use laneway_client::message::PublishMessage;
use laneway_client::openapi::{
    GivenTrace, GroupKey, LabelQuery, LaneKey, Moment, Position, SearchKey, TraceText,
};
use laneway_client::{ErrorCode, GroupName, Problem, TopicName};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{AllOfBuilder, AnyOfBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Schema};
use utoipa::{IntoResponses, OpenApi, ToSchema as _};

/// What the document says of itself; the routes are added by the router.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "Laneway",
        description = "A partitioned message bus on PostgreSQL: the HTTP API of a broker. Every answer that is not a success \
            is `application/problem+json` with a stable `code`, the same as on the socket. Integers are written without a fraction."
    ),
    components(schemas(
        Problem, TopicName, GroupName, GroupKey, LaneKey, SearchKey, LabelQuery, Position, Moment, TraceText,
        GivenTrace
    ))
)]
pub(super) struct Description;

/// Adds what `encoding` allows beside it, which no derived schema can say: a string unless it is `json`.
pub(super) fn refine(description: &mut utoipa::openapi::OpenApi) {
    let schemas = description.components.as_mut().map(|components| &mut components.schemas);
    let message = schemas.and_then(|schemas| schemas.get_mut(PublishMessage::name().as_ref()));
    let message = message.expect("a message can be published");
    let plain = std::mem::replace(message, RefOr::T(Schema::default()));
    let payload = encodings("payload", "encoding", &[Type::String]);
    let key = encodings("key", "key_encoding", &[Type::String, Type::Null]);
    *message = RefOr::T(AllOfBuilder::new().item(plain).item(payload).item(key).build().into());
}

/// RFC 4648 with padding, and without stray bits in the last letter.
const BASE64_PATTERN: &str =
    "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// A value of these types beside `text` and `base64`, and any value beside `json`.
fn encodings(value: &str, encoding: &str, types: &[Type]) -> Schema {
    let words = |word: &str| ObjectBuilder::new().schema_type(Type::String).enum_values(Some([word])).build();
    let values = || ObjectBuilder::new().schema_type(SchemaType::from_iter(types.iter().cloned()));
    let base64 = values().pattern(Some(BASE64_PATTERN)).build();
    let object = || ObjectBuilder::new().schema_type(Type::Object);
    AnyOfBuilder::new()
        .item(object().property(encoding, words("text")).property(value, values().build()))
        .item(object().property(encoding, words("base64")).required(encoding).property(value, base64))
        .item(object().property(encoding, words("json")).required(encoding))
        .build()
        .into()
}

/// The document as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Document(Bytes);

impl Document {
    pub fn new(description: &utoipa::openapi::OpenApi) -> Self {
        Self(serde_json::to_vec(description).expect("a description is always JSON").into())
    }
}

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "health",
    responses((status = 200, body = BTreeMap<String, serde_json::Value>, description = "OpenAPI 3.1"), Common)
)]
pub(super) async fn document(Extension(Document(text)): Extension<Document>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], text)
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $($status:literal),*;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                BTreeMap::from([$(($status.to_string(), RefOr::T(refusal($status)))),*])
            }
        }
    )*};
}

refusals! {
    /// What any request may meet: a foreign host, a body or an answer that is too large or too slow, a database that is away.
    Common = 403, 413, 500, 503;
    /// The request is not of the form that the route takes.
    Malformed = 400;
    /// What the path or the body names does not exist.
    NotFound = 404;
    /// It exists already, is in use, or follows on nothing.
    Conflict = 409;
    /// The topic holds as much as it may.
    Full = 429;
    /// Retention was faster.
    Gone = 410;
    /// Of the right form, and against a rule.
    Unprocessable = 422;
}

fn refusal(status: u16) -> Response {
    let codes = ErrorCode::ALL.iter().filter(|code| code.http_status() == status);
    let codes: Vec<String> = codes.map(|code| format!("`{}`", code.as_str())).collect();
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    ResponseBuilder::new()
        .description(format!("One of the codes {}", codes.join(", ")))
        .content("application/problem+json", problem)
        .build()
}
