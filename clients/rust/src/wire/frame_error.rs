//! Why a frame could not be decoded, with all that an `error` frame needs to tell its sender.

use super::broker_frames::ErrorFrame;
use crate::error_code::ErrorCode;

/// Characters of the sentence: it may quote what the sender wrote, which may be as long as a frame.
const DETAIL_CHARS_MAX: usize = 300;
/// Characters of the field, for the same reason.
const FIELD_CHARS_MAX: usize = 100;

/// A frame that is refused before anybody acts on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} ({})", self.detail, self.code.as_str())]
pub struct FrameError {
    /// `malformed`, `unknown_type`, `too_deep` or `too_large`.
    pub code: ErrorCode,
    /// One sentence for people.
    pub detail: String,
    /// The member at fault, if it is known: `messages[3].payload`.
    pub field: Option<String>,
    /// The frame's `id`, if it could be read.
    pub id: Option<u64>,
}

impl FrameError {
    pub(super) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: cut(detail.into(), DETAIL_CHARS_MAX), field: None, id: None }
    }

    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Malformed, detail)
    }

    pub(super) fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(cut(field.into(), FIELD_CHARS_MAX));
        self
    }

    /// The same, of a part of a larger frame: its field stands below `part`.
    pub(super) fn within(mut self, part: &str) -> Self {
        let field = format!("{part}{}", self.field.as_deref().unwrap_or_default());
        self.detail = cut(format!("{part} {}", self.detail), DETAIL_CHARS_MAX);
        self.with_field(field.trim_end_matches('.').to_owned())
    }

    pub(super) fn with_id(mut self, id: Option<u64>) -> Self {
        self.id = id;
        self
    }
}

impl From<FrameError> for ErrorFrame {
    fn from(error: FrameError) -> Self {
        ErrorFrame { id: error.id, field: error.field, ..ErrorFrame::new(error.code, error.detail) }
    }
}

fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
        text.push('…');
    }
    text
}
