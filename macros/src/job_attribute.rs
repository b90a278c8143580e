//! `#[job(...)]` as written.

use std::time::Duration;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::{Attribute, Expr, Ident, Lit, LitStr, Token};

use crate::duration::{self, WrittenBackoff, WrittenKeep};
use crate::fields::WrittenPath;

pub(crate) enum BackoffValue {
    Written(WrittenBackoff),
    Constant(Expr),
}

pub(crate) enum StageValue {
    Named(String),
    Labelled(String, String, String),
}

/// Everything `#[job(...)]` may say.
#[derive(Default)]
pub(crate) struct JobAttribute {
    pub(crate) job_type: Option<LitStr>,
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<i16>,
    pub(crate) attempts: Option<i32>,
    pub(crate) backoff: Option<BackoffValue>,
    pub(crate) jitter: Option<f64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_stalled: Option<i32>,
    pub(crate) key: Option<Vec<WrittenPath>>,
    pub(crate) on_duplicate: Option<LitStr>,
    /// `Some(None)` is "forever".
    pub(crate) keep: Option<Option<Duration>>,
    pub(crate) stages: Option<Vec<StageValue>>,
    pub(crate) redact: Option<Vec<WrittenPath>>,
    pub(crate) succeeded: Option<WrittenKeep>,
    pub(crate) failed: Option<WrittenKeep>,
    pub(crate) canceled: Option<WrittenKeep>,
    pub(crate) provider: Option<String>,
    pub(crate) concurrency: Option<i32>,
    pub(crate) key_concurrency: Option<i32>,
    pub(crate) limit_key: Option<WrittenPath>,
}

const KNOWN: &str = "type, queue, priority, attempts, backoff, jitter, timeout, max_stalled, key, on_duplicate, keep, stages, redact, \
     retain, provider, concurrency, key_concurrency, limit_key";

impl JobAttribute {
    pub(crate) fn of(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut job = Self::default();
        let mut seen: Vec<String> = Vec::new();
        // Where `on_duplicate` or `keep` stand, which mean nothing without `key`.
        let mut needs_key: Option<Ident> = None;
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("job")) {
            attribute.parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                if seen.contains(&name) {
                    return Err(meta.error(format!("`{name}` is there twice")));
                }
                match name.as_str() {
                    "type" => job.job_type = Some(job_name(&meta)?),
                    "queue" => job.queue = Some(job_name(&meta)?.value()),
                    "priority" => job.priority = Some(whole(&meta, i16::MIN.into(), i16::MAX.into())? as i16),
                    "attempts" => job.attempts = Some(whole(&meta, 1, i32::MAX.into())? as i32),
                    "backoff" => job.backoff = Some(backoff(&meta)?),
                    "jitter" => job.jitter = Some(share(&meta)?),
                    "timeout" => job.timeout = Some(timeout(&meta)?),
                    "max_stalled" => job.max_stalled = Some(whole(&meta, 0, i32::MAX.into())? as i32),
                    "key" => job.key = Some(paths(&meta)?),
                    "on_duplicate" => job.on_duplicate = Some(on_duplicate(&meta)?),
                    "keep" => job.keep = Some(keep(&meta)?),
                    "stages" => job.stages = Some(stages(&meta)?),
                    "redact" => job.redact = Some(paths(&meta)?),
                    "retain" => job.retain(&meta)?,
                    "provider" => job.provider = Some(provider(&meta)?),
                    "concurrency" => job.concurrency = Some(whole(&meta, 1, i32::MAX.into())? as i32),
                    "key_concurrency" => job.key_concurrency = Some(whole(&meta, 1, i32::MAX.into())? as i32),
                    "limit_key" => {
                        let text = text(&meta)?;
                        job.limit_key = Some(WrittenPath { text: text.value(), span: text.span() });
                    }
                    _ => return Err(meta.error(format!("unknown attribute; one of {KNOWN}"))),
                }
                if matches!(name.as_str(), "on_duplicate" | "keep") {
                    needs_key = meta.path.get_ident().cloned();
                }
                seen.push(name);
                Ok(())
            })?;
        }
        match needs_key {
            Some(ident) if job.key.is_none() => Err(syn::Error::new(
                ident.span(),
                format!("`{ident}` needs `key(...)`: without a key there are no duplicates"),
            )),
            _ => Ok(job),
        }
    }

    fn retain(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        meta.parse_nested_meta(|state| {
            let place = match state.path.get_ident().map(ToString::to_string).as_deref() {
                Some("succeeded") => &mut self.succeeded,
                Some("failed") => &mut self.failed,
                Some("canceled") => &mut self.canceled,
                _ => return Err(state.error("unknown state; one of succeeded, failed, canceled")),
            };
            let written = text(&state)?;
            *place = Some(
                duration::parse_keep(&written.value()).map_err(|problem| syn::Error::new(written.span(), problem))?,
            );
            Ok(())
        })
    }
}

