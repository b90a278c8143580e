//! Properties of the pure parts: delays, keys, the transition table.

use std::time::Duration;

use jobdeck::{Backoff, IdempotencyKey, JobState, Policy, Transition};
use proptest::prelude::*;

#[test]
fn default_delays_are_the_documented_ones() {
    let delays: Vec<u64> = (1..=8).map(|attempt| Backoff::default().base_delay(attempt).as_secs()).collect();
    assert_eq!(delays, [10, 20, 40, 80, 160, 320, 600, 600]);
}

proptest! {
    #[test]
    fn delay_is_never_below_zero_or_above_the_cap_at_any_attempt(
        attempt in prop_oneof![Just(1u32), Just(5), Just(64), Just(2_000_000_000), any::<u32>()],
        first_ms in 0u64..86_400_000,
        factor in 1.0f64..10.0,
        extra_ms in 0u64..86_400_000,
        jitter in 0.0f64..=1.0,
        random in 0.0f64..=1.0,
    ) {
        let first = Duration::from_millis(first_ms);
        let cap = first + Duration::from_millis(extra_ms);
        let backoff = Backoff::Exponential { first, factor, cap };
        let delay = backoff.delay(attempt, jitter, random);
        prop_assert!(delay <= cap);
        let base = backoff.base_delay(attempt);
        prop_assert!(delay.as_secs_f64() >= base.as_secs_f64() * (1.0 - jitter) - 1e-6);
        prop_assert!(delay.as_secs_f64() <= base.as_secs_f64() * (1.0 + jitter) + 1e-6);
        prop_assert!(backoff.base_delay(attempt) <= backoff.base_delay(attempt.saturating_add(1)));
    }

    #[test]
    fn fixed_delay_stays_within_its_jitter(wait_ms in 0u64..1_000_000, jitter in 0.0f64..=1.0, random in 0.0f64..=1.0) {
        let wait = Duration::from_millis(wait_ms);
        let delay = Backoff::Fixed(wait).delay(7, jitter, random).as_secs_f64();
        prop_assert!((delay - wait.as_secs_f64()).abs() <= wait.as_secs_f64() * jitter + 1e-6);
    }

    #[test]
    fn keys_are_equal_only_for_equal_fields(a in proptest::collection::vec(".{0,12}", 1..4), b in proptest::collection::vec(".{0,12}", 1..4)) {
        let key = |fields: &[String]| {
            let fields: Vec<&dyn std::fmt::Display> = fields.iter().map(|field| field as &dyn std::fmt::Display).collect();
            IdempotencyKey::of(&fields)
        };
        prop_assert_eq!(key(&a) == key(&b), a == b);
        prop_assert!((1..=IdempotencyKey::MAX_BYTES).contains(&key(&a).as_str().len()));
    }
}

#[test]
fn zero_first_wait_stays_zero_at_any_attempt() {
    let backoff = Backoff::Exponential { first: Duration::ZERO, factor: 2.0, cap: Duration::from_secs(60) };
    assert_eq!(backoff.delay(u32::MAX, 1.0, 1.0), Duration::ZERO);
}

#[test]
fn final_states_lead_nowhere_but_for_a_persons_retry() {
    for from in JobState::ALL {
        for transition in Transition::ALL {
            for to in JobState::ALL {
                if from.is_final() && from.allows(transition, to) {
                    assert_eq!((transition, to), (Transition::RetryByPerson, JobState::Pending));
                    assert_ne!(from, JobState::Succeeded);
                }
                assert!(!from.allows(transition, from), "a transition changes the state");
            }
        }
        assert_eq!(from.as_str().parse(), Ok(from));
    }
}

#[test]
fn policy_values_that_make_no_sense_are_refused_by_name() {
    let field = |policy: Policy| policy.check("type_name").err().map(|error| error.field);
    assert_eq!(field(Policy::default()), None);
    assert_eq!(field(Policy { max_attempts: 0, ..Policy::default() }), Some("max_attempts"));
    assert_eq!(field(Policy { max_stalled: -1, ..Policy::default() }), Some("max_stalled"));
    assert_eq!(field(Policy { jitter: 1.5, ..Policy::default() }), Some("jitter"));
    assert_eq!(field(Policy { jitter: f64::NAN, ..Policy::default() }), Some("jitter"));
    assert_eq!(field(Policy { timeout: Duration::ZERO, ..Policy::default() }), Some("timeout"));
    assert_eq!(field(Policy::in_queue("a/b")), Some("queue"));
    assert_eq!(field(Policy::default().stage("x", "X", "X").stage("x", "Y", "Y")), Some("stages"));
    let shrinking = Backoff::Exponential { first: Duration::from_secs(1), factor: 0.5, cap: Duration::from_secs(9) };
    assert_eq!(field(Policy { backoff: shrinking, ..Policy::default() }), Some("backoff"));
    assert!(Policy::default().check("naïve").is_err());
}
