//! The scenarios, each with what it promises.

mod controls;
mod crashes;
mod database;
mod enqueuing;

use std::future::Future;
use std::pin::Pin;

use anyhow::Result;

use crate::Extent;

type Run = fn(Extent) -> Pin<Box<dyn Future<Output = Result<()>>>>;

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) promise: &'static str,
    pub(crate) run: Run,
}

macro_rules! scenarios {
    ($($name:literal, $promise:literal, $run:path;)*) => {
        vec![$(Scenario { name: $name, promise: $promise, run: |extent| Box::pin($run(extent)) }),*]
    };
}

/// Every scenario, in the order they are run.
pub(crate) fn all() -> Vec<Scenario> {
    scenarios! {
        "sigkill_loop", "workers killed again and again lose nothing and do nothing twice behind a key",
            crashes::sigkill_loop;
        "frozen_worker", "a worker frozen for three leases has every late outcome refused", crashes::frozen_worker;
        "busy_handlers", "handlers that spin on every thread for three leases are not taken away", crashes::busy_handlers;
        "time_to_recover", "a killed worker's jobs all run again within 17 s in the defaults, none early",
            crashes::time_to_recover;
        "poison", "a job that kills its process starts four times and takes no other job to failure", crashes::poison;
        "graceful_stop", "a stopping worker finishes what it runs and takes no more", crashes::graceful_stop;
        "handler_ends", "panics and errors are failed attempts and harm no other job", crashes::handler_ends;
        "timeout", "handlers past their time free their slots", crashes::timeout;
        "connection_storm", "connections cut again and again lose nothing", database::connection_storm;
        "database_crashes", "a database that crashes again and again loses no accepted job", database::database_crashes;
        "lost_replies", "outcomes whose replies are lost count once", database::lost_replies;
        "half_open_listener", "a listener that hears nothing more costs a poll, and is replaced",
            database::half_open_listener;
        "no_hints", "without any hint every job starts by the next poll", database::no_hints;
        "dropped_calls", "calls dropped half way leave no transaction open", database::dropped_calls;
        "transactions", "an enqueue runs if and only if its transaction committed, and not before",
            enqueuing::transactions;
        "one_key", "callers with one key at once get one job", enqueuing::one_key;
        "global_limit", "a limit of three holds over four workers that are killed", controls::global_limit;
        "cancels", "a job answered as canceled never succeeds", controls::cancels;
        "backoff", "delays stay inside the formula, and attempts end where they should", controls::backoff;
    }
}
