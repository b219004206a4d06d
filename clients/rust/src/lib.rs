//! `laneway-client`: what a program needs to talk to a Laneway broker, and the wire types the broker shares with it.
//!
//! | module | owns |
//! |---|---|
//! | [`error_code`] | the stable codes and their classes: may I retry, may it have happened? |
//! | [`problem`] | the body of every HTTP error, `application/problem+json` |
//! | `name` | the rule for the names of topics and groups |
//! | [`topic`] | topic names and settings, and how a topic is described |
//! | [`group`] | group names |
//! | [`message`] | messages as HTTP and JSON carry them |
//! | [`dead_letter`] | messages that a group has given up |
//! | [`routing`] | which partition a message belongs to: a pure function of the message |
//! | [`wire`] | the frames of the socket, in both encodings: the only implementation of the protocol |
//! | [`admin`] | topics over HTTP |
//!
//! The broker depends on this crate for the types, never the other way round.

pub mod admin;
pub mod dead_letter;
pub mod error_code;
pub mod group;
pub mod message;
mod name;
pub mod problem;
pub mod routing;
pub mod topic;
pub mod wire;

pub use admin::Admin;
pub use error_code::{Class, ErrorCode};
pub use group::GroupName;
pub use problem::Problem;
pub use topic::TopicName;
