//! The queue on real Postgres, a database for each test.

mod support;

mod backoff;
mod claim;
mod classes;
mod control;
mod enqueue;
mod error_text;
mod histories;
mod http_errors;
mod input;
mod mail_errors;
mod migrations;
mod panics;
mod pure;
mod rules;
mod worker;
