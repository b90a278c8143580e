//! What is stored of an error beside its text, likewise in a form that can always be stored.

use serde_json::{Map, Value};

use super::text::clean;

/// Longest code or name kept, in bytes: they stand in indexes.
const MAX_NAME_BYTES: usize = 100;

/// Longest text among the facts of an error, in bytes.
const MAX_FACT_BYTES: usize = 1024;

/// How many facts of an error are kept, and how many parts of a list or an object among them.
const MAX_FACTS: usize = 32;

/// How deep facts may be nested.
const MAX_DEPTH: usize = 4;

/// Makes a code, or the name of a provider, fit for a column that is indexed. An empty one becomes `other`.
pub(crate) fn clean_code(code: &str) -> String {
    if code.is_empty() { "other".to_owned() } else { clean(code, MAX_NAME_BYTES) }
}

/// The facts for the end user's sentence as a JSON object that Postgres can hold: at most 32 of them, texts of at most
/// 1 KiB, lists and objects of at most 32 parts, nested at most four deep. What is beyond that is left out.
pub(crate) fn clean_params(params: &Map<String, Value>) -> Value {
    Value::Object(clean_fields(params, MAX_DEPTH))
}

fn clean_fields(fields: &Map<String, Value>, depth: usize) -> Map<String, Value> {
    fields.iter().take(MAX_FACTS).map(|(name, fact)| (clean(name, MAX_NAME_BYTES), clean_fact(fact, depth))).collect()
}

fn clean_fact(fact: &Value, depth: usize) -> Value {
    match fact {
        Value::String(text) => Value::String(clean(text, MAX_FACT_BYTES)),
        Value::Array(_) | Value::Object(_) if depth <= 1 => Value::Null,
        Value::Array(items) => items.iter().take(MAX_FACTS).map(|item| clean_fact(item, depth - 1)).collect(),
        Value::Object(fields) => Value::Object(clean_fields(fields, depth - 1)),
        other => other.clone(),
    }
}
