//! Texts and facts of an error in a form that can always be stored: an error must never keep its job from ending.

use serde_json::{Map, Value};

/// Longest error text kept, in bytes. Longer ones are cut at a character boundary.
pub const MAX_ERROR_BYTES: usize = 8 * 1024;

/// Longest code kept, in bytes: codes are names, and stand in indexes.
#[cfg(feature = "postgres")]
const MAX_CODE_BYTES: usize = 100;

/// Longest text among the facts of an error, in bytes.
#[cfg(feature = "postgres")]
const MAX_FACT_BYTES: usize = 1024;

/// How many facts of an error are kept, and how many items of a list or fields of an object among them.
#[cfg(feature = "postgres")]
const MAX_FACTS: usize = 32;

/// How deep facts may be nested.
#[cfg(feature = "postgres")]
const MAX_FACT_DEPTH: usize = 4;

/// Makes a text fit for a Postgres `text` column, a page and a terminal: no NUL, control characters shown as their
/// Unicode pictures or as `�`, at most [`MAX_ERROR_BYTES`] bytes with an ellipsis where it was cut.
pub fn clean_error_text(text: &str) -> String {
    clean(text, MAX_ERROR_BYTES)
}

/// Makes a code fit for a column that is indexed. An empty one becomes `other`.
#[cfg(feature = "postgres")]
pub(crate) fn clean_code(code: &str) -> String {
    if code.is_empty() { "other".to_owned() } else { clean(code, MAX_CODE_BYTES) }
}

/// The facts for the end user's sentence as a JSON object that Postgres can hold: at most 32 of them, texts of at most
/// 1 KiB, lists and objects of at most 32 parts, nested at most four deep. What is beyond that is left out.
#[cfg(feature = "postgres")]
pub(crate) fn clean_params(params: &Map<String, Value>) -> Value {
    Value::Object(clean_fields(params, MAX_FACT_DEPTH))
}

#[cfg(feature = "postgres")]
fn clean_fields(fields: &Map<String, Value>, depth: usize) -> Map<String, Value> {
    fields.iter().take(MAX_FACTS).map(|(name, fact)| (clean(name, MAX_CODE_BYTES), clean_fact(fact, depth))).collect()
}

#[cfg(feature = "postgres")]
fn clean_fact(fact: &Value, depth: usize) -> Value {
    match fact {
        Value::String(text) => Value::String(clean(text, MAX_FACT_BYTES)),
        Value::Array(_) | Value::Object(_) if depth <= 1 => Value::Null,
        Value::Array(items) => items.iter().take(MAX_FACTS).map(|item| clean_fact(item, depth - 1)).collect(),
        Value::Object(fields) => Value::Object(clean_fields(fields, depth - 1)),
        other => other.clone(),
    }
}

fn clean(text: &str, max_bytes: usize) -> String {
    let mut clean = String::with_capacity(text.len().min(max_bytes));
    // Where to cut if the rest does not fit any more: the last place that leaves room for the ellipsis.
    let mut cut = 0;
    for character in text.chars() {
        let shown = match character {
            '\n' | '\t' => character,
            '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + character as u32).unwrap_or('\u{fffd}'),
            '\u{7f}' => '\u{2421}',
            // The second set of controls, which terminals obey as well.
            '\u{80}'..='\u{9f}' => '\u{fffd}',
            other => other,
        };
        if clean.len() + shown.len_utf8() > max_bytes {
            clean.truncate(cut);
            clean.push('…');
            break;
        }
        clean.push(shown);
        if clean.len() + '…'.len_utf8() <= max_bytes {
            cut = clean.len();
        }
    }
    clean
}
