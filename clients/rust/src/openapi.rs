//! Schemas of values whose Rust type says less than the wire does. The structs derive theirs; here are the parts.
//!
//! Only with the feature `openapi`, which the broker turns on: its `/openapi.json` is made of these.

use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, SchemaType, Type,
};
use utoipa::openapi::{KnownFormat, RefOr, Schema, SchemaFormat};
use utoipa::{Number, PartialSchema, ToSchema};

use crate::error_code::ErrorCode;
use crate::group::GroupName;
use crate::labels::TOPIC_LABELS_MAX;
use crate::management::Purge;
use crate::name::NAME_CHARS_MAX;
use crate::topic::{TOPIC_PARTITIONS_MAX, TopicName};
use crate::wire::{GroupCapacity, GroupOrdering, OnExpiry, OnFailure, Start};

/// An offset, an epoch or a count of bytes: never negative.
#[derive(Debug)]
pub struct Position;

/// A moment as RFC 3339 writes it.
#[derive(Debug)]
pub struct Moment;

/// Any JSON value; an `encoding` beside it says which bytes it stands for.
#[derive(Debug)]
pub struct Json;

/// A trace id as people may write it: a UUID or 32 hexadecimal digits, not all zero.
#[derive(Debug)]
pub struct TraceText;

/// A trace id as producers may write it: as people do, or as a W3C `traceparent`.
#[derive(Debug)]
pub struct GivenTrace;

/// The number of a message among those of its producer and partition.
#[derive(Debug)]
pub struct Sequence;

/// Numbers of partitions, each once.
#[derive(Debug)]
pub struct Partitions;

/// The last lane of a page: topic, group and partition.
#[derive(Debug)]
pub struct LaneKey;

/// Where a page of a search ends: microseconds since 1970, partition and offset.
#[derive(Debug)]
pub struct SearchKey;

/// The last group of a page: topic and group.
#[derive(Debug)]
pub struct GroupKey;

/// Milliseconds of a retention by age: up to a hundred years.
#[derive(Debug)]
pub struct AgeMs;

/// Bytes of a retention by size: up to 2^53, which every reader of JSON keeps exact.
#[derive(Debug)]
pub struct StoredBytes;

/// Milliseconds until a message is appended: up to ten years.
#[derive(Debug)]
pub struct DelayMs;
/// Messages or bytes that a topic may hold before publishes are refused.
#[derive(Debug)]
pub struct TopicLimit;

/// Milliseconds before completed segments go: up to a year.
#[derive(Debug)]
pub struct GraceMs;

/// Labels of a topic.
#[derive(Debug)]
pub struct LabelMap;

/// Labels to set, or with `null` to take away.
#[derive(Debug)]
pub struct LabelChangeMap;

/// Labels that a topic must have: `name=value`, with commas between.
#[derive(Debug)]
pub struct LabelQuery;

/// Milliseconds that a group may be unused: a second to ten years.
#[derive(Debug)]
pub struct ExpiryMs;

macro_rules! schemas {
    ($($name:ident => $schema:expr;)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::from(Schema::from($schema))
            }
        }

        impl ToSchema for $name {}
    )*};
}

