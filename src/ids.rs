//! Identities and positions: newtypes, so that a partition's id is never taken for its number, nor an offset for a count.
//!
//! Ids come from Postgres and mean nothing outside this database. People see names and numbers instead.

use uuid::Uuid;

macro_rules! integer_newtype {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

integer_newtype! {
    /// A topic, for as long as it exists; a name that is used again gets a new one.
    TopicId;
    /// A partition, in this database; its *number* is what people see.
    PartitionId;
    /// A segment, and the integer in the name of its table.
    SegmentId;
    /// A cut of the trace index, and the integer in the name of its table.
    CutId;
    /// A message that a group has given up, as operators name it.
    DeadLetterId;
    /// A key that a group has parked, as operators name it.
    ParkedId;
    /// A message that waits for its time, as people name it.
    ScheduleId;
    /// Position of one message in its partition: zero-based, dense, never reused.
    Offset;
    /// Place of one message in what a producer sends to one partition: from 0, without gaps.
    Sequence;
    /// A group of one topic.
    GroupId;
    /// Fencing number of a lane: grows each time it changes hands.
    Epoch;
}

impl ScheduleId {
    /// What a transaction id is known for is an offset; below 0 it is a message that waits, by its id, negated.
    pub const fn at_place(place: Offset) -> Option<ScheduleId> {
        if place.0 < 0 { Some(ScheduleId(-place.0)) } else { None }
    }
}

impl Offset {
    /// Where every partition begins.
    pub const ZERO: Offset = Offset(0);

    /// The position `messages` further on.
    pub const fn plus(self, messages: i64) -> Offset {
        Offset(self.0 + messages)
    }
}

macro_rules! uuid_newtype {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

uuid_newtype! {
    /// A producer: a UUID of its own making, new for each life of the producer.
    ProducerId;
    /// 128 bits shared by every message of one pipeline run; the same bits as an OpenTelemetry trace id.
    TraceId;
    /// A session: the life of one connection, and of those that resume it.
    SessionId;
    /// A step of a pipeline: a UUID that its client makes, so that it can ask again.
    StepId;
    /// A broker, from its registration to its burial.
    BrokerId;
    /// A data key: made by whoever seals with it, so that no other database can give it again.
    DataKeyId;
}

impl TraceId {
    /// A new one, ordered by time, so that what happens together is stored together.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// What the trace index stores: the first half. Two traces may share it; the message decides.
    pub fn prefix(self) -> i64 {
        let bytes = self.0.as_bytes();
        i64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
    }
}
