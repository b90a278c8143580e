use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fluent_syntax::ast::{Entry, Expression, InlineExpression, Pattern, PatternElement};

use super::*;

/// Every message of a language with the placeholders it uses.
fn messages(locale: Locale) -> BTreeMap<String, BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("locales").join(locale.tag());
    let mut found = BTreeMap::new();
    for file in std::fs::read_dir(folder).expect("a folder") {
        let path = file.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "ftl") {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("a file");
        let resource = fluent_syntax::parser::parse(source.as_str())
            .unwrap_or_else(|(_, errors)| panic!("{}: {errors:?}", path.display()));
        for entry in resource.body {
            if let Entry::Message(message) = entry {
                let mut names = BTreeSet::new();
                collect(message.value.as_ref().expect("a value"), &mut names);
                let earlier = found.insert(message.id.name.to_owned(), names);
                assert!(earlier.is_none(), "{} is there twice", message.id.name);
            }
        }
    }
    found
}

fn collect(pattern: &Pattern<&str>, names: &mut BTreeSet<String>) {
    for element in &pattern.elements {
        let PatternElement::Placeable { expression } = element else { continue };
        match expression {
            Expression::Inline(inline) => variable(inline, names),
            Expression::Select { selector, variants } => {
                variable(selector, names);
                variants.iter().for_each(|variant| collect(&variant.value, names));
            }
        }
    }
}

fn variable(inline: &InlineExpression<&str>, names: &mut BTreeSet<String>) {
    if let InlineExpression::VariableReference { id } = inline {
        names.insert(id.name.to_owned());
    }
}

#[test]
fn both_languages_have_the_same_messages_with_the_same_placeholders() {
    assert_eq!(messages(Locale::En), messages(Locale::ZhCn));
}

fn sources(folder: PathBuf, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("i18n/tests.rs") {
            let source = std::fs::read_to_string(&path).expect("a source");
            found.push((path, source));
        }
    }
}

#[test]
fn every_key_in_the_code_has_a_message() {
    let known = messages(Locale::En);
    let app = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(app.join("src"), &mut files);
    sources(app.join("../server/src"), &mut files);
    let mut n_keys = 0;
    for (path, source) in files {
        for call in [".text(", ".format(", ".find("] {
            for rest in source.split(call).skip(1) {
                let Some(rest) = rest.trim_start().strip_prefix('"') else { continue };
                let key = rest.split('"').next().unwrap_or_default();
                // Other functions have these names too; message keys are lower-case words with hyphens.
                let is_key = key.contains('-')
                    && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
                if is_key || call == ".text(" {
                    assert!(known.contains_key(key), "{}: no message {key:?}", path.display());
                    n_keys += 1;
                }
            }
        }
    }
    assert!(n_keys > 100, "only {n_keys} keys were found");
}

#[test]
fn every_word_of_the_queue_has_a_message() {
    use jobdeck::{JobState, code};
    let known = messages(Locale::En);
    let has = |key: String| assert!(known.contains_key(&key), "no message {key:?}");
    for state in JobState::ALL {
        has(format!("state-{state}"));
        has(format!("state-{state}-meaning"));
    }
    for class in ["retryable", "rate-limited", "stalled", "unrecoverable"] {
        has(format!("class-{class}"));
        has(format!("class-{class}-meaning"));
    }
    for outcome in ["failed", "rate-limited", "snoozed", "stalled", "released", "canceled"] {
        has(format!("outcome-{outcome}"));
    }
    for role in crate::model::Role::ALL {
        has(format!("role-{}", role.as_str()));
    }
    for code in code::ALL {
        has(format!("code-{}", code.replace('_', "-")));
    }
    for (function, _) in crate::server_fns::SERVER_FUNCTIONS {
        if !function.starts_with("list_") {
            has(format!("action-{}", function.replace('_', "-")));
        }
    }
}

#[test]
fn plurals_and_thousands_follow_the_language() {
    let new = |locale: Locale, n: i64| locale.format("jobs-new", &[("n", n.into())]);
    assert_eq!(new(Locale::En, 1), "1 new job");
    assert_eq!(new(Locale::En, 12_431), "12,431 new jobs");
    assert_eq!(new(Locale::ZhCn, 12_431), "12,431 个新任务");
}

#[test]
fn the_language_is_that_of_the_address_then_the_cookie_then_the_browser() {
    let from = Locale::from_request;
    assert_eq!(from(Some("en"), Some("zh-CN"), Some("zh")), Locale::En);
    assert_eq!(from(Some("xx"), Some("zh-CN"), Some("en")), Locale::ZhCn);
    assert_eq!(from(None, None, Some("fr, zh-TW;q=0.9, en;q=0.8")), Locale::ZhCn);
    assert_eq!(from(None, None, Some("zh;q=0.2, en-GB;q=0.8")), Locale::En);
    assert_eq!(from(None, None, Some("zh;q=0")), Locale::En);
    assert_eq!(from(None, None, Some("de, *;q=0.5")), Locale::En);
    assert_eq!(from(None, None, None), Locale::En);
}

#[test]
fn a_missing_key_shows_itself() {
    assert_eq!(Locale::En.text("no-such-key"), "no-such-key");
}
