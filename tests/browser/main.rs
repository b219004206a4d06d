//! Clients that have nothing of ours: a browser with its own WebSocket, and somebody who types what the README says.
//!
//! | file | owns |
//! |---|---|
//! | `chromium` | the distribution's Chromium, headless, ended with the test |
//! | `site` | the web server of a test: one page, and what the page has to say |
//! | `conversation` | publishing and subscribing from a page, and pages that must not |
//! | `readme` | the conversation in the README, held again |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod chromium;
mod site;

mod conversation;
mod readme;
