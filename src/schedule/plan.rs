//! What is to be done about the ticks that are due. Pure: the time is passed in.

use chrono::{DateTime, TimeDelta, Utc};

use super::{MissedPolicy, Recurrence};

/// How late a tick may be seen to without counting as missed. A worker that restarts is back sooner.
const LATE_AFTER: TimeDelta = TimeDelta::seconds(60);

/// Missed ticks are counted up to this many: a schedule of each second and a month without workers are millions.
const MAX_COUNTED: i32 = 10_000;

/// Missed ticks that stand in one row of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) first: DateTime<Utc>,
    pub(crate) last: DateTime<Utc>,
    /// At most [`MAX_COUNTED`].
    pub(crate) n_ticks: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Ticks that get a job, in their order.
    pub(crate) run: Vec<DateTime<Utc>>,
    /// Earlier ones that get none.
    pub(crate) missed: Option<Missed>,
    /// Whether the first of `run` stands for the missed ones.
    pub(crate) merges: bool,
    pub(crate) next_at: Option<DateTime<Utc>>,
}

impl Plan {
    /// For a schedule whose first tick not seen to is `due_at`. Both times are the database's.
    pub(crate) fn of(recurrence: &Recurrence, policy: MissedPolicy, due_at: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        let mut plan = Self { next_at: recurrence.next_after(now), ..Self::default() };
        let Some(last) = recurrence.last_until(now, due_at) else { return plan };
        let at_most = match policy {
            MissedPolicy::Skip if now - last > LATE_AFTER => 0,
            MissedPolicy::Skip | MissedPolicy::Once => 1,
            MissedPolicy::All { at_most } => usize::from(at_most),
        };
        let mut place = Some(last);
        while let Some(tick) = place
            && plan.run.len() < at_most
        {
            plan.run.push(tick);
            place = recurrence.last_until(tick - TimeDelta::seconds(1), due_at);
        }
        plan.run.reverse();
        plan.merges = policy == MissedPolicy::Once;
        plan.missed = place.and_then(|last| {
            let first = recurrence.next_after(due_at - TimeDelta::seconds(1))?;
            let n_ticks = std::iter::successors(Some(first), |tick| recurrence.next_after(*tick))
                .take_while(|tick| *tick <= last)
                .take(MAX_COUNTED as usize)
                .count();
            Some(Missed { first, last, n_ticks: n_ticks as i32 })
        });
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        format!("2026-12-01T{text}Z").parse().expect("a time")
    }

    fn plan(policy: MissedPolicy, due_at: &str, now: &str) -> Plan {
        Plan::of(&Recurrence::parse("5 * * * *", "UTC").expect("readable"), policy, at(due_at), at(now))
    }

    fn missed(first: &str, last: &str, n_ticks: i32) -> Option<Missed> {
        Some(Missed { first: at(first), last: at(last), n_ticks })
    }

    #[test]
    fn tick_in_time_runs_under_every_policy() {
        for policy in [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All { at_most: 5 }] {
            let plan = plan(policy, "10:05:00", "10:05:01");
            assert_eq!((plan.run, plan.missed, plan.next_at), (vec![at("10:05:00")], None, Some(at("11:05:00"))));
        }
    }

    #[test]
    fn nothing_due_is_nothing_to_do() {
        let plan = plan(MissedPolicy::Once, "10:05:00", "10:04:59");
        assert_eq!((plan.run, plan.missed, plan.next_at), (vec![], None, Some(at("10:05:00"))));
    }

    #[test]
    fn skip_leaves_out_all_but_the_one_in_time() {
        let late = plan(MissedPolicy::Skip, "10:05:00", "13:30:00");
        assert_eq!((late.run, late.missed), (vec![], missed("10:05:00", "13:05:00", 4)));
        let in_time = plan(MissedPolicy::Skip, "10:05:00", "13:06:00");
        assert_eq!((in_time.run, in_time.missed), (vec![at("13:05:00")], missed("10:05:00", "12:05:00", 3)));
        assert!(!in_time.merges);
    }

    #[test]
    fn once_merges_the_earlier_into_the_last() {
        let plan = plan(MissedPolicy::Once, "10:05:00", "13:30:00");
        assert_eq!((plan.run, plan.missed), (vec![at("13:05:00")], missed("10:05:00", "12:05:00", 3)));
        assert!(plan.merges);
    }

    #[test]
    fn all_runs_the_last_ones_in_their_order() {
        let whole = plan(MissedPolicy::All { at_most: 4 }, "10:05:00", "13:30:00");
        assert_eq!(whole.run, ["10:05:00", "11:05:00", "12:05:00", "13:05:00"].map(at));
        assert_eq!(whole.missed, None);
        let bounded = plan(MissedPolicy::All { at_most: 3 }, "10:05:00", "13:30:00");
        assert_eq!(bounded.run, ["11:05:00", "12:05:00", "13:05:00"].map(at));
        assert_eq!(bounded.missed, missed("10:05:00", "10:05:00", 1));
        assert!(!bounded.merges);
    }

    #[test]
    fn years_of_seconds_are_planned_at_once_and_counted_up_to_a_bound() {
        let every_second = Recurrence::parse("* * * * * *", "Europe/Berlin").expect("readable");
        let now = at("12:00:00");
        let begun = std::time::Instant::now();
        let plan = Plan::of(&every_second, MissedPolicy::All { at_most: 1000 }, now - TimeDelta::days(900), now);
        assert_eq!((plan.run.len(), plan.run[0]), (1000, now - TimeDelta::seconds(999)));
        assert_eq!(plan.missed.map(|missed| missed.n_ticks), Some(MAX_COUNTED));
        assert!(begun.elapsed().as_secs() < 10, "took {:?}", begun.elapsed());
    }
}
