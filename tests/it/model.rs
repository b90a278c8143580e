//! The lease protocol as a small model, searched through breadth first: every order in which two workers, a reaper that reads
//! and writes apart, a person and late messages can meet over one job. Under the right rules no state breaks a promise and every
//! state can come to an end by itself; under each wrong rule, the rule of a real system somewhere, a shortest counterexample
//! is found. `docs/state-machine.md` lists them.

mod search;
mod state;

use search::{Finding, explore};
use state::Rules;

fn assert_caught(rules: Rules, promise: &str) {
    match explore(rules) {
        Finding::Sound { n_states } => panic!("{rules:?} broke nothing in {n_states} states"),
        Finding::Broken { promise: broken, path } => {
            assert_eq!(broken, promise, "{rules:?} is caught for the right reason:\n{}", path.join("\n"));
            println!("{rules:?}: {broken}\n  {}", path.join("\n  "));
        }
    }
}

#[test]
fn right_rules_break_no_promise_and_every_state_comes_to_an_end() {
    match explore(Rules::RIGHT) {
        Finding::Sound { n_states } => {
            println!("{n_states} states");
            assert!(n_states > 10_000, "the search went somewhere: {n_states} states");
        }
        Finding::Broken { promise, path } => panic!("{promise}:\n{}", path.join("\n")),
    }
}

macro_rules! mutants {
    ($($name:ident: $change:expr => $promise:literal;)*) => {$(
        #[test]
        fn $name() {
            let mut rules = Rules::RIGHT;
            let change: fn(&mut Rules) = $change;
            change(&mut rules);
            assert_caught(rules, $promise);
        }
    )*};
}

mutants! {
    outcome_guarded_by_id_only_is_caught: |rules| rules.outcome = state::Guard::Id
        => "a late outcome is refused while another runs";
    outcome_guarded_by_status_only_is_caught: |rules| rules.outcome = state::Guard::Status
        => "a late outcome is refused while another runs";
    outcome_guarded_by_worker_name_is_caught: |rules| rules.outcome = state::Guard::Worker
        => "a late outcome is refused while another runs";
    outcome_guarded_by_attempts_is_caught: |rules| rules.outcome = state::Guard::Attempts
        => "a late outcome is refused while another runs";
    outcome_guarded_by_token_without_status_is_caught: |rules| (rules.outcome, rules.n_outcomes) = (state::Guard::Token, 2)
        => "one outcome a token";
    heartbeat_guarded_by_status_only_is_caught: |rules| rules.heartbeat = state::Guard::Status
        => "only the holder's lease is renewed";
    heartbeat_guarded_by_worker_name_is_caught: |rules| rules.heartbeat = state::Guard::Worker
        => "only the holder's lease is renewed";
    reaper_guarded_by_id_only_is_caught: |rules| rules.reaper = state::ReaperGuard::Id
        => "a lease that was renewed or ended is not reaped";
    reaper_guarded_by_status_only_is_caught: |rules| rules.reaper = state::ReaperGuard::Status
        => "a lease that was renewed or ended is not reaped";
    reaper_that_does_not_compare_the_expiry_is_caught: |rules| rules.reaper = state::ReaperGuard::Token
        => "a lease that was renewed or ended is not reaped";
    reaper_without_a_cap_is_caught: |rules| rules.stalls_are_capped = false
        => "stalls stay within their limit";
    no_reaper_is_caught: |rules| rules.reaps = false
        => "every state can come to an end";
    token_reset_by_a_persons_retry_is_caught: |rules| rules.retry_keeps_token = false
        => "two executions never share a token";
    attempt_counted_at_failure_is_caught: |rules| rules.attempt_counts_at_claim = false
        => "a job starts no more often than its attempts allow";
    cancel_that_forgets_a_running_job_is_caught: |rules| rules.cancel_waits_for_the_holder = false
        => "after canceled nothing succeeds";
}
