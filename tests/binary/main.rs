//! The binary as people meet it: processes, signals, ports, sentences, exit codes; and what only a real server shows,
//! such as TLS, a pooler, and a kill in the middle of a flush.
//!
//! | file | owns |
//! |---|---|
//! | `home`, `remote`, `bouncer`, `web`, `publishers` | what the tests use: a data directory, a PostgreSQL on TCP, a pooler, an HTTP client, a crowd |
//! | `topics`, `lifecycle`, `refusals` | `laneway topic` and `laneway serve` |
//! | `configuration` | flags over variables over the file over defaults |
//! | `crash` | kills in mid-flush, with every answer accounted for |
//! | `http_routes`, `http_values`, `http_refusals` | the HTTP API, route by route and mistake by mistake |
//! | `groups_http` | groups, lanes and brokers over HTTP, while members are there |
//! | `operator_failures` | the same commands asked wrongly, without a broker, and with one that restarts under them |
//! | `operator` | `laneway group`, `lane`, `dead` and `topic alter`; the views for psql |
//! | `doctor` | `laneway doctor`, with one thing broken at a time |
//! | `top` | `laneway top` on a terminal and in a pipe |
//! | `reference` | completions, manual pages, help |
//! | `logs` | what `serve` says on a terminal and in a pipe |
//! | `managing` | topics and groups paused, resumed, purged and counted; settings that are refused |
//! | `topic_delete`, `dead_letters`, `dead_many` | topics and messages on their way out |
//! | `pooler`, `tls`, `store` | how the store reaches its database |
//! | `bench`, `source` | measurements; which PostgreSQL the tests use |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod bouncer;
mod home;
mod publishers;
mod remote;
mod web;

mod bench;
mod configuration;
mod crash;
mod dead_letters;
mod dead_many;
mod doctor;
mod groups_http;
mod http_refusals;
mod http_routes;
mod http_values;
mod lifecycle;
mod logs;
mod managing;
mod operator;
mod operator_failures;
mod pooler;
mod reference;
mod refusals;
mod source;
mod store;
mod tls;
mod top;
mod topic_delete;
mod topics;
