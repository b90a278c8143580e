//! Words in the reader's language. Messages are Fluent files under `locales/`, embedded; a key that is missing shows
//! itself, and a test fails.

use std::sync::OnceLock;

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};
use serde::{Deserialize, Serialize};

/// A language of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default, Debug)]
pub enum Locale {
    /// English.
    #[default]
    #[serde(rename = "en")]
    En,
    /// 简体中文.
    #[serde(rename = "zh-CN")]
    ZhCn,
}

/// A value for a placeholder of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Shown as it is.
    Text(String),
    /// Chooses the plural form; shown with a comma every three digits.
    Number(f64),
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

macro_rules! number_args {
    ($($number:ty),*) => {$(
        impl From<$number> for Arg {
            fn from(number: $number) -> Self {
                Self::Number(number as f64)
            }
        }
    )*};
}
number_args!(u8, i16, u16, i32, u32, i64, u64, usize, f64);

const EN: &[&str] = &[
    include_str!("../locales/en/common.ftl"),
    include_str!("../locales/en/jobs.ftl"),
    include_str!("../locales/en/job.ftl"),
    include_str!("../locales/en/access.ftl"),
    include_str!("../locales/en/demo.ftl"),
    // The export pages are never drawn in the browser.
    #[cfg(feature = "ssr")]
    include_str!("../locales/en/export.ftl"),
];

const ZH_CN: &[&str] = &[
    include_str!("../locales/zh-CN/common.ftl"),
    include_str!("../locales/zh-CN/jobs.ftl"),
    include_str!("../locales/zh-CN/job.ftl"),
    include_str!("../locales/zh-CN/access.ftl"),
    include_str!("../locales/zh-CN/demo.ftl"),
    #[cfg(feature = "ssr")]
    include_str!("../locales/zh-CN/export.ftl"),
];

impl Locale {
    /// Every language, the default first.
    pub const ALL: [Locale; 2] = [Self::En, Self::ZhCn];

    /// The language tag, as in `lang` attributes and the cookie.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::ZhCn => "zh-CN",
        }
    }

    /// What its readers call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::ZhCn => "简体中文",
        }
    }

    /// The language of a tag: any `en*` or `zh*`.
    pub fn from_tag(tag: &str) -> Option<Self> {
        let primary = tag.trim().split(['-', '_']).next()?.to_ascii_lowercase();
        match primary.as_str() {
            "en" => Some(Self::En),
            "zh" => Some(Self::ZhCn),
            _ => None,
        }
    }

    /// The reader's language: `lang` in the address, then the cookie, then `Accept-Language`, then English.
    pub fn from_request(lang_query: Option<&str>, cookie: Option<&str>, accept_language: Option<&str>) -> Self {
        lang_query
            .and_then(Self::from_tag)
            .or_else(|| cookie.and_then(Self::from_tag))
            .or_else(|| accept_language.and_then(preferred))
            .unwrap_or_default()
    }

    /// The message `key`.
    pub fn text(self, key: &str) -> String {
        self.format(key, &[])
    }

    /// The message `key` with its placeholders filled.
    pub fn format(self, key: &str, args: &[(&str, Arg)]) -> String {
        self.find(key, args).unwrap_or_else(|| key.to_owned())
    }

    /// As [`Locale::format`], but `None` where there is no such message. For words that come from data, such as a
    /// stage's name.
    pub fn find(self, key: &str, args: &[(&str, Arg)]) -> Option<String> {
        let bundle = bundle(self);
        let pattern = bundle.get_message(key)?.value()?;
        let mut values = FluentArgs::with_capacity(args.len());
        for (name, value) in args {
            let value: FluentValue<'_> = match value {
                Arg::Text(text) => FluentValue::from(text.as_str()),
                Arg::Number(number) => FluentValue::from(*number),
            };
            values.set(*name, value);
        }
        Some(bundle.format_pattern(pattern, Some(&values), &mut Vec::new()).into_owned())
    }
}

/// The known language with the highest weight in an `Accept-Language` header; the first of equals.
fn preferred(header: &str) -> Option<Locale> {
    let mut best: Option<(Locale, f32)> = None;
    for range in header.split(',').take(32) {
        let mut parts = range.split(';');
        let Some(locale) = parts.next().and_then(Locale::from_tag) else { continue };
        let weight = parts
            .find_map(|part| part.trim().strip_prefix("q="))
            .map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0));
        if weight > 0.0 && best.is_none_or(|(_, highest)| weight > highest) {
            best = Some((locale, weight));
        }
    }
    best.map(|(locale, _)| locale)
}

fn bundle(locale: Locale) -> &'static FluentBundle<FluentResource> {
    static BUNDLES: [OnceLock<FluentBundle<FluentResource>>; 2] = [OnceLock::new(), OnceLock::new()];
    let (place, files) = match locale {
        Locale::En => (0, EN),
        Locale::ZhCn => (1, ZH_CN),
    };
    BUNDLES[place].get_or_init(|| {
        let language = locale.tag().parse().unwrap_or_default();
        let mut bundle = FluentBundle::new_concurrent(vec![language]);
        bundle.set_use_isolating(false);
        bundle.set_formatter(Some(|value, _| match value {
            FluentValue::Number(number) => Some(crate::format::decimal(number.value)),
            _ => None,
        }));
        for file in files {
            // A file with mistakes yields the messages that could be read; a test finds the rest.
            let resource = match FluentResource::try_new((*file).to_owned()) {
                Ok(resource) | Err((resource, _)) => resource,
            };
            bundle.add_resource_overriding(resource);
        }
        bundle
    })
}

#[cfg(test)]
mod tests;
