//! What is published: unique values that say by themselves where they came from.

use bytes::Bytes;
use uuid::Uuid;

/// A message of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    pub producer: u32,
    pub partition: u32,
    /// Counts the messages of this producer for this partition, from 0.
    pub number: i64,
    /// The publish frame that it came with; the messages of a frame for a partition are stored together or not at all.
    pub frame: u64,
    /// How many messages that frame had for this partition.
    pub of: u32,
}

impl Value {
    pub fn payload(self) -> Bytes {
        let Self { producer, partition, number, frame, of } = self;
        format!("{producer}-{partition}-{number}-{frame}-{of}").into()
    }

    /// The value in a payload; `None` if it is none of ours, or not as it was.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(payload).ok()?.split('-');
        let value = Self {
            producer: parts.next()?.parse().ok()?,
            partition: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
            frame: parts.next()?.parse().ok()?,
            of: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(value)
    }

    /// The trace id that it is published with, made from the value so that everybody who sees it can tell whether it is exact.
    pub fn trace_id(self) -> Uuid {
        let high = (u64::from(self.producer) << 32 | u64::from(self.partition)) ^ 0x9E37_79B9_7F4A_7C15;
        let low = (self.number as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93) | 1;
        Uuid::from_u64_pair(high, low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_back_from_its_payload_and_from_no_other() {
        let value = Value { producer: 3, partition: 7, number: 41, frame: 9, of: 2 };
        assert_eq!(Value::parse(&value.payload()), Some(value));
        for broken in ["", "3-7-41-9", "3-7-41-9-2-1", "3-7-x-9-2", "3-7-41-9-2 "] {
            assert_eq!(Value::parse(broken.as_bytes()), None, "{broken:?}");
        }
        let next = Value { number: 42, ..value };
        assert_ne!(value.trace_id(), next.trace_id());
    }
}
