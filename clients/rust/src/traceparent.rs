//! The `traceparent` of W3C Trace Context: how other systems hand a trace on. Its trace id and ours are the same 128 bits.
//!
//! A message that carries one in its header [`HEADER`] belongs to that trace, and whoever gets the message gets the header as
//! it was: span, flags and all.

use uuid::Uuid;

/// The name of the header, of messages and of HTTP requests alike.
pub const HEADER: &str = "traceparent";

/// Characters of version 00; later versions may be longer.
const CHARS: usize = 55;

/// Why a text is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TraceparentError {
    /// Not of the form.
    #[error("it is not of the form 00-<32 digits>-<16 digits>-<2 digits>, hexadecimal and in lower case")]
    Form,
    /// Version `ff` is none.
    #[error("version ff is forbidden")]
    Version,
    /// Zeros stand for no trace.
    #[error("its trace id is all zero, which stands for no trace")]
    ZeroTrace,
    /// Zeros stand for no span.
    #[error("its parent id is all zero, which stands for no span")]
    ZeroParent,
}

/// The trace id of a `traceparent`.
///
/// ```
/// let trace = laneway_client::traceparent::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
/// assert_eq!(trace.unwrap().simple().to_string(), "0af7651916cd43dd8448eb211c80319c");
/// ```
pub fn parse(text: &str) -> Result<Uuid, TraceparentError> {
    let mut parts = text.split('-');
    let mut part = |digits: usize| {
        let is_hex = |part: &&str| {
            part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        parts.next().filter(is_hex).ok_or(TraceparentError::Form)
    };
    let (version, trace_id, parent_id, _flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    match version {
        "00" if text.len() != CHARS => return Err(TraceparentError::Form),
        "ff" => return Err(TraceparentError::Version),
        _ => {}
    }
    if parent_id.bytes().all(|digit| digit == b'0') {
        return Err(TraceparentError::ZeroParent);
    }
    match Uuid::try_parse(trace_id) {
        Ok(id) if id.is_nil() => Err(TraceparentError::ZeroTrace),
        Ok(id) => Ok(id),
        Err(_) => Err(TraceparentError::Form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_looked_at() {
        let parent = |text: &str| parse(&format!("00-{text}-01"));
        assert!(parent("0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331").is_ok());
        let zero = parent("00000000000000000000000000000000-b7ad6b7169203331");
        assert_eq!(zero, Err(TraceparentError::ZeroTrace));
        let zero = parent("0af7651916cd43dd8448eb211c80319c-0000000000000000");
        assert_eq!(zero, Err(TraceparentError::ZeroParent));
        for text in [
            "",
            "00",
            "0af7651916cd43dd8448eb211c80319c",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1g",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(parse(text), Err(TraceparentError::Form), "{text}");
        }
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert!(parse(later).is_ok());
        let forbidden = "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(parse(forbidden), Err(TraceparentError::Version));
    }
}
