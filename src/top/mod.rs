//! `laneway top`: what topics, groups, lanes and brokers do, refreshed.
//!
//! Data flows one way: `sample` asks a broker, `model` compares two samples, `draw` shows the result. `terminal` owns the
//! terminal and gives it back. The command in `cli` ties them together.
//!
//! Only the client is used: whoever can reach a broker can look, from any machine.

pub mod draw;
pub mod model;
pub mod sample;
pub mod terminal;
