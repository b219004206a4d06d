//! What a client still accepts, in messages and in bytes. Pure.
//!
//! Every message sent costs one message and its bytes, whatever becomes of it. The last message of a batch may overdraw the
//! bytes, so that one larger than the whole credit can still be delivered; the client pays it back like any other.

use crate::limits::{CATCH_UP_BYTES_MIN, CATCH_UP_MESSAGES_MIN, CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX};

/// Messages and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    messages: i64,
    bytes: i64,
}

/// Nothing, or more than a session may ever have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "credit must be above 0, and at most {CREDIT_MESSAGES_MAX} messages and {CREDIT_BYTES_MAX} bytes in total"
)]
pub struct InvalidCredit;

impl Credit {
    /// The first credit of a subscription: both must be given.
    pub fn new(messages: u32, bytes: u64) -> Result<Self, InvalidCredit> {
        if messages == 0 || bytes == 0 {
            return Err(InvalidCredit);
        }
        let mut credit = Self { messages: 0, bytes: 0 };
        credit.add(messages, bytes)?;
        Ok(credit)
    }

    /// More of either; nothing happens if it is nothing or too much.
    pub fn add(&mut self, messages: u32, bytes: u64) -> Result<(), InvalidCredit> {
        let total = self.messages.saturating_add(i64::from(messages));
        let total_bytes = self.bytes.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
        if (messages == 0 && bytes == 0) || total > CREDIT_MESSAGES_MAX || total_bytes > CREDIT_BYTES_MAX {
            return Err(InvalidCredit);
        }
        (self.messages, self.bytes) = (total, total_bytes);
        Ok(())
    }

    /// How many messages may be sent now; `None`: none, until the client gives more.
    pub fn room(&self) -> Option<Room> {
        (self.messages > 0 && self.bytes > 0)
            .then_some(Room { messages: self.messages as usize, bytes: self.bytes as u64 })
    }

    /// What was sent to a socket and never written to it costs nothing.
    pub fn restore(&mut self, (messages, bytes): (i64, i64)) {
        self.messages += messages;
        self.bytes += bytes;
    }

    /// Messages were sent.
    pub fn spend(&mut self, messages: usize, bytes: u64) {
        self.messages -= messages as i64;
        self.bytes -= bytes as i64;
    }
}

/// What may be sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub messages: usize,
    pub bytes: u64,
}

impl Room {
    /// For so many messages at most.
    pub fn with_messages(self, messages: usize) -> Self {
        Self { messages: self.messages.min(messages), ..self }
    }

    /// What is worth reading for it: the rest waits for the next credit.
    pub fn with_some_ahead(self) -> Self {
        let (messages, bytes) =
            (self.messages.max(CATCH_UP_MESSAGES_MIN), self.bytes.max(CATCH_UP_BYTES_MIN));
        Self { messages, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_too_much_are_refused_and_change_nothing() {
        assert_eq!(Credit::new(0, 1), Err(InvalidCredit));
        assert_eq!(Credit::new(1, 0), Err(InvalidCredit));
        assert_eq!(Credit::new(1, u64::MAX), Err(InvalidCredit));
        let mut credit = Credit::new(1, 1).unwrap();
        assert_eq!(credit.add(0, 0), Err(InvalidCredit));
        assert_eq!(credit.add(u32::MAX, 1), Err(InvalidCredit));
        assert_eq!(credit.room(), Some(Room { messages: 1, bytes: 1 }));
    }

    #[test]
    fn a_message_may_overdraw_the_bytes_and_is_paid_back() {
        let mut credit = Credit::new(10, 100).unwrap();
        credit.spend(1, 250);
        assert_eq!(credit.room(), None);
        credit.add(0, 150).unwrap();
        assert_eq!(credit.room(), None);
        credit.add(0, 1).unwrap();
        assert_eq!(credit.room(), Some(Room { messages: 9, bytes: 1 }));
    }
}
