//! Which jobs count as the same.
//!
//! # Form of a key
//!
//! The values at the type's key fields, in their order, joined by `:`. A text stands as it is, with `\` before each `\` and `:`
//! in it; a number in plain decimal without exponent, plus sign or trailing zeros (`1`, `1.0` and `1e0` are the same, `-0` is `0`);
//! true and false as words. What would be empty or longer than 1,024 bytes becomes `sha256\-` and the SHA-256 of its UTF-8 in
//! lower-case hex; `\-` cannot occur otherwise. `7` and `"7"` give the same key.
//!
//! `jobdeck.key_of_payload(payload, fields)` and `jobdeck.key_of(variadic texts)` give the same text in SQL.

mod canonical;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::payload_path;

/// A type's idempotency key: at most one job that waits, runs or has succeeded holds it. A failed or canceled job gives
/// it back, so that the same work can be asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

/// A payload that gives no key, or no limit key, though its type declares one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct KeyError {
    /// Where, such as `payload.author.id`.
    pub path: String,
    /// What is wrong there.
    pub problem: &'static str,
}

const MISSING: &str = "is missing or null, but belongs to the idempotency key";
const NO_KEY_FIELD: &str = "is a list or an object; an idempotency key is made of texts, numbers, true and false";
const NO_LIMIT_KEY: &str = "is a list or an object; a limit key is made of texts, numbers, true and false";

impl IdempotencyKey {
    /// Longest key kept as it is, in bytes. Longer ones are replaced by their SHA-256.
    pub const MAX_BYTES: usize = 1024;

    /// Joins key fields. Two lists of fields give the same key only if they are equal, whatever separators they hold.
    pub fn of(fields: &[&dyn std::fmt::Display]) -> Self {
        Self::join(fields.iter().map(|field| field.to_string()))
    }

    /// The key that `fields`, dotted payload paths, give for `payload`.
    ///
    /// # Errors
    /// If a field is missing, null, a list or an object, by its path.
    pub fn of_payload(fields: &[String], payload: &Value) -> Result<Self, KeyError> {
        let text = |path: &String| scalar(payload, path, NO_KEY_FIELD)?.ok_or_else(|| error(path, MISSING));
        Ok(Self::join(fields.iter().map(text).collect::<Result<Vec<_>, _>>()?.into_iter()))
    }

    fn join(fields: impl Iterator<Item = String>) -> Self {
        let joined = fields.map(|field| field.replace('\\', "\\\\").replace(':', "\\:")).collect::<Vec<_>>().join(":");
        if joined.len() <= Self::MAX_BYTES && !joined.is_empty() && !joined.contains('\0') {
            Self(joined)
        } else {
            Self(format!("sha256\\-{}", hex_digest(&joined)))
        }
    }

    /// As stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Longest limit key, in bytes. Longer ones are replaced by their SHA-256.
const MAX_LIMIT_KEY_BYTES: usize = 200;

/// The limit key that `path` gives for `payload`: the value as in an idempotency key, but not escaped. `None` if it is missing
/// or null. What would be empty or longer than 200 bytes becomes `sha256-` and its SHA-256. As `jobdeck.limit_key_of_payload`.
///
/// # Errors
/// If it is a list or an object.
pub(crate) fn limit_key_of_payload(path: &str, payload: &Value) -> Result<Option<String>, KeyError> {
    Ok(scalar(payload, path, NO_LIMIT_KEY)?.map(|text| match text.len() {
        1..=MAX_LIMIT_KEY_BYTES => text,
        _ => format!("sha256-{}", hex_digest(&text)),
    }))
}

/// SHA-256 of the payload as Postgres writes jsonb, to tell a duplicate from a clash: the same as
/// `jobdeck.payload_digest(payload)` in SQL.
pub(crate) fn payload_digest(payload: &Value) -> Vec<u8> {
    Sha256::digest(canonical::jsonb_text(payload).as_bytes()).to_vec()
}

fn error(path: &str, problem: &'static str) -> KeyError {
    KeyError { path: format!("payload.{path}"), problem }
}

/// The text of the text, number or truth value at `path`; `None` if there is none or null.
fn scalar(payload: &Value, path: &str, otherwise: &'static str) -> Result<Option<String>, KeyError> {
    Ok(match payload_path::find(payload, path) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Bool(value)) => Some(value.to_string()),
        Some(Value::Number(number)) => Some(canonical::shortest(&canonical::plain(&number.to_string()))),
        Some(Value::Array(_) | Value::Object(_)) => return Err(error(path, otherwise)),
    })
}

fn hex_digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(fields: &[&str], payload: &Value) -> Result<String, String> {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        IdempotencyKey::of_payload(&fields, payload).map(|key| key.0).map_err(|error| error.to_string())
    }

    #[test]
    fn key_of_a_payload_is_the_key_of_its_fields() {
        let payload = json!({"project_id": 7, "export_format": "pdf", "author": {"id": "a:b\\c"}, "draft": false});
        assert_eq!(key(&["project_id", "export_format"], &payload), Ok("7:pdf".to_owned()));
        assert_eq!(key(&["author.id", "draft"], &payload), Ok("a\\:b\\\\c:false".to_owned()));
        assert_eq!(IdempotencyKey::of(&[&"a:b\\c", &false]).as_str(), "a\\:b\\\\c:false");
    }

    #[test]
    fn number_has_one_form_however_it_was_written() {
        let written = [
            ("1.0", "1"),
            ("1e20", "100000000000000000000"),
            ("-0.0", "0"),
            ("1.50e-7", "0.00000015"),
            ("-12.30", "-12.3"),
        ];
        for (text, expected) in written {
            let payload = json!({"n": serde_json::from_str::<Value>(text).expect("a number")});
            assert_eq!(key(&["n"], &payload), Ok(expected.to_owned()), "{text}");
        }
        assert_eq!(key(&["n"], &json!({"n": u64::MAX})), Ok(u64::MAX.to_string()));
    }

    #[test]
    fn field_that_is_no_scalar_is_named() {
        let payload = json!({"a": {"b": null}, "list": []});
        assert!(key(&["a.b"], &payload).unwrap_err().starts_with("payload.a.b: is missing or null"));
        assert!(key(&["other"], &payload).unwrap_err().starts_with("payload.other: is missing or null"));
        assert!(key(&["list"], &payload).unwrap_err().starts_with("payload.list: is a list or an object"));
        assert!(key(&["a"], &payload).is_err());
    }

    #[test]
    fn limit_key_is_left_out_when_missing_and_never_too_long() {
        let payload = json!({"customer": 9, "long": "x".repeat(201), "none": null, "list": []});
        let limit_key = |path| limit_key_of_payload(path, &payload);
        assert_eq!(limit_key("customer"), Ok(Some("9".to_owned())));
        assert_eq!((limit_key("none"), limit_key("other")), (Ok(None), Ok(None)));
        assert_eq!(limit_key("long").map(|key| key.map(|key| key.len())), Ok(Some(71)));
        assert!(limit_key("list").is_err());
    }
}
