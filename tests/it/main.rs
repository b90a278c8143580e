//! The queue on real Postgres, a database for each test.

mod support;

mod claim;
mod control;
mod enqueue;
mod histories;
mod migrations;
mod pure;
mod rules;
mod worker;
