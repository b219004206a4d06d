//! Bounds and defaults of the protocol itself: what both sides must agree on before `welcome` has said anything.
//!
//! Bounds that a broker may choose (frame size, credit, subscriptions) are not here: `welcome.limits` tells them.

/// Where a broker takes the upgrade.
pub const WEBSOCKET_PATH: &str = "/v1/ws";

/// A silent side sends a heartbeat after this long, unless `hello` asks otherwise: well under the 60 s of load balancers.
pub const HEARTBEAT_MS_DEFAULT: u32 = 20_000;
/// More often, and heartbeats would be traffic of their own.
pub const HEARTBEAT_MS_MIN: u32 = 1_000;
/// More rarely, and load balancers would cut quiet connections.
pub const HEARTBEAT_MS_MAX: u32 = 60_000;
/// A side that has been silent for this many heartbeats is given up: one may be late, two are not.
pub const HEARTBEATS_MISSED_MAX: u32 = 2;

/// Lanes of a lost connection move at once, unless `hello` asks for a grace.
pub const RESUME_GRACE_MS_DEFAULT: u32 = 0;
/// A longer grace would hold up a whole group for one client.
pub const RESUME_GRACE_MS_MAX: u32 = 300_000;

/// How long a broker waits for `hello` after the upgrade.
pub const HELLO_TIMEOUT_MS: u32 = 10_000;

/// Levels of maps and arrays in a frame, its own map counted; our own frames need five.
pub const FRAME_DEPTH_MAX: usize = 32;
/// Levels that a JSON payload may have of its own to be written as JSON in any frame: in a `transact` it stands in a message, in
/// `messages`, in a publish, in `publishes`, in the frame.
pub const JSON_PAYLOAD_DEPTH_MAX: usize = FRAME_DEPTH_MAX - 5;

/// Messages of one `publish`: a decoded message takes far more memory than the few bytes that an empty one has on the wire.
/// A broker may allow fewer (`welcome.limits`), never more.
pub const PUBLISH_MESSAGES_MAX: usize = 10_000;

/// How long a publish may wait for room in a topic that is full: less than requests and heartbeats take to be given up.
pub const PUBLISH_WAIT_MS_MAX: u64 = 20_000;
/// The first wait that is too long.
pub(crate) const PUBLISH_WAIT_MS_BEYOND: u64 = PUBLISH_WAIT_MS_MAX + 1;

/// Lanes that one `transact` acknowledges on.
pub const TRANSACT_ACKS_MAX: usize = 64;
/// Publishes of one `transact`; their messages together are bounded like those of a `publish`.
pub const TRANSACT_PUBLISHES_MAX: usize = 64;
