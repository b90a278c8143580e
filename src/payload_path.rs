//! Dotted paths into a payload, such as `author.email`.
//!
//! A path goes through objects by the names that stand in the JSON (after serde's renaming), one segment a level. Items of
//! arrays and names that hold a dot cannot be reached. `jobdeck.payload_at` in SQL follows the same rule.

use serde_json::Value;

/// Longest path, in bytes.
const MAX_BYTES: usize = 200;

/// What stands at `path`, if every level of it is there. A JSON null counts as there.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the browser only carries paths around"))]
pub(crate) fn find<'a>(payload: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(payload, |level, name| level.as_object()?.get(name))
}

/// What is wrong with `path`, in words.
pub(crate) fn problem(path: &str) -> Option<&'static str> {
    if path.is_empty() || path.split('.').any(str::is_empty) {
        Some("has an empty segment; write names with single dots between them, such as author.email")
    } else if path.len() > MAX_BYTES {
        Some("is longer than 200 bytes")
    } else if path.contains('\0') {
        Some("holds a NUL character")
    } else {
        None
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn path_goes_through_objects_only() {
        let payload = json!({"a": {"b": null}, "list": [1], "x.y": 2, "text": "t"});
        assert_eq!(find(&payload, "a.b"), Some(&Value::Null));
        assert_eq!(find(&payload, "a"), Some(&json!({"b": null})));
        for path in ["a.c", "list.0", "x.y", "text.length", "b"] {
            assert_eq!(find(&payload, path), None, "{path}");
        }
    }

    #[test]
    fn paths_that_reach_nothing_are_told_apart() {
        assert_eq!(problem("author.email"), None);
        for path in ["", ".", "a.", ".a", "a..b", "a\0b", &"x".repeat(201)] {
            assert!(problem(path).is_some(), "{path:?}");
        }
    }
}
