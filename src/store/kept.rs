//! Results that are kept to be read again: of effects, of steps.

use serde_json::Value;

use super::StoreError;
use super::enqueue::check_value;
use super::outcomes::storable;

/// What Postgres keeps of `result`: NUL becomes its Unicode picture.
///
/// # Errors
/// In words: nested too deep, or larger than `limit` bytes of JSON.
pub(crate) fn keepable(result: &Value, limit: usize) -> Result<Value, String> {
    let result = storable(result);
    check_value(&mut "result".to_owned(), 0, &result).map_err(|error| error.to_string())?;
    let bytes = result.to_string().len();
    if bytes > limit {
        return Err(format!("its result is {bytes} bytes of JSON, the limit is {limit}"));
    }
    Ok(result)
}

/// A name or key as stored.
///
/// # Errors
/// [`StoreError::InvalidValue`] if it is empty, longer than `limit` bytes or holds a NUL.
pub(super) fn check_text(path: &str, text: &str, limit: usize) -> Result<(), StoreError> {
    let problem = match text {
        text if text.contains('\0') => "holds a NUL character",
        "" => "is empty",
        text if text.len() > limit => "is too long",
        _ => return Ok(()),
    };
    Err(StoreError::InvalidValue { path: path.to_owned(), problem })
}
