//! Error texts in a form that can always be stored: an error must never keep its job from ending.

/// Longest error text kept, in bytes. Longer ones are cut at a character boundary.
pub const MAX_ERROR_BYTES: usize = 8 * 1024;

/// Makes a text fit for a Postgres `text` column, a page and a terminal: no NUL, control characters shown as their
/// Unicode pictures or as `�`, at most [`MAX_ERROR_BYTES`] bytes with an ellipsis where it was cut.
pub fn clean_error_text(text: &str) -> String {
    clean(text, MAX_ERROR_BYTES)
}

/// [`clean_error_text`] with a limit of its own.
pub(super) fn clean(text: &str, max_bytes: usize) -> String {
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
