//! The queue on real Postgres, a database for each test.

mod support;

mod claim;
mod control;
mod counters;
#[cfg(feature = "derive")]
mod derive;
mod effects;
mod enqueue;
mod histories;
mod limits;
mod migrations;
mod pure;
mod roles;
mod rules;
mod sql_interface;
mod stalls;
mod steps;
mod worker;
