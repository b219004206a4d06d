//! Close codes: why a connection ended, and whether to come back.
//!
//! 1000 to 1013 mean what RFC 6455 and its registry say; 4000 and up are our own. A connection that ends without a close
//! frame, or with a code that is not listed, is treated like a lost one: come back.

/// What a client does after its connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Connect again, after a pause with jitter that grows.
    Retry,
    /// Do not come back by yourself: the same would happen again, or nobody wants it.
    Stop,
}

macro_rules! close_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal, $advice:ident, $meaning:literal;)*) => {
        /// Why a connection was closed; see [`Advice`] for what follows from it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum CloseCode { $(#[doc = $meaning] $name,)* }

        impl CloseCode {
            /// Every code, for tables and tests.
            pub const ALL: &[CloseCode] = &[$(CloseCode::$name,)*];

            /// The number in the close frame.
            pub const fn code(self) -> u16 {
                match self { $(CloseCode::$name => $code,)* }
            }

            /// Its name, for logs and tables; also a good reason text of the close frame.
            pub const fn name(self) -> &'static str {
                match self { $(CloseCode::$name => $text,)* }
            }

            /// What has happened, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(CloseCode::$name => $meaning,)* }
            }

            /// Whether to come back.
            pub const fn advice(self) -> Advice {
                match self { $(CloseCode::$name => Advice::$advice,)* }
            }

            /// The code of a close frame, if it is one of ours.
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(CloseCode::$name),)* _ => None }
            }
        }
    };
}

close_codes! {
    Normal = 1000, "normal", Stop, "The client has closed the connection itself.";
    GoingAway = 1001, "going_away", Retry, "The other side is leaving.";
    ProtocolError = 1002, "protocol_error", Stop, "The other side breaks the rules of WebSocket.";
    WrongKind = 1003, "wrong_kind", Stop, "A binary frame came where the subprotocol has text, or the other way round.";
    BadUtf8 = 1007, "bad_utf8", Stop, "A text frame is not UTF-8.";
    Policy = 1008, "policy", Stop, "The broker does not serve this client.";
    TooLarge = 1009, "too_large", Stop, "A frame is larger than welcome.limits.frame_bytes_max.";
    Internal = 1011, "internal", Retry, "The broker met something that it does not know how to handle.";
    Restart = 1012, "restart", Retry, "The broker drains or restarts; go_away came before, with a delay.";
    TryAgainLater = 1013, "try_again_later", Retry, "The broker has as many connections as it may, or cannot reach its database.";
    HelloTimeout = 4000, "hello_timeout", Retry, "No hello came in time.";
    HeartbeatMissed = 4001, "heartbeat_missed", Retry, "Nothing was heard from the client for two heartbeats.";
    TooSlow = 4002, "too_slow", Retry, "The client reads more slowly than the broker is willing to buffer.";
    TakenOver = 4003, "taken_over", Stop, "Another connection has resumed this session.";
    Fatal = 4004, "fatal", Stop, "The broker has sent an error of class fatal that no other close code stands for.";
    HelloRefused = 4005, "hello_refused", Stop, "The broker has refused hello; the error came before.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_code_is_found_by_its_number_and_no_number_is_used_twice() {
        for code in CloseCode::ALL {
            assert_eq!(CloseCode::from_code(code.code()), Some(*code));
            assert!(code.meaning().len() < 124, "a close frame holds 123 bytes of reason");
        }
        assert_eq!(CloseCode::from_code(1006), None);
        assert_eq!(CloseCode::from_code(4999), None);
    }
}
