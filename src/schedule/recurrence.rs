//! The ticks of a cron expression in a time zone, clock changes included.

use chrono::{DateTime, FixedOffset, NaiveDateTime, Offset, SubsecRound, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

/// Longest expression, in bytes.
const MAX_CRON_BYTES: usize = 200;

/// No clock is set back by more at once.
const LONGEST_OVERLAP: TimeDelta = TimeDelta::hours(3);

const SECOND: TimeDelta = TimeDelta::seconds(1);

/// An expression or a zone that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct RecurrenceError {
    /// `cron` or `zone`.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// A tick that clocks going forward move: its local time does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedTick {
    /// The local time the expression names.
    pub local: NaiveDateTime,
    /// When it comes instead: the moment of the change.
    pub tick: DateTime<Utc>,
}

/// When something comes again: a cron expression in a time zone. Pure: the time is passed in.
///
/// Fields: minute, hour, day of month, month, day of week (0 and 7 are Sunday), with an optional field for seconds before them;
/// `*`, lists, ranges and steps, names of months and days, `L` (last), `W` (closest weekday), `#` (nth weekday of the month). Where
/// day of month and day of week are both restricted, either is enough, as in every cron.
///
/// # When clocks change
///
/// An expression that names hours is about the clock on the wall: it comes once for each local time it names.
///
/// - A local time that does not exist, because clocks go forward over it, comes at the moment of the change. Several such times come
///   as one.
/// - A local time that exists twice comes the first time.
///
/// An expression that lets every hour pass (`*`, `*/1`, `0-23`) is about time going by: it comes at each moment whose local time it
/// matches. Nothing is moved into the hour after a gap, and in an hour that exists twice it comes in both.
#[derive(Clone, Debug)]
pub struct Recurrence {
    cron: Cron,
    zone: Tz,
    every_hour: bool,
}

impl Recurrence {
    /// Reads both.
    ///
    /// # Errors
    /// If the expression cannot be read or has no ticks, or if there is no such zone.
    pub fn parse(cron: &str, zone: &str) -> Result<Self, RecurrenceError> {
        let refuse = |field, problem: String| Err(RecurrenceError { field, problem });
        if cron.len() > MAX_CRON_BYTES {
            return refuse("cron", format!("is {} bytes, the limit is {MAX_CRON_BYTES}", cron.len()));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let parsed = match parser.parse(cron) {
            Ok(parsed) => parsed,
            Err(error) => return refuse("cron", format!("{cron:?} cannot be read: {error}")),
        };
        let Ok(zone) = zone.parse::<Tz>() else {
            return refuse("zone", format!("{zone:?} is not in the IANA database; write a name such as Europe/Berlin"));
        };
        let every_hour = parsed.pattern.hours.values().len() == 24;
        let recurrence = Self { cron: parsed, zone, every_hour };
        // Some day within every 28 years has each date and weekday that exists.
        if recurrence.next_after(DateTime::UNIX_EPOCH).is_none() {
            return refuse("cron", format!("{cron:?} never comes: there is no such day"));
        }
        Ok(recurrence)
    }

    /// The zone's name.
    pub fn zone(&self) -> &'static str {
        self.zone.name()
    }

