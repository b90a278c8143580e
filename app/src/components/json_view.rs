//! A JSON value with its keys, texts and numbers told apart. Everything is a text node. Hidden values are marks already.

use leptos::prelude::*;

use crate::components::icon::icon_small;
use crate::format;
use crate::i18n::Locale;
use crate::model::JsonText;

/// What stands in the place of a hidden value, as `jobdeck.redaction_mark` writes it into JSON.
const HIDDEN: &str = "\"••••••\"";

/// The value, named `label`. `whole` is where all of it can be fetched.
pub(crate) fn json_view(locale: Locale, json: &JsonText, label: String, whole: String) -> impl IntoView + use<> {
    let parts: Vec<_> = split(&json.text)
        .into_iter()
        .map(|(class, text)| match text {
            HIDDEN => hidden(locale),
            text => view! { <span class=class>{text.to_owned()}</span> }.into_any(),
        })
        .collect();
    let cut = json.is_cut.then(|| {
        let size = format::bytes(json.bytes);
        view! {
            <p class="hint">
                {locale.format("json-cut", &[("size", size.into())])} " "
                <a href=whole rel="external" download="">
                    {locale.text("json-whole")}
                </a>
            </p>
        }
    });
    view! {
        <pre class="json-view whitespace-pre-wrap wrap-anywhere max-h-96 overflow-y-auto" tabindex="0" role="group" aria-label=label>
            {parts}
        </pre>
        {cut}
    }
}

fn hidden(locale: Locale) -> AnyView {
    view! { <span class="redacted">{icon_small("lock")} {locale.text("json-hidden")}</span> }.into_any()
}

/// Cuts indented JSON into pieces: keys `k`, texts `s`, numbers and words `n`, everything else. Cut-off text is fine.
fn split(json: &str) -> Vec<(&'static str, &str)> {
    let bytes = json.as_bytes();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let class = match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at = (at + 1).min(bytes.len());
                if bytes.get(at) == Some(&b':') { "k" } else { "s" }
            }
            b'-' | b'0'..=b'9' | b'a'..=b'z' => {
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'-' | b'+' | b'.'))
                {
                    at += 1;
                }
                "n"
            }
            _ => {
                while at < bytes.len() && !matches!(bytes[at], b'"' | b'-' | b'0'..=b'9' | b'a'..=b'z') {
                    at += 1;
                }
                "p"
            }
        };
        // An escape right before the cut may point past the end.
        at = at.min(bytes.len());
        parts.push((class, &json[start..at]));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn pieces_join_to_the_whole_wherever_it_is_cut() {
        let json = "{\n  \"a\\\"b\": \"x\\\\\",\n  \"中\": [1, -2.5e+3, true, null, \"\u{1f9ff}\"]\n}";
        for end in (0..=json.len()).filter(|end| json.is_char_boundary(*end)) {
            let whole: String = split(&json[..end]).iter().map(|(_, text)| *text).collect();
            assert_eq!(whole, json[..end]);
        }
        let classes: Vec<_> = split(json).iter().filter(|(class, _)| *class != "p").map(|(class, _)| *class).collect();
        assert_eq!(classes, ["k", "s", "k", "n", "n", "n", "n", "s"]);
    }
}
