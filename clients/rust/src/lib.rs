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
//! | [`client`] | publish, subscribe, tail over one connection that comes back by itself |
//! | [`admin`] | topics and dead letters over HTTP |
//!
//! The broker depends on this crate for the types, never the other way round.

pub mod admin;
pub mod client;
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
pub use client::Client;
pub use client::delivery::{Delivery, Subscription, Tail};
pub use client::error::{Error, Refusal};
pub use client::options::Options;
pub use client::publisher::Receipt;
pub use client::run::{Handled, Stop};
pub use error_code::{Class, ErrorCode};
pub use group::GroupName;
pub use problem::Problem;
pub use topic::TopicName;
pub use wire::{NewMessage, Start};
