//! The queue on real Postgres, a database for each test.

mod support;

mod claim;
mod control;
mod counters;
mod effects;
mod enqueue;
mod histories;
mod limits;
mod migrations;
mod pure;
mod rules;
mod stalls;
mod steps;
mod worker;
