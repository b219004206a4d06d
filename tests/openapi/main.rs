//! The HTTP API against its own description, `/openapi.json`.
//!
//! | file | shows |
//! |---|---|
//! | `routes` | the document and the routes are the same, both ways, and its bounds are those of the code |
//! | `bounds` | a request has a bound in size and in time |
//! | `one` | one message is published and read over HTTP |
//! | `fuzz` | schemathesis finds nothing: every check, every operation, many examples |
//! | `seed` | what the examples of the document name: topics, messages, groups with a member, dead letters |
//! | `report` | what schemathesis has sent, and what came back |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod bounds;
mod fuzz;
mod one;
mod report;
mod routes;
mod seed;
