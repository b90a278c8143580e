//! Finds what may be a class in Rust sources: every word of every string literal, and the name in `class:name=`.
//! Too many are no harm: a word that is no utility makes no rule.

use std::collections::BTreeSet;

/// Words of the string literals in `source`, and names after `class:`. Comments are left out.
pub(crate) fn in_rust(source: &str, found: &mut BTreeSet<String>) {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut index = 0;
    while index < chars.len() {
        let here = at(index);
        if here == '/' && at(index + 1) == '/' {
            while index < chars.len() && at(index) != '\n' {
                index += 1;
            }
        } else if here == '/' && at(index + 1) == '*' {
            index = skip_block_comment(&chars, index);
        } else if here == '"' {
            let (text, end) = quoted(&chars, index + 1);
            words(&text, found);
            index = end;
        } else if here == '\'' {
            index = skip_char_or_lifetime(&chars, index);
        } else if here.is_alphabetic() || here == '_' {
            let start = index;
            while at(index).is_alphanumeric() || at(index) == '_' {
                index += 1;
            }
            let word: String = chars[start..index].iter().collect();
            let hashes = chars[index..].iter().take_while(|c| **c == '#').count();
            if matches!(word.as_str(), "r" | "br" | "cr") && at(index + hashes) == '"' {
                let (text, end) = raw(&chars, index + hashes + 1, hashes);
                words(&text, found);
                index = end;
            } else if word == "class" && at(index) == ':' && at(index + 1) != ':' {
                let start = index + 1;
                index = start;
                while index < chars.len() && !at(index).is_whitespace() && !matches!(at(index), '=' | '>') {
                    index += 1;
                }
                words(&chars[start..index].iter().collect::<String>(), found);
            }
        } else {
            index += 1;
        }
    }
}

fn skip_block_comment(chars: &[char], mut index: usize) -> usize {
    let mut depth = 0;
    while index < chars.len() {
        match (chars[index], chars.get(index + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                index += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                index += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => index += 1,
        }
    }
    index
}

/// `'x'` and `'\n'` end at their quote; in `'static` only the quote is skipped.
fn skip_char_or_lifetime(chars: &[char], index: usize) -> usize {
    if chars.get(index + 1) == Some(&'\\') {
        let mut end = index + 3;
        while end < chars.len() && chars[end] != '\'' {
            end += 1;
        }
        return end + 1;
    }
    if chars.get(index + 2) == Some(&'\'') { index + 3 } else { index + 1 }
}

/// The text up to the closing quote and the index behind it. Escapes end a word, except an escaped quote.
fn quoted(chars: &[char], mut index: usize) -> (String, usize) {
    let mut text = String::new();
    while index < chars.len() && chars[index] != '"' {
        if chars[index] == '\\' {
            index += 1;
            match chars.get(index) {
                Some(c @ ('"' | '\'')) => text.push(*c),
                _ => text.push(' '),
            }
        } else {
            text.push(chars[index]);
        }
        index += 1;
    }
    (text, index + 1)
}

fn raw(chars: &[char], start: usize, hashes: usize) -> (String, usize) {
    let mut index = start;
    while index < chars.len() {
        if chars[index] == '"' && chars[index + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            return (chars[start..index].iter().collect(), index + 1 + hashes);
        }
        index += 1;
    }
    (chars[start..].iter().collect(), index)
}

fn words(text: &str, found: &mut BTreeSet<String>) {
    for word in text.split_whitespace() {
        let starts = word.starts_with(|c: char| c.is_ascii_lowercase() || matches!(c, '-' | '!' | '@' | '*' | '['));
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_:./[]()%#,!&>*@=+~'".contains(c));
        if starts && plain && word.len() <= 80 && word.matches('[').count() == word.matches(']').count() {
            found.insert(word.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        let mut found = BTreeSet::new();
        in_rust(source, &mut found);
        found.into_iter().collect()
    }

    #[test]
    fn words_of_literals_are_found() {
        assert_eq!(
            found(r##"view! { <p class="mt-2 md:flex"/> } let x = r#"gap-4 w-1/2"#;"##),
            ["gap-4", "md:flex", "mt-2", "w-1/2"]
        );
    }

    #[test]
    fn class_directives_are_found() {
        assert_eq!(found("<p class:is-open=open class:mt-2={x}/> foo::class::<T>"), ["is-open", "mt-2"]);
    }

    #[test]
    fn comments_lifetimes_and_characters_are_skipped() {
        assert_eq!(found("// \"p-1\"\n/* \"p-2\" /* x */ */ fn f<'a>(c: char) { '\"'; '\\''; \"p-3\" }"), ["p-3"]);
    }

    #[test]
    fn arbitrary_values_survive() {
        assert_eq!(found(r#""grid-cols-[auto_minmax(0,1fr)] {hole} Word""#), ["grid-cols-[auto_minmax(0,1fr)]"]);
    }
}
