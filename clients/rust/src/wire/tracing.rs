//! Frames about traces: read once, or watched.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::trace::{Hop, Trace};

/// Asks for everything that is known about a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTrace {
    /// Repeated in `traced`.
    pub id: u64,
    /// Which.
    pub trace_id: Uuid,
}

/// A trace, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traced {
    /// Of `trace`.
    pub id: u64,
    /// All of it.
    pub trace: Trace,
}

/// Follows a trace, or a part of the traces of a topic, without a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Repeated in `watching`.
    pub id: u64,
    /// This trace; it need not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Uuid>,
    /// Traces that come by in this topic from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// With `topic`: how many of its traces, from above 0 to 1; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<f64>,
}

impl Watch {
    /// What the types alone cannot say: the field at fault and a sentence.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match (self.trace_id, &self.topic, self.sample) {
            (Some(trace_id), None, _) if trace_id.is_nil() => Err(("trace_id", ZERO)),
            (Some(_), None, None) | (None, Some(_), None) => Ok(()),
            (Some(_), None, Some(_)) => Err(("sample", "sample goes with topic: one trace is watched whole")),
            (None, Some(_), Some(sample)) if sample > 0.0 && sample <= 1.0 => Ok(()),
            (None, Some(_), Some(_)) => Err(("sample", "sample must be above 0 and at most 1")),
            (Some(_), Some(_), _) | (None, None, _) => Err(("trace_id", "give one of trace_id and topic")),
        }
    }
}

impl ReadTrace {
    /// What the types alone cannot say: the field at fault and a sentence.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.trace_id.is_nil() { Err(("trace_id", ZERO)) } else { Ok(()) }
    }
}

const ZERO: &str = "the trace id is all zero, which stands for no trace";

/// The watch has begun. It ends with `untail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watching {
    /// Of `watch`.
    pub id: u64,
    /// Its number among the subscriptions of the session.
    pub subscription: u32,
}

/// Hops that are new or stand otherwise than they were last told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceChanged {
    /// Of `watching`.
    pub subscription: u32,
    /// Which trace.
    pub trace_id: Uuid,
    /// Each whole; their `parent` is left out, because only the whole trace has places.
    pub hops: Vec<Hop>,
    /// What was too much to tell: changed hops of this trace that come later, or, with the first hops of a trace of a topic, traces
    /// that are not followed.
    pub left_out: u32,
}