fn text(meta: &ParseNestedMeta<'_>) -> syn::Result<LitStr> {
    meta.value()?.parse()
}

fn job_name(meta: &ParseNestedMeta<'_>) -> syn::Result<LitStr> {
    let name = text(meta)?;
    check_name(&name)?;
    Ok(name)
}

fn check_name(name: &LitStr) -> syn::Result<()> {
    let value = name.value();
    let mut letters = value.bytes();
    let valid = value.len() <= 100
        && letters.next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'.' | b':' | b'-'));
    if valid {
        return Ok(());
    }
    Err(syn::Error::new(name.span(), "must be 1 to 100 of A-Z a-z 0-9 _ . : - and not start with . : or -"))
}

fn provider(meta: &ParseNestedMeta<'_>) -> syn::Result<String> {
    let name = text(meta)?;
    match name.value() {
        value if (1..=200).contains(&value.len()) && !value.contains('\0') => Ok(value),
        _ => Err(syn::Error::new(name.span(), "must be 1 to 200 bytes without NUL")),
    }
}

fn whole(meta: &ParseNestedMeta<'_>, least: i64, most: i64) -> syn::Result<i64> {
    let input = meta.value()?;
    let sign = input.parse::<Option<Token![-]>>()?;
    let written: Lit = input.parse()?;
    let problem = || syn::Error::new(written.span(), format!("must be a whole number from {least} to {most}"));
    let Lit::Int(number) = &written else { return Err(problem()) };
    let number: i64 = number.base10_parse().map_err(|_| problem())?;
    let number = if sign.is_some() { -number } else { number };
    if (least..=most).contains(&number) { Ok(number) } else { Err(problem()) }
}

fn share(meta: &ParseNestedMeta<'_>) -> syn::Result<f64> {
    let input = meta.value()?;
    let sign = input.parse::<Option<Token![-]>>()?;
    let written: Lit = input.parse()?;
    let number = match &written {
        Lit::Float(number) => number.base10_parse::<f64>().ok(),
        Lit::Int(number) => number.base10_parse::<f64>().ok(),
        _ => None,
    };
    let number = number.filter(|number| sign.is_none() && (0.0..=1.0).contains(number));
    number.ok_or_else(|| syn::Error::new(written.span(), "must be a number from 0 to 1, such as 0.2"))
}

fn timeout(meta: &ParseNestedMeta<'_>) -> syn::Result<Duration> {
    let written = text(meta)?;
    let refuse = |problem: String| syn::Error::new(written.span(), problem);
    match duration::parse(&written.value()).map_err(refuse)? {
        Duration::ZERO => Err(refuse("is zero, must be longer".to_owned())),
        timeout => Ok(timeout),
    }
}

fn keep(meta: &ParseNestedMeta<'_>) -> syn::Result<Option<Duration>> {
    let written = text(meta)?;
    if written.value() == "forever" {
        return Ok(None);
    }
    match duration::parse(&written.value()) {
        Ok(keep) => Ok(Some(keep)),
        Err(problem) => Err(syn::Error::new(written.span(), format!("{problem}, or \"forever\""))),
    }
}

