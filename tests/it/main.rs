//! The queue on real Postgres, a database for each test.

mod support;

mod backoff;
mod bulk;
mod claim;
mod classes;
mod control;
mod counters;
mod effects;
mod enqueue;
mod error_text;
mod histories;
mod http_errors;
mod input;
mod limits;
mod mail_errors;
mod migrations;
mod panics;
mod pure;
mod retention;
mod rules;
mod stalls;
mod steps;
mod worker;
