//! The queue against a reference: a plain model of the job's states takes the same random steps as the real store, and after each
//! step both must have given the same answer and hold the same jobs.
//!
//! Three logical workers claim, renew, end and lose jobs; late and repeated outcomes are as likely as timely ones; the reaper reads
//! and writes apart; people cancel, retry, delete, pause and limit; time passes in hours. The model says exactly which jobs a claim
//! takes and in which order. `rules.rs` walks with less knowledge and checks what must hold in any case; `model.rs` searches one job
//! exhaustively without a database.
//!
//! `JOBDECK_MACHINE_CASES` sets how many walks of 40 steps are taken (default 64; 2,000 for a thorough run).

mod reference;
mod system;

use proptest::test_runner::{Config, TestRunner};
use proptest_state_machine::ReferenceStateMachine;

use crate::support::Db;
use reference::{Machine, Model};
use system::System;

const STEPS: usize = 40;

#[test]
fn store_does_what_the_reference_says_step_by_step() {
    let n_cases = std::env::var("JOBDECK_MACHINE_CASES").map_or(64, |text| text.parse().expect("a number of cases"));
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let db = runtime.block_on(Db::new());
    let config = Config { cases: n_cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let walked = runner.run(&Machine::sequential_strategy(STEPS), |(start, transitions, seen)| {
        runtime.block_on(async {
            let mut model: Model = start;
            let mut system = System::start(&db).await;
            for transition in &transitions {
                if let Some(seen) = &seen {
                    seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                }
                let expected = model.take(transition);
                let answered = system.take(transition).await;
                assert_eq!(answered, expected, "the answer to {transition:?}");
                assert_eq!(system.read().await, model.view(), "the jobs after {transition:?}");
            }
        });
        Ok(())
    });
    if let Err(error) = walked {
        panic!("{error}");
    }
}
