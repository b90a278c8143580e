//! What may stand for a person: the rules of the table `jobdeck.users`, told before it refuses.

/// Text of 1 to `max` characters that Postgres can hold and people can read.
pub(crate) fn is_plausible(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.chars().count()) && !text.contains(char::is_control)
}

/// As the constraint `user_email_plausible`.
pub(crate) fn is_email(text: &str) -> bool {
    let is_split =
        text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty() && !host.contains('@'));
    is_plausible(text, 254) && is_split && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_two_sides() {
        for good in ["ana@example.com", "a@b", "张伟@例子.中国"] {
            assert!(is_email(good), "{good}");
        }
        for bad in ["", "ana", "@b", "a@", "a@b@c", "a b@c", "a@b\n", "a\0@b"] {
            assert!(!is_email(bad), "{bad:?}");
        }
    }
}