    /// The first tick after `after`; the same moment does not count. Ticks are at whole seconds.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let after = after.trunc_subsecs(0);
        if self.every_hour { self.next_by_elapsed_time(after) } else { self.next_by_wall_clock(after) }
    }

    /// The last tick up to `until`, if there is one at or after `from`.
    pub fn last_until(&self, until: DateTime<Utc>, from: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut low = from - SECOND;
        let mut high = until;
        let mut last = self.next_after(low).filter(|tick| *tick <= until)?;
        // Halves the time between a moment with a tick behind it and one without.
        while high - low > SECOND {
            let middle = low + (high - low) / 2;
            match self.next_after(middle) {
                Some(tick) if tick <= until => {
                    last = tick;
                    low = middle.max(tick - SECOND);
                }
                _ => high = middle,
            }
        }
        Some(last)
    }

    /// The next ticks after `after`, at most `n`.
    pub fn upcoming(&self, after: DateTime<Utc>, n: usize) -> Vec<DateTime<Utc>> {
        std::iter::successors(self.next_after(after), |tick| self.next_after(*tick)).take(n).collect()
    }

    /// A moment in the schedule's own zone.
    pub fn local_time(&self, at: DateTime<Utc>) -> DateTime<FixedOffset> {
        at.with_timezone(&self.zone).fixed_offset()
    }

    /// The first tick after `after` and up to `until` that a change of clocks moves, for those who want to warn of it. Looks at 10,000
    /// ticks at most.
    pub fn next_moved(&self, after: DateTime<Utc>, until: DateTime<Utc>) -> Option<MovedTick> {
        if self.every_hour {
            return None;
        }
        let locals =
            std::iter::successors(Some(self.local(after)), |local| self.cron.find_next_occurrence(local, false).ok());
        locals
            .skip(1)
            .take(10_000)
            .take_while(|local| *local <= self.local(until))
            .find(|local| self.zone.from_local_datetime(local).earliest().is_none())
            .map(|local| MovedTick { local, tick: self.first_moment(local) })
    }

    fn next_by_wall_clock(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut local = self.local(after);
        loop {
            local = self.cron.find_next_occurrence(&local, false).ok()?;
            let tick = self.first_moment(local);
            // Not so in an hour that exists for the second time.
            if tick > after {
                return Some(tick);
            }
        }
    }

    fn next_by_elapsed_time(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let local = self.local(after);
        let soon = after + LONGEST_OVERLAP;
        if self.offset(soon) == self.offset(after) {
            return self.moment_after(self.cron.find_next_occurrence(&local, false).ok()?, after);
        }
        // Up to the change by the clock as it is, from then on by the changed one, the moment of the change included.
        let change = self.change_between(after, soon);
        if let Ok(next) = self.cron.find_next_occurrence(&local, false) {
            let tick = next.and_utc() - self.offset(after);
            if tick < change {
                return Some(tick);
            }
        }
        self.moment_after(self.cron.find_next_occurrence(&self.local(change), true).ok()?, change - SECOND)
    }

    /// The first moment after `after` whose local time is `local` or a later one that matches.
    fn moment_after(&self, mut local: NaiveDateTime, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        loop {
            let moments = self.zone.from_local_datetime(&local);
            let moments = [moments.earliest(), moments.latest()].into_iter().flatten();
            if let Some(tick) = moments.map(|tick| tick.to_utc()).find(|tick| *tick > after) {
                return Some(tick);
            }
            local = self.cron.find_next_occurrence(&local, false).ok()?;
        }
    }

    /// When `local` comes first, or would have.
    fn first_moment(&self, local: NaiveDateTime) -> DateTime<Utc> {
        match self.zone.from_local_datetime(&local).earliest() {
            Some(tick) => tick.to_utc(),
            None => {
                // By the clock as it was before, the time lies behind the change; by the changed one, before it.
                let day = TimeDelta::days(1);
                let (before, after) = (self.offset(local.and_utc() - day), self.offset(local.and_utc() + day));
                self.change_between(local.and_utc() - after, local.and_utc() - before)
            }
        }
    }

    fn local(&self, at: DateTime<Utc>) -> NaiveDateTime {
        at.with_timezone(&self.zone).naive_local()
    }

    fn offset(&self, at: DateTime<Utc>) -> TimeDelta {
        let offset = self.zone.offset_from_utc_datetime(&at.naive_utc()).fix();
        TimeDelta::seconds(i64::from(offset.local_minus_utc()))
    }

    /// The first second whose offset differs from that of `low`. There is one up to `high`.
    fn change_between(&self, mut low: DateTime<Utc>, mut high: DateTime<Utc>) -> DateTime<Utc> {
        let before = self.offset(low);
        while high - low > SECOND {
            let middle = low + TimeDelta::seconds((high - low).num_seconds() / 2);
            if self.offset(middle) == before { low = middle } else { high = middle }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    fn recurrence(cron: &str, zone: &str) -> Recurrence {
        Recurrence::parse(cron, zone).unwrap_or_else(|error| panic!("{cron} in {zone}: {error}"))
    }

    /// The ticks from `from` up to `until`, in local time with its offset.
    fn local_ticks(cron: &str, zone: &str, from: &str, until: &str) -> Vec<String> {
        let recurrence = recurrence(cron, zone);
        std::iter::successors(recurrence.next_after(at(from) - SECOND), |tick| recurrence.next_after(*tick))
            .take_while(|tick| *tick < at(until))
            .map(|tick| tick.with_timezone(&recurrence.zone).format("%d %H:%M:%S %:z").to_string())
            .collect()
    }

    #[test]
    fn daily_time_that_does_not_exist_comes_at_the_change() {
        // Clocks go from 02:00 to 03:00.
        let berlin = local_ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z");
        assert_eq!(berlin, ["28 02:30:00 +01:00", "29 03:00:00 +02:00", "30 02:30:00 +02:00"]);
        let york = local_ticks("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-10T00:00:00Z");
        assert_eq!(york, ["08 03:00:00 -04:00", "09 02:30:00 -04:00"]);
        // From 02:00 to 02:30.
        let howe = local_ticks("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12:00:00Z", "2026-10-05T00:00:00Z");
        assert_eq!(howe, ["03 02:15:00 +10:30", "04 02:30:00 +11:00", "05 02:15:00 +11:00"]);
        // Midnight does not exist.
        let santiago = local_ticks("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", "2026-09-07T12:00:00Z");
        assert_eq!(santiago, ["06 01:00:00 -03:00", "07 00:00:00 -03:00"]);
    }

    #[test]
    fn several_times_in_one_gap_come_as_one() {
        let ticks = local_ticks("*/20 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-30T00:30:00Z");
        assert_eq!(ticks, ["29 03:00:00 +02:00", "30 02:00:00 +02:00", "30 02:20:00 +02:00"]);
    }

    #[test]
    fn times_beside_a_gap_stay_where_they_are() {
        for (cron, expected) in [("0 1 * * *", "29 01:00:00 +01:00"), ("0 3 * * *", "29 03:00:00 +02:00")] {
            let ticks = local_ticks(cron, "Europe/Berlin", "2026-03-28T22:00:00Z", "2026-03-29T22:00:00Z");
            assert_eq!(ticks, [expected], "{cron}");
        }
    }

    #[test]
    fn daily_time_that_exists_twice_comes_the_first_time() {
        let berlin = local_ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z");
        assert_eq!(berlin, ["25 02:30:00 +02:00", "26 02:30:00 +01:00"]);
        let york = local_ticks("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-02T12:00:00Z");
        assert_eq!(york, ["01 01:30:00 -04:00", "02 01:30:00 -05:00"]);
        // From 02:00 back to 01:30.
        let howe = local_ticks("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-06T00:00:00Z");
        assert_eq!(howe, ["05 01:45:00 +11:00", "06 01:45:00 +10:30"]);
        // Also asked from within the second time.
        let recurrence = recurrence("30 2 * * *", "Europe/Berlin");
        assert_eq!(recurrence.next_after(at("2026-10-25T01:15:00Z")), Some(at("2026-10-26T01:30:00Z")));
    }

    #[test]
    fn every_few_minutes_has_no_pause_and_no_burst_when_clocks_change() {
        let changes = [
            ("Europe/Berlin", "2026-03-29T01:00:00Z"),
            ("Europe/Berlin", "2026-10-25T01:00:00Z"),
            ("Europe/London", "2026-03-29T01:00:00Z"),
            ("Europe/London", "2026-10-25T01:00:00Z"),
            ("America/New_York", "2026-03-08T07:00:00Z"),
            ("America/New_York", "2026-11-01T06:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
            // At midnight.
            ("America/Havana", "2026-03-08T05:00:00Z"),
            ("America/Havana", "2026-11-01T05:00:00Z"),
        ];
        for (zone, change) in changes {
            let recurrence = recurrence("*/5 * * * *", zone);
            let (mut tick, end) = (at(change) - TimeDelta::hours(5), at(change) + TimeDelta::hours(5));
            assert_ne!(
                recurrence.offset(at(change)),
                recurrence.offset(at(change) - SECOND),
                "{zone} changes at {change}"
            );
            while tick < end {
                let next = recurrence.next_after(tick).expect("there is one");
                assert_eq!(next - tick, TimeDelta::minutes(5), "{zone} after {tick}");
                tick = next;
            }
        }
    }

    #[test]
    fn hourly_comes_in_both_hours_of_one_name_also_on_the_last_day_that_matches() {
        let berlin = local_ticks("10 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", "2026-10-25T02:30:00Z");
        assert_eq!(berlin, ["25 02:10:00 +02:00", "25 02:10:00 +01:00", "25 03:10:00 +01:00"]);
        // Clocks go from 01:00 back to 00:00 of the same day.
        let havana = local_ticks("15 * 1 11 *", "America/Havana", "2026-11-01T04:00:00Z", "2026-11-01T07:00:00Z");
        assert_eq!(havana, ["01 00:15:00 -04:00", "01 00:15:00 -05:00", "01 01:15:00 -05:00"]);
    }

    #[test]
    fn tick_that_a_change_of_clocks_moves_is_announced() {
        let daily = recurrence("30 2 * * *", "Europe/Berlin");
        let moved = daily.next_moved(at("2026-12-01T00:00:00Z"), at("2027-12-01T00:00:00Z")).expect("in March");
        assert_eq!(moved.local.to_string(), "2027-03-28 02:30:00");
        assert_eq!(daily.local_time(moved.tick).to_rfc3339(), "2027-03-28T03:00:00+02:00");
        assert_eq!(daily.next_moved(at("2026-12-01T00:00:00Z"), at("2027-03-27T00:00:00Z")), None);
        for (cron, zone) in
            [("30 2 * * *", "Asia/Kolkata"), ("*/5 * * * *", "Europe/Berlin"), ("0 9 * * *", "Europe/Berlin")]
        {
            let moved = recurrence(cron, zone).next_moved(at("2026-12-01T00:00:00Z"), at("2027-12-01T00:00:00Z"));
            assert_eq!(moved, None, "{cron} in {zone}");
        }
    }

    #[test]
    fn end_of_month_leap_day_and_weekdays() {
        let ticks = |cron, n| -> Vec<String> {
            let upcoming = recurrence(cron, "Asia/Kolkata").upcoming(at("2026-12-01T00:00:00Z"), n);
            upcoming.iter().map(|tick| tick.format("%F %H:%M").to_string()).collect()
        };
        assert_eq!(ticks("0 12 L * *", 3), ["2026-12-31 06:30", "2027-01-31 06:30", "2027-02-28 06:30"]);
        assert_eq!(ticks("0 12 31 * *", 3), ["2026-12-31 06:30", "2027-01-31 06:30", "2027-03-31 06:30"]);
        assert_eq!(ticks("0 12 29 2 *", 2), ["2028-02-29 06:30", "2032-02-29 06:30"]);
        assert_eq!(
            ticks("30 8 * * 1-5", 4),
            ["2026-12-01 03:00", "2026-12-02 03:00", "2026-12-03 03:00", "2026-12-04 03:00"]
        );
        assert_eq!(ticks("*/20 * * * * *", 2), ["2026-12-01 00:00", "2026-12-01 00:00"]);
    }

    #[test]
    fn what_cannot_be_read_or_never_comes_is_refused_by_name() {
        let refused = |cron: &str, zone| Recurrence::parse(cron, zone).map(|_| ()).unwrap_err();
        for cron in
            ["", "* * * *", "61 * * * *", "x", "0 0 30 2 *", "0 0 31 4,6 *", "0 0 0 1 1 * 2027", "@reboot", "\0"]
        {
            let begun = std::time::Instant::now();
            assert_eq!(refused(cron, "UTC").field, "cron", "{cron:?}");
            assert!(begun.elapsed().as_secs() < 2, "{cron:?} is refused soon: {:?}", begun.elapsed());
        }
        assert_eq!(refused(&"1,".repeat(200), "UTC").field, "cron");
        for zone in ["", "Berlin", "UTC+2", "Europe/berlin "] {
            assert_eq!(refused("* * * * *", zone).field, "zone", "{zone:?}");
        }
    }

    #[test]
    fn last_until_is_the_tick_that_has_no_other_behind_it() {
        for (cron, zone) in [("*/7 * * * *", "UTC"), ("0 9 * * 1", "Europe/Berlin"), ("* * 2 * * *", "Asia/Kolkata")] {
            let recurrence = recurrence(cron, zone);
            let until = at("2026-12-01T12:34:56Z");
            let last = recurrence.last_until(until, at("2026-06-01T00:00:00Z")).expect("there is one");
            assert!(last <= until && recurrence.next_after(last).is_some_and(|next| next > until), "{cron}: {last}");
            assert_eq!(recurrence.next_after(last - SECOND), Some(last), "{cron}: {last} is a tick");
            assert_eq!(recurrence.last_until(last, last), Some(last));
            assert_eq!(recurrence.last_until(until, until + SECOND), None);
        }
    }
}