fn on_duplicate(meta: &ParseNestedMeta<'_>) -> syn::Result<LitStr> {
    let written = text(meta)?;
    match written.value().as_str() {
        "return_existing" | "ignore" => Ok(written),
        _ => Err(syn::Error::new(written.span(), "must be \"return_existing\" or \"ignore\"")),
    }
}

fn backoff(meta: &ParseNestedMeta<'_>) -> syn::Result<BackoffValue> {
    let value: Expr = meta.value()?.parse()?;
    match value {
        Expr::Lit(lit) => match lit.lit {
            Lit::Str(written) => match duration::parse_backoff(&written.value()) {
                Ok(backoff) => Ok(BackoffValue::Written(backoff)),
                Err(problem) => Err(syn::Error::new(written.span(), problem)),
            },
            other => Err(syn::Error::new(
                other.span(),
                "must be a text such as \"fixed 5s\", or the path of a constant of type Backoff",
            )),
        },
        constant => Ok(BackoffValue::Constant(constant)),
    }
}

/// `(a, b.c, "d.e")`
fn paths(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<WrittenPath>> {
    let content;
    syn::parenthesized!(content in meta.input);
    let paths: Vec<WrittenPath> = content.parse_terminated(path, Token![,])?.into_iter().collect();
    if paths.is_empty() {
        return Err(meta.error("needs a field at least"));
    }
    for (place, path) in paths.iter().enumerate() {
        if paths[..place].iter().any(|earlier| earlier.text == path.text) {
            return Err(syn::Error::new(path.span, format!("`{}` is there twice", path.text)));
        }
    }
    Ok(paths)
}

fn path(input: ParseStream<'_>) -> syn::Result<WrittenPath> {
    if input.peek(LitStr) {
        let written: LitStr = input.parse()?;
        return Ok(WrittenPath { text: written.value(), span: written.span() });
    }
    let first = input.call(Ident::parse_any)?;
    let mut text = first.unraw().to_string();
    let mut span: Span = first.span();
    while input.parse::<Option<Token![.]>>()?.is_some() {
        let next = input.call(Ident::parse_any)?;
        span = span.join(next.span()).unwrap_or(span);
        text = format!("{text}.{}", next.unraw());
    }
    Ok(WrittenPath { text, span })
}

/// `("a", ("b", "English", "中文"))`
fn stages(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<StageValue>> {
    let content;
    syn::parenthesized!(content in meta.input);
    let mut names: Vec<String> = Vec::new();
    let stages = content.parse_terminated(stage, Token![,])?;
    let mut values = Vec::new();
    for (name, labels) in stages {
        check_name(&name)?;
        if names.contains(&name.value()) {
            return Err(syn::Error::new(name.span(), "is there twice"));
        }
        names.push(name.value());
        values.push(match labels {
            None => StageValue::Named(name.value()),
            Some((en, zh_cn)) => StageValue::Labelled(name.value(), en.value(), zh_cn.value()),
        });
    }
    Ok(values)
}

type Labels = Option<(LitStr, LitStr)>;

fn stage(input: ParseStream<'_>) -> syn::Result<(LitStr, Labels)> {
    if input.peek(LitStr) {
        return Ok((input.parse()?, None));
    }
    let content;
    let parentheses = syn::parenthesized!(content in input);
    let words: Vec<LitStr> = content.parse_terminated(|word| word.parse(), Token![,])?.into_iter().collect();
    match <[LitStr; 3]>::try_from(words) {
        Ok([name, en, zh_cn]) if !en.value().is_empty() && !zh_cn.value().is_empty() => Ok((name, Some((en, zh_cn)))),
        Ok([name, ..]) => Err(syn::Error::new(name.span(), "needs a label in each language")),
        Err(_) => {
            Err(syn::Error::new(parentheses.span.join(), "a stage is \"name\" or (\"name\", \"English\", \"中文\")"))
        }
    }
}
