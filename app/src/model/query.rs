//! The address of the jobs list: one type reads and prints it, and leaves defaults out.

use jobdeck::{JobId, JobState};
use serde::{Deserialize, Serialize};

/// What `/jobs` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobQuery {
    /// `state`: only this state.
    #[serde(default)]
    pub state: Option<JobState>,
    /// `type`: only this type.
    #[serde(default)]
    pub job_type: Option<String>,
    /// `q`: only jobs that contain this text.
    #[serde(default)]
    pub text: Option<String>,
    /// `after`: the page of jobs older than this one.
    #[serde(default)]
    pub after: Option<JobId>,
    /// `before`: the page of jobs newer than this one. Read only without `after`.
    #[serde(default)]
    pub before: Option<JobId>,
    /// `n`: rows per page, 25, 50 or 100. Default 50.
    #[serde(default)]
    pub rows: Option<u16>,
}

/// Rows per page unless the address says otherwise.
pub const DEFAULT_ROWS: u16 = 50;

/// Rows per page to choose from.
pub const ROW_CHOICES: [u16; 3] = [25, DEFAULT_ROWS, 100];

/// Longest free text, in characters.
pub const MAX_TEXT_CHARS: usize = 200;

impl JobQuery {
    /// Reads the parameters of an address. What makes no sense is left out, and the list shows more rather than an
    /// error; so are control characters, which no type has and Postgres partly cannot hold.
    pub fn read<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut query = Self::default();
        for (name, value) in parameters {
            let value = value.replace(char::is_control, "");
            let value = value.trim();
            if value.is_empty() {
                continue;
            }
            match name {
                "state" => query.state = value.parse().ok(),
                "type" => query.job_type = Some(value.chars().take(100).collect()),
                "q" => query.text = Some(value.chars().take(MAX_TEXT_CHARS).collect()),
                "after" => query.after = value.parse().ok(),
                "before" => query.before = value.parse().ok(),
                "n" => query.rows = value.parse().ok().filter(|n| ROW_CHOICES.contains(n) && *n != DEFAULT_ROWS),
                _ => {}
            }
        }
        if query.after.is_some() {
            query.before = None;
        }
        query
    }

    /// Reads the part of an address after `?`.
    pub fn parse(search: &str) -> Self {
        let pairs = parameters(search);
        Self::read(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// The parameters, percent-encoded, without `?`; empty for the default list.
    pub fn print(&self) -> String {
        let mut text = String::new();
        let mut put = |name: &str, value: &str| {
            if !text.is_empty() {
                text.push('&');
            }
            text.push_str(name);
            text.push('=');
            encode(&mut text, value);
        };
        if let Some(state) = self.state {
            put("state", state.as_str());
        }
        if let Some(job_type) = &self.job_type {
            put("type", job_type);
        }
        if let Some(search) = &self.text {
            put("q", search);
        }
        if let Some(after) = self.after {
            put("after", &after.to_string());
        } else if let Some(before) = self.before {
            put("before", &before.to_string());
        }
        if let Some(rows) = self.rows.filter(|rows| *rows != DEFAULT_ROWS) {
            put("n", &rows.to_string());
        }
        text
    }

    /// The address of this list.
    pub fn href(&self) -> String {
        let parameters = self.print();
        if parameters.is_empty() { "/jobs".to_owned() } else { format!("/jobs?{parameters}") }
    }

    /// The same list in another state, from its start.
    #[must_use]
    pub fn with_state(&self, state: Option<JobState>) -> Self {
        Self { state, after: None, before: None, ..self.clone() }
    }

    /// The same list from its start.
    #[must_use]
    pub fn from_start(&self) -> Self {
        self.with_state(self.state)
    }

    /// Whether it shows less than all jobs.
    pub fn is_narrowed(&self) -> bool {
        self.state.is_some() || self.job_type.is_some() || self.text.is_some()
    }

    /// Whether it is the page with the newest jobs.
    pub fn is_at_start(&self) -> bool {
        self.after.is_none() && self.before.is_none()
    }

    /// Rows per page.
    pub fn limit(&self) -> u16 {
        self.rows.unwrap_or(DEFAULT_ROWS)
    }
}

/// The parameters of an address, decoded. Takes the part after `?`, with or without it.
pub(crate) fn parameters(search: &str) -> Vec<(String, String)> {
    let pairs = search.trim_start_matches('?').split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// The value of one parameter.
pub(crate) fn parameter(search: &str, name: &str) -> Option<String> {
    parameters(search).into_iter().find(|(found, _)| found == name).map(|(_, value)| value)
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
            }
            (b'+', _) => {
                decoded.push(b' ');
                at += 1;
            }
            (byte, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Percent-encodes all but the unreserved characters.
pub(crate) fn encode(text: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(byte as char),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
}

#[cfg(feature = "ssr")]
impl JobQuery {
    /// As the store's filter.
    pub fn filter(&self) -> jobdeck::store::JobFilter {
        jobdeck::store::JobFilter {
            state: self.state,
            job_type: self.job_type.clone(),
            text: self.text.clone(),
            ..Default::default()
        }
    }

    /// As the store's cursor.
    pub fn cursor(&self) -> jobdeck::store::PageCursor {
        use jobdeck::store::PageCursor;
        match (self.after, self.before) {
            (Some(id), _) => PageCursor::After(id),
            (None, Some(id)) => PageCursor::Before(id),
            (None, None) => PageCursor::Newest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_as_it_was() {
        let id: JobId = "01a22b0e-9268-773c-b768-db5b8f4d3e27".parse().unwrap();
        let texts = [None, Some("a b&c=d"), Some("100 % 重试 “x”"), Some("+/?#"), Some("é\u{1f9ff}")];
        for state in [None].into_iter().chain(JobState::ALL.map(Some)) {
            for text in texts {
                for (after, before) in [(None, None), (Some(id), None), (None, Some(id))] {
                    for rows in [None, Some(25), Some(100)] {
                        let query = JobQuery {
                            state,
                            job_type: text.map(|_| "export_markdown".to_owned()),
                            text: text.map(str::to_owned),
                            after,
                            before,
                            rows,
                        };
                        assert_eq!(JobQuery::parse(&query.print()), query, "{}", query.print());
                    }
                }
            }
        }
    }

    #[test]
    fn defaults_are_left_out() {
        assert_eq!(JobQuery::default().href(), "/jobs");
        assert_eq!(JobQuery::parse("?state=&type=&q=+&n=50").print(), "");
        assert_eq!(JobQuery::parse("state=nonsense&n=7&before=x&%zz"), JobQuery::default());
        assert_eq!(JobQuery::parse("type=%00&q=%00%07+%1b"), JobQuery::default());
        let query = JobQuery::parse("type=na%00p&q=a%0Ab&state=failed%00");
        assert_eq!((query.job_type.as_deref(), query.text.as_deref()), (Some("nap"), Some("ab")));
    }
}