schemas! {
    Position => integer(0, i64::MAX);
    Sequence => integer(0, i64::MAX / 2);
    DelayMs => integer(0, 10 * 365 * 24 * 3_600 * 1_000);
    AgeMs => integer(1, 100 * 365 * 24 * 3_600 * 1_000);
    StoredBytes => integer(1, 1 << 53);
    TopicLimit => integer(1, 1 << 53);
    GraceMs => integer(0, 365 * 24 * 3_600 * 1_000);
    ExpiryMs => integer(1_000, 10 * 365 * 24 * 3_600 * 1_000);
    LabelMap => labels(label_value());
    LabelChangeMap => labels(OneOfBuilder::new().item(label_value()).item(ObjectBuilder::new().schema_type(Type::Null)).build());
    LabelQuery => text().pattern(Some(LABEL_QUERY_PATTERN)).build();
    Moment => text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).build();
    Json => ObjectBuilder::new().schema_type(SchemaType::AnyValue).build();
    TraceText => text().pattern(Some(TRACE_PATTERN)).build();
    GivenTrace => OneOfBuilder::new()
        .item(text().pattern(Some(TRACE_PATTERN)).build())
        .item(text().pattern(Some(TRACEPARENT_PATTERN)).build())
        .build();
    Partitions => ArrayBuilder::new()
        .items(integer(0, i64::from(TOPIC_PARTITIONS_MAX) - 1))
        .min_items(Some(1))
        .unique_items(true)
        .build();
    LaneKey => text().pattern(Some(format!("^{NAME_PATTERN}/{NAME_PATTERN}/(0|[1-9][0-9]{{0,2}})$"))).build();
    SearchKey => text().pattern(Some("^[0-9]{1,18}-[0-9]{1,3}-[0-9]{1,18}$")).build();
    GroupKey => text().pattern(Some(format!("^{NAME_PATTERN}/{NAME_PATTERN}$"))).build();
    TopicName => name();
    GroupName => name();
    ErrorCode => text().enum_values(Some(ErrorCode::ALL.iter().map(|code| code.as_str()))).build();
    OnFailure => text()
        .enum_values(Some([OnFailure::DeadLetter, OnFailure::Block, OnFailure::Skip, OnFailure::Park].map(OnFailure::as_str)))
        .build();
    Purge => OneOfBuilder::new()
        .item(only("all", yes()))
        .item(only("before_at", Moment::schema()))
        .item(
            ObjectBuilder::new()
                .property("before_offset", Position::schema())
                .required("before_offset")
                .property("partition", integer(0, i64::from(TOPIC_PARTITIONS_MAX) - 1))
                .required("partition")
                .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
                .build(),
        );
    GroupCapacity => text()
        .enum_values(Some([GroupCapacity::Counted, GroupCapacity::Excluded].map(GroupCapacity::as_str)))
        .build();
    GroupOrdering => text()
        .enum_values(Some([GroupOrdering::Partition, GroupOrdering::Key].map(GroupOrdering::as_str)))
        .description(Some("What keeps its order: all messages of a partition, or those of each key."));
    OnExpiry => text()
        .enum_values(Some([OnExpiry::Evict, OnExpiry::DeadLetter].map(OnExpiry::as_str)))
        .build();
    Start => OneOfBuilder::new()
        .item(text().enum_values(Some(["earliest", "latest"])).build())
        .item(only("at", Moment::schema()))
        .item(only("offset", Position::schema()))
        .build();
}

/// Digits in one piece or in the five of a UUID, and at least one of them is not zero.
const TRACE_PATTERN: &str =
    "^(?![0-]+$)([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$";

/// Version 00 of a `traceparent`; neither its trace nor its parent is zero.
const TRACEPARENT_PATTERN: &str = "^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$";

/// The rule of names, without their length.
const NAME_PATTERN: &str = "(?!\\.{1,2}(/|$))[a-zA-Z0-9._-]+";

/// Few labels with short names and values.
const LABEL_QUERY_PATTERN: &str =
    "^[a-zA-Z0-9._-]{1,63}=[a-zA-Z0-9._-]{1,249}(,[a-zA-Z0-9._-]{1,63}=[a-zA-Z0-9._-]{1,249}){0,15}$";

/// The rule of [`crate::labels`] for values.
fn label_value() -> Object {
    text().pattern(Some("^[a-zA-Z0-9._-]{1,249}$")).build()
}

/// Values by the names of labels.
fn labels(values: impl Into<Schema>) -> Object {
    ObjectBuilder::new()
        .property_names(Some(text().pattern(Some("^[a-zA-Z0-9._-]{1,63}$")).build()))
        .additional_properties(Some(RefOr::T(values.into())))
        .max_properties(Some(TOPIC_LABELS_MAX))
        .build()
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// The rule of [`crate::name`].
fn name() -> Object {
    text()
        .pattern(Some(format!("^{NAME_PATTERN}$")))
        .min_length(Some(1))
        .max_length(Some(NAME_CHARS_MAX))
        .build()
}

fn integer(min: i64, max: i64) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(Number::from(min)))
        .maximum(Some(Number::from(max)))
        .build()
}

/// Nothing but `true`.
fn yes() -> RefOr<Schema> {
    let yes = ObjectBuilder::new().schema_type(Type::Boolean).enum_values(Some([true])).build();
    RefOr::from(Schema::from(yes))
}

/// An object with exactly one member.
fn only(member: &str, schema: RefOr<Schema>) -> Object {
    ObjectBuilder::new()
        .property(member, schema)
        .required(member)
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
        .build()
}
