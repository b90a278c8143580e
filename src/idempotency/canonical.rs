//! JSON as Postgres writes it: `payload::jsonb::text`, byte for byte. So Rust and SQL agree on digests without asking each other.

use serde_json::Value;

/// Exponents beyond this are left as they are: Postgres holds no such number (131,072 digits before the point).
const MAX_EXPONENT: i64 = 200_000;

/// A JSON number in plain decimal, with as many digits after the point as it was written with.
pub(super) fn plain(number: &str) -> String {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let Some(exponent) = exponent.parse::<i64>().ok().filter(|exponent| exponent.abs() <= MAX_EXPONENT) else {
        return number.to_owned();
    };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |mantissa| ("-", mantissa));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    // Where the point stands among the digits.
    let point = whole.len() as i64 + exponent;
    let (whole, fraction) = if point <= 0 {
        ("0".to_owned(), format!("{}{digits}", "0".repeat(point.unsigned_abs() as usize)))
    } else if point as usize >= digits.len() {
        (format!("{digits}{}", "0".repeat(point as usize - digits.len())), String::new())
    } else {
        (digits[..point as usize].to_owned(), digits[point as usize..].to_owned())
    };
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    // There is no negative zero in decimal.
    let sign = if whole == "0" && fraction.bytes().all(|digit| digit == b'0') { "" } else { sign };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// A plain decimal without trailing zeros after the point.
pub(super) fn shortest(plain: &str) -> String {
    if plain.contains('.') { plain.trim_end_matches('0').trim_end_matches('.').to_owned() } else { plain.to_owned() }
}

/// A value as Postgres writes jsonb: names by length, then bytes; a space after `:` and `,`; plain decimals.
pub(super) fn jsonb_text(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&plain(&number.to_string())),
        Value::String(string) => write_string(string, text),
        Value::Array(items) => {
            text.push('[');
            for (place, item) in items.iter().enumerate() {
                text.push_str(if place == 0 { "" } else { ", " });
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by(|(a, _), (b, _)| (a.len(), a.as_bytes()).cmp(&(b.len(), b.as_bytes())));
            text.push('{');
            for (place, (name, field)) in fields.into_iter().enumerate() {
                text.push_str(if place == 0 { "" } else { ", " });
                write_string(name, text);
                text.push_str(": ");
                write(field, text);
            }
            text.push('}');
        }
    }
}

fn write_string(string: &str, text: &mut String) {
    text.push('"');
    for letter in string.chars() {
        match letter {
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            ..' ' => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => text.push(letter),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_what_postgres_writes() {
        let value = json!({"bb": [1, 2.50, null, {}], "a": "x\"\\\n\u{1}é", "c": -0.0});
        assert_eq!(jsonb_text(&value), r#"{"a": "x\"\\\n\u0001é", "c": 0.0, "bb": [1, 2.5, null, {}]}"#);
    }

    #[test]
    fn exponents_are_written_out() {
        let written = [
            ("1e3", "1000"),
            ("1.25e1", "12.5"),
            ("1.5e-3", "0.0015"),
            ("-2E+2", "-200"),
            ("0e5", "0"),
            ("1.20", "1.20"),
        ];
        for (number, expected) in written {
            assert_eq!(plain(number), expected, "{number}");
        }
        assert_eq!(plain("1e999999999"), "1e999999999");
    }
}
