//! The queue on real Postgres, a database for each test.

mod support;

mod bulk;
mod claim;
mod control;
mod counters;
mod effects;
mod enqueue;
mod histories;
mod limits;
mod migrations;
mod pure;
mod retention;
mod rules;
mod stalls;
mod steps;
mod worker;
