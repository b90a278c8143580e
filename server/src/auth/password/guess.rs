//! Which long passwords are guessed first. Most lists of common passwords hold none of 15 characters; what people do when
//! they need so many is to put common words, digits and rows of keys together, which is what is looked for here.

use super::WeakPassword;

/// Long ones that are common as a whole. Letters and digits only.
const PASSWORDS: &str = include_str!("common_passwords.txt");
/// Words of which common ones are made.
const WORDS: &str = include_str!("common_words.txt");
/// Rows of keys and characters, read in both directions and round and round.
const ROWS: [&str; 12] = [
    "0123456789",
    "1234567890",
    "abcdefghijklmnopqrstuvwxyz",
    "qwertyuiop",
    "asdfghjkl",
    "zxcvbnm",
    "qwertyuiop[]asdfghjkl;'zxcvbnm,./",
    "qwertyuiopasdfghjklzxcvbnm",
    "qwertzuiopasdfghjklyxcvbnm",
    "azertyuiopqsdfghjklmwxcvbn",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
    "`1234567890-=qwertyuiop[]asdfghjkl;'zxcvbnm,./",
];
/// A password with fewer different characters is one of few.
const MIN_DIFFERENT: usize = 5;
/// Characters that must be left without the person's own words.
const MIN_FOREIGN: usize = 8;

pub(super) fn check(password: &str, email: &str, name: &str) -> Result<(), WeakPassword> {
    let password = password.to_lowercase();
    let compact = compact(&password);
    if is_pattern(&password) {
        Err(WeakPassword::Pattern)
    } else if PASSWORDS.lines().any(|common| common == compact)
        || is_made_of_words(&password)
        || is_made_of_words(&compact)
    {
        Err(WeakPassword::Common)
    } else if is_own(&compact, email, name) {
        Err(WeakPassword::Own)
    } else {
        Ok(())
    }
}

fn compact(text: &str) -> String {
    text.to_lowercase().chars().filter(|character| character.is_alphanumeric()).collect()
}

fn is_pattern(password: &str) -> bool {
    let characters: Vec<char> = password.chars().collect();
    let mut different = characters.clone();
    different.sort_unstable();
    different.dedup();
    let repeats =
        |period: usize| characters.iter().skip(period).zip(&characters).all(|(later, earlier)| later == earlier);
    different.len() < MIN_DIFFERENT
        || (1..=characters.len() / 2).any(repeats)
        || ROWS.iter().any(|row| follows(&characters, row))
}

/// Whether the characters follow each other as in `row`, forwards or backwards.
fn follows(characters: &[char], row: &str) -> bool {
    let forwards: Vec<char> = row.chars().collect();
    let backwards: Vec<char> = row.chars().rev().collect();
    [forwards, backwards].iter().any(|row| {
        let Some(start) = row.iter().position(|key| Some(key) == characters.first()) else { return false };
        characters.iter().zip(row.iter().cycle().skip(start)).all(|(one, other)| one == other)
    })
}

/// Whether nothing is in it but common words, digits and what stands between them.
fn is_made_of_words(text: &str) -> bool {
    let words: Vec<&[u8]> = WORDS.lines().map(str::as_bytes).collect();
    let text = text.as_bytes();
    // Places that can be reached by whole words.
    let mut is_reached = vec![false; text.len() + 1];
    is_reached[0] = true;
    for at in 0..text.len() {
        if !is_reached[at] {
            continue;
        }
        if !text[at].is_ascii_alphabetic() && text[at].is_ascii() {
            is_reached[at + 1] = true;
        }
        for word in &words {
            if text[at..].starts_with(word) {
                is_reached[at + word.len()] = true;
            }
        }
    }
    // Digits alone are no words: a long number may be a good one.
    is_reached[text.len()] && text.iter().any(u8::is_ascii_alphabetic)
}

/// Whether too little is left of it without what anyone knows of this person.
fn is_own(compact_password: &str, email: &str, name: &str) -> bool {
    let mut own: Vec<String> =
        email.split(['@', '.', '-', '_', '+']).chain(name.split_whitespace()).map(compact).collect();
    own.extend([compact(email), compact(name), compact(email.split('@').next().unwrap_or_default())]);
    own.retain(|word| word.chars().count() >= 3);
    // The longest first, so that no part of one hides it.
    own.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let left = own.iter().fold(compact_password.to_owned(), |left, word| left.replace(word.as_str(), ""));
    left.len() < compact_password.len()
        && left.chars().filter(|character| !character.is_numeric()).count() < MIN_FOREIGN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(password: &str) -> Result<(), WeakPassword> {
        check(password, "ana.costa@example.com", "Ana Costa")
    }

    #[test]
    fn patterns_are_refused() {
        for password in [
            "aaaaaaaaaaaaaaa",
            "               ",
            "abababababababab",
            "abcabcabcabcabc",
            "aaaaabbbbbccccc",
            "123456789012345",
            "1234567890123456",
            "0987654321098765",
            "abcdefghijklmnop",
            "qwertyuiopasdfgh",
            "poiuytrewqpoiuyt",
            "1qaz2wsx3edc4rfv",
            "Passphrase1Passphrase1",
            "密码密码密码密码密码密码密码密码",
        ] {
            assert_eq!(of(password), Err(WeakPassword::Pattern), "{password}");
        }
    }

    #[test]
    fn common_ones_are_refused_however_they_are_dressed() {
        for password in [
            "correct horse battery staple",
            "CorrectHorseBatteryStaple!",
            "thequickbrownfoxjumpsoverthelazydog",
            "This is my password!",
            "password12345678",
            "Password!2024!Admin",
            "welcome-to-jobdeck-1",
            "adminadministrator",
            "P@ssw0rd12345678",
            "letmeinletmein2",
            "woaini5201314520",
            "changeme_changeme1",
        ] {
            assert_eq!(of(password), Err(WeakPassword::Common), "{password}");
        }
    }

    #[test]
    fn what_anyone_knows_of_the_person_is_refused() {
        for password in [
            "ana.costa@example.com",
            "ANA.COSTA@EXAMPLE.COM",
            "Ana Costa Ana Costa 7",
            "anacosta19840229",
            "costa-example-2026",
        ] {
            assert!(matches!(of(password), Err(WeakPassword::Own | WeakPassword::Pattern)), "{password}");
        }
        assert_eq!(of("ana.costa@example.com"), Err(WeakPassword::Own));
    }

    #[test]
    fn long_ones_of_other_words_are_taken() {
        for password in [
            "seven quiet lanterns hum",
            "ana likes to paddle slowly",
            "kV9#xq2!LmT7zR4w",
            "a password for tests only",
            "purple giraffe ladder sings",
            "床前明月光疑是地上霜举头望明月",
            "39485720394857264",
            "fifteen chars!!",
            "correct pelican under the bridge",
        ] {
            assert_eq!(of(password), Ok(()), "{password}");
        }
    }

    #[test]
    fn lists_are_tidy() {
        for common in PASSWORDS.lines() {
            assert_eq!(compact(common), common);
        }
        assert!(WORDS.lines().all(|word| !word.is_empty() && word.to_lowercase() == word));
    }
}
