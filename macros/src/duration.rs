//! Durations, backoffs and retention as people write them in attributes.

use std::time::Duration;

const UNITS: [(&str, u64); 7] = [
    ("ms", 1),
    ("s", 1_000),
    ("min", 60_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 7 * 86_400_000),
];

/// `1h30m`: a sum of whole numbers with units.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let refuse = || {
        format!(
            "{text:?} is no duration: write whole numbers with a unit (ms, s, m, h, d, w), such as \"500ms\", \"90s\", \"1h30m\", \"30d\""
        )
    };
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    if rest.is_empty() {
        return Err(refuse());
    }
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(refuse)?;
        let number: u64 = rest[..digits].parse().map_err(|_| refuse())?;
        rest = &rest[digits..];
        let letters = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..letters]).ok_or_else(refuse)?;
        millis = number.checked_mul(*unit).and_then(|more| millis.checked_add(more)).ok_or_else(refuse)?;
        rest = rest[letters..].trim_start();
    }
    Ok(Duration::from_millis(millis))
}

/// A backoff in words.
#[derive(Debug, PartialEq)]
pub(crate) enum WrittenBackoff {
    Fixed(Duration),
    Exponential { first: Duration, factor: f64, cap: Duration },
}

/// `fixed 5s` or `exponential 10s x2 10m`.
pub(crate) fn parse_backoff(text: &str) -> Result<WrittenBackoff, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["fixed", wait] => Ok(WrittenBackoff::Fixed(parse(wait)?)),
        ["exponential", first, factor, cap] => {
            let factor = factor.strip_prefix('x').and_then(|factor| factor.parse::<f64>().ok());
            let factor = factor.filter(|factor| *factor >= 1.0 && factor.is_finite());
            let factor = factor
                .ok_or_else(|| format!("{text:?} needs a factor of at least 1, written as \"x2\" or \"x1.5\""))?;
            let (first, cap) = (parse(first)?, parse(cap)?);
            if first > cap {
                return Err(format!("{text:?} begins with more than its cap"));
            }
            Ok(WrittenBackoff::Exponential { first, factor, cap })
        }
        _ => Err(format!(
            "{text:?} is no backoff: write \"fixed 5s\", \"exponential 10s x2 10m\" (first, factor, cap), or the path of a constant of type Backoff without quotes"
        )),
    }
}

/// How much is kept.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct WrittenKeep {
    pub(crate) age: Option<Duration>,
    pub(crate) count: Option<i64>,
}

/// `500`, `30d`, `2000, 30d` or `forever`.
pub(crate) fn parse_keep(text: &str) -> Result<WrittenKeep, String> {
    let refuse = || {
        format!(
            "{text:?} says nothing about what is kept: write a number of jobs, a duration, both (\"2000, 30d\") or \"forever\""
        )
    };
    let mut keep = WrittenKeep::default();
    if text.trim() == "forever" {
        return Ok(keep);
    }
    for part in text.split(',').map(str::trim) {
        if !part.is_empty() && part.bytes().all(|letter| letter.is_ascii_digit()) {
            if keep.count.replace(part.parse().map_err(|_| refuse())?).is_some() {
                return Err(refuse());
            }
        } else if keep.age.replace(parse(part).map_err(|_| refuse())?).is_some() {
            return Err(refuse());
        }
    }
    Ok(keep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        let written =
            [("0s", 0), ("500ms", 500), ("90s", 90_000), ("10m", 600_000), ("10min", 600_000), ("1h30m", 5_400_000)];
        for (text, millis) in
            written.into_iter().chain([("1h 5s", 3_605_000), ("30d", 2_592_000_000), ("2w", 1_209_600_000)])
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in
            ["", "5", "s", "5 s", "1.5h", "-1s", "ten minutes", "5y", "99999999999999999999s", "18446744073709551615w"]
        {
            assert!(parse(text).is_err_and(|problem| problem.contains("ms, s, m, h, d, w")), "{text}");
        }
    }

    #[test]
    fn backoffs_name_their_kind() {
        assert_eq!(parse_backoff("fixed 5s"), Ok(WrittenBackoff::Fixed(Duration::from_secs(5))));
        let (first, cap) = (Duration::from_secs(10), Duration::from_secs(600));
        assert_eq!(
            parse_backoff("exponential 10s x1.5 10m"),
            Ok(WrittenBackoff::Exponential { first, factor: 1.5, cap })
        );
        for text in [
            "",
            "5s",
            "fixed",
            "linear 5s",
            "exponential 10s 2 10m",
            "exponential 10s x0.5 10m",
            "exponential 1h x2 10m",
        ] {
            assert!(parse_backoff(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_kept_is_a_number_a_duration_or_both() {
        let keep = |count, age: Option<u64>| {
            Ok(WrittenKeep { age: age.map(|days| Duration::from_secs(days * 86_400)), count })
        };
        assert_eq!(parse_keep("500"), keep(Some(500), None));
        assert_eq!(parse_keep("30d, 2000"), keep(Some(2000), Some(30)));
        assert_eq!(parse_keep("forever"), keep(None, None));
        for text in ["", "5, 6", "1d, 2d", "some", "5,"] {
            assert!(parse_keep(text).is_err(), "{text}");
        }
    }
}
