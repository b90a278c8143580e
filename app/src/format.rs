//! Numbers, durations and times as people read them. Pure: the present moment is passed in, so that server and browser
//! write the same text.

use chrono::{DateTime, Datelike, Timelike, Utc};

use crate::i18n::Locale;

/// A whole number with a comma every three digits; a fraction keeps one digit.
pub fn decimal(number: f64) -> String {
    if number.fract().abs() > 1e-9 { format!("{number:.1}") } else { count(number as i64) }
}

/// A whole number with a comma every three digits, in both languages.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the unit that suits it.
pub fn bytes(number: u64) -> String {
    match number {
        0..1_000 => format!("{number} B"),
        1_000..1_000_000 => format!("{:.1} kB", number as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", number as f64 / 1e6),
        _ => format!("{:.1} GB", number as f64 / 1e9),
    }
}

/// A duration for tables: `0.4s`, `42s`, `1m 12s`, `2h 04m`, `3d 02h`. Below zero counts as zero.
pub fn short_duration(milliseconds: i64) -> String {
    let milliseconds = milliseconds.max(0);
    let seconds = milliseconds / 1000;
    match seconds {
        0..10 => format!("{}.{}s", seconds, milliseconds % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A duration for sentences: `42 s`, `1 min 12 s`, `2 h 4 min`, `3 d`.
pub fn long_duration(locale: Locale, milliseconds: i64) -> String {
    let seconds = milliseconds.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => locale.format("duration-seconds", &[("s", seconds.into())]),
        60..600 if seconds % 60 > 0 => {
            locale.format("duration-minutes-seconds", &[("m", minutes.into()), ("s", (seconds % 60).into())])
        }
        60..3600 => locale.format("duration-minutes", &[("m", minutes.into())]),
        3600..86_400 if minutes % 60 > 0 => {
            locale.format("duration-hours-minutes", &[("h", hours.into()), ("m", (minutes % 60).into())])
        }
        3600..86_400 => locale.format("duration-hours", &[("h", hours.into())]),
        _ => locale.format("duration-days", &[("d", days.into())]),
    }
}

/// How long ago or how far ahead `at` is, in the largest unit that fits.
pub fn relative(locale: Locale, at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (now - at).num_seconds();
    let ahead = seconds < 0;
    let seconds = seconds.abs();
    match (seconds, ahead) {
        (0, _) => locale.text("time-now"),
        (1..60, false) => locale.format("time-seconds-ago", &[("n", seconds.into())]),
        (60..3600, false) => locale.format("time-minutes-ago", &[("n", (seconds / 60).into())]),
        (3600..86_400, false) => locale.format("time-hours-ago", &[("n", (seconds / 3600).into())]),
        (_, false) => locale.format("time-days-ago", &[("n", (seconds / 86_400).into())]),
        (1..60, true) => locale.format("time-in-seconds", &[("n", seconds.into())]),
        (60..3600, true) => locale.format("time-in-minutes", &[("n", (seconds / 60).into())]),
        (3600..86_400, true) => locale.format("time-in-hours", &[("n", (seconds / 3600).into())]),
        (_, true) => locale.format("time-in-days", &[("n", (seconds / 86_400).into())]),
    }
}

/// `2026-11-30 14:05:35` at an offset of so many minutes east of UTC, with the zone.
pub fn absolute(at: DateTime<Utc>, minutes_east: Option<i32>) -> String {
    let shifted = shift(at, minutes_east);
    format!(
        "{}-{:02}-{:02} {:02}:{:02}:{:02} {}",
        shifted.year(),
        shifted.month(),
        shifted.day(),
        shifted.hour(),
        shifted.minute(),
        shifted.second(),
        zone(minutes_east)
    )
}

/// `14:05:35` on the day of `now`, else with the date in front.
pub fn clock(at: DateTime<Utc>, now: DateTime<Utc>, minutes_east: Option<i32>) -> String {
    let (shifted, today) = (shift(at, minutes_east), shift(now, minutes_east));
    let time = format!("{:02}:{:02}:{:02}", shifted.hour(), shifted.minute(), shifted.second());
    if shifted.date_naive() == today.date_naive() {
        time
    } else {
        format!("{}-{:02}-{:02} {time}", shifted.year(), shifted.month(), shifted.day())
    }
}

/// The zone's name: `UTC`, `UTC+8`, `UTC-3:30`. `None` is the server's, which is UTC.
pub fn zone(minutes_east: Option<i32>) -> String {
    let minutes = minutes_east.unwrap_or(0);
    if minutes == 0 {
        return "UTC".to_owned();
    }
    let sign = if minutes < 0 { '-' } else { '+' };
    let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
    if rest == 0 { format!("UTC{sign}{hours}") } else { format!("UTC{sign}{hours}:{rest:02}") }
}

/// For the attribute `datetime`.
pub fn machine(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

fn shift(at: DateTime<Utc>, minutes_east: Option<i32>) -> DateTime<Utc> {
    at + chrono::TimeDelta::minutes(i64::from(minutes_east.unwrap_or(0)))
}
