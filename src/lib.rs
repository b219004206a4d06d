//! Laneway: a partitioned message bus on PostgreSQL. One binary, any number of brokers, one source of truth.
//!
//! The file list is the data path. A publish comes in through `server`, is checked, routed and cut into units by
//! `broker::publish`, joins others in `broker::appender`, and becomes one transaction in `store::flush`. A read goes
//! `server` → `broker::reader` → `store::messages`. Imports follow the data: nothing below knows anything above.
//!
//! | module | owns |
//! |---|---|
//! | [`cli`], [`config`] | the command line; what `serve` is told |
//! | [`server`] | the port: upgrades to WebSockets, HTTP API, health, metrics |
//! | [`session`] | one connection each: reader, pure state machine, writer; resuming, draining |
//! | [`broker`] | the domain, without sockets and without SQL |
//! | [`store`] | the only place that knows SQL |
//! | [`postgres`] | the private PostgreSQL, where no database is given |
//! | [`tasks`] | periodic chores: upkeep, retention |
//! | [`doctor`] | what is wrong with a database and a broker, and what to do |
//! | [`top`] | a screen of what goes on |
//! | [`drawing`] | a trace as lines of text |
//! | [`bench`] | measurements, as ratios to the raw insert |
//! | [`verify`] | a cluster under faults, and a checker per promise |
//! | [`encryption`] | the key ring, data keys, and the bytes of a sealed payload |
//! | [`ids`], [`limits`] | identities and positions; every bound, with its reason |
//! | [`telemetry`] | logs, and spans for OpenTelemetry |

pub mod bench;
pub mod broker;
pub mod cli;
pub mod config;
pub mod doctor;
pub mod drawing;
pub mod encryption;
pub mod ids;
pub mod limits;
pub mod postgres;
pub mod server;
pub mod session;
pub mod store;
pub mod tasks;
pub mod telemetry;
pub mod top;
pub mod verify;
