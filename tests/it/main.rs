//! The queue on real Postgres, a database for each test.

mod support;

mod backoff;
mod bulk;
mod claim;
mod claim_behind;
mod classes;
mod control;
mod counters;
#[cfg(feature = "derive")]
mod derive;
mod due;
mod effects;
mod enqueue;
mod error_text;
mod histories;
mod http_errors;
mod input;
mod limits;
mod machine;
mod mail_errors;
mod migrations;
mod model;
mod panics;
mod pure;
mod redaction;
mod retention;
mod roles;
mod rules;
mod schedules;
mod sql_interface;
mod stalls;
mod steps;
mod worker;
