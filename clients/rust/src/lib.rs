//! `laneway-client`: what a program needs to talk to a Laneway broker, and the wire types the broker shares with it.
//!
//! | module | owns |
//! |---|---|
//! | [`error_code`] | the stable codes and their classes: may I retry, may it have happened? |
//! | [`problem`] | the body of every HTTP error, `application/problem+json` |
//! | `name` | the rule for the names of topics and groups |
//! | [`topic`] | topic names and settings, and how a topic is described |
//! | [`labels`] | labels of topics |
//! | [`selection`] | which topics a subscription is about |
//! | [`group`] | group names |
//! | [`group_api`] | groups, lanes and brokers as HTTP carries them |
//! | [`message`] | messages as HTTP and JSON carry them |
//! | [`pull_api`], `pulling` | messages for consumers without a connection: pop, ack, nack, extend |
//! | [`keys`] | keys of encrypted topics: which a broker has, which are needed |
//! | [`dead_letter`] | messages that a group has given up |
//! | [`parked`] | keys that a group has parked |
//! | [`schedule`] | messages that wait for their time |
//! | [`trace`] | a trace as HTTP and the socket carry it: every hop, and what became of it |
//! | [`traceparent`] | the header of W3C that carries a trace id |
//! | [`routing`] | which partition a message belongs to: a pure function of the message |
//! | [`tls`] | whom to believe behind `wss://` and `https://` |
//! | [`wire`] | the frames of the socket, in both encodings: the only implementation of the protocol |
//! | [`client`] | publish, subscribe, tail over one connection that comes back by itself |
//! | [`admin`] | topics, groups, lanes and dead letters over HTTP |
//! | `openapi` | schemas of what HTTP carries; with the feature of that name only |
//!
//! # Publish and subscribe
//!
//! ```no_run
//! use futures_util::StreamExt as _;
//! use laneway_client::{Client, NewMessage};
//!
//! # async fn example() -> Result<(), laneway_client::Error> {
//! let client = Client::builder("ws://127.0.0.1:7420/v1/ws").name("shop").connect().await?;
//!
//! // Batched with whatever else is waiting, stored once however often the connection is lost.
//! let message = NewMessage { key: Some("customer-17".into()), payload: "an order".into(), ..NewMessage::default() };
//! let receipt = client.publish("orders", message).await?;
//! println!("stored at {receipt}");
//!
//! let mut orders = client.subscribe("orders", "billing").await?;
//! while let Some(delivery) = orders.next().await {
//!     match std::str::from_utf8(&delivery.payload) {
//!         Ok(order) => {
//!             println!("{order}");
//!             delivery.ack();
//!         }
//!         Err(error) => delivery.nack(error.to_string()),
//!     }
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/` has whole programs: `publish`, `consume` and `pipeline`.
//!
//! # Pipelines
//!
//! A step of a pipeline takes a message and publishes what follows from it. [`run_pipeline`](Subscription::run_pipeline) does both
//! in one transaction: each message leads to its outputs once, also if connections are lost, brokers die or lanes move. Each
//! partition is handled in order, and outputs carry the trace id of their message, which is their cause.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use laneway_client::{Client, Delivery, NewMessage, Outputs, Stop};
//!
//! async fn charge(order: Arc<Delivery>) -> Result<Outputs, String> {
//!     let order_id = order.key.clone().ok_or("an order without a key")?; // refused: it comes again, or becomes a dead letter
//!     let receipt = NewMessage { key: Some(order_id.clone()), payload: "4 EUR".into(), ..NewMessage::default() };
//!     let parcel = NewMessage { key: Some(order_id), payload: order.payload.clone(), ..NewMessage::default() };
//!     Ok(Outputs::to("receipts", receipt).and("parcels", parcel))
//! }
//!
//! # async fn example(client: Client) -> Result<(), laneway_client::Error> {
//! let mut orders = client.subscribe("orders", "charging").await?;
//! let handled = orders.run_pipeline(8, &Stop::new(), charge).await?;
//! println!("{} done, {} failed", handled.acked, handled.failed);
//! # Ok(())
//! # }
//! ```
//!
//! By hand, also for several messages at once and over several subscriptions of one client:
//!
//! ```no_run
//! # use laneway_client::{Delivery, Error, NewMessage};
//! # async fn example(order: Delivery, payment: Delivery, parcel: NewMessage) -> Result<(), Error> {
//! let step = order.transact().ack(&payment).publish("parcels", parcel);
//! match step.commit().await {
//!     Ok(committed) => println!("stored at {:?}", committed.placed),
//!     Err(Error::LaneLost) => {} // nothing was published; the messages come again, here or elsewhere
//!     Err(error) => order.nack(error.to_string()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `order.publish(…)` publishes with trace and cause, too, but is not tied to the ack: after a crash it may happen again.
//!
//! # What an error means
//!
//! Every error has a class that answers the two questions a caller has: may I do the same again, may it have happened?
//!
//! ```
//! use laneway_client::{Class, Client, Error, Options};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // Nobody listens here.
//! let error = Client::connect("ws://127.0.0.1:9/v1/ws", Options::default()).await.unwrap_err();
//! assert!(matches!(error, Error::Unreachable { .. }));
//! assert_eq!(error.class(), Class::Retry);
//! # }
//! ```
//!
//! # Where a message goes
//!
//! ```
//! use laneway_client::routing::route;
//!
//! // By its key, as Kafka would place it; an explicit partition wins.
//! let home = route(None, Some(b"customer-17"), None, 16);
//! assert_eq!(home, route(None, Some(b"customer-17"), Some("another-id"), 16));
//! assert_eq!(route(Some(3), Some(b"customer-17"), None, 16), Some(3));
//! ```
//!
//! A client asks once how many partitions a topic has. If a topic is made again with fewer, messages whose partition the
//! client has chosen get another one by themselves. If it is altered to more, a client that knows the topic goes on with the
//! old number, and a key moves to its new partition only in clients that are made from then on.
//!
//! # Acks
//!
//! An ack is told after a moment, together with others. What was told is repeated after a resume until the broker has
//! confirmed it, and a message that was acknowledged is not shown again while its lane is held. `Client::close` waits for all
//! confirmations and says how many lanes are left without.
//!
//! ```no_run
//! # async fn example(client: laneway_client::Client) {
//! let leftover = client.close().await;
//! assert!(leftover.is_empty(), "some messages come again: {leftover:?}");
//! # }
//! ```
//!
//! The broker depends on this crate for the types, never the other way round.

pub mod admin;
pub mod capacity;
pub mod client;
pub mod dead_letter;
pub mod error_code;
pub mod group;
pub mod group_api;
pub mod keys;
pub mod labels;
pub mod management;
pub mod message;
mod name;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod parked;
pub mod problem;
pub mod pull_api;
mod pulling;
pub mod routing;
pub mod schedule;
pub mod selection;
pub mod tls;
pub mod topic;
pub mod trace;
pub mod traceparent;
pub mod wire;

pub use admin::Admin;
pub use client::connection::Connection;
pub use client::delivery::{Delivery, Subscription, Tail};
pub use client::error::{Error, Refusal};
pub use client::options::Options;
pub use client::pipeline::Outputs;
pub use client::publisher::Receipt;
pub use client::run::{Handled, Stop};
pub use client::step::{Committed, Step};
pub use client::{Client, Leftover};
pub use error_code::{Class, ErrorCode};
pub use group::GroupName;
pub use message::Cause;
pub use problem::Problem;
pub use topic::TopicName;
pub use wire::{NewMessage, Placed, Start};
