//! The implementation that the derive writes.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::duration::{WrittenBackoff, WrittenKeep};
use crate::fields::{PayloadFields, WrittenPath};
use crate::job_attribute::{BackoffValue, JobAttribute, StageValue};

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(
            &input.generics,
            "a job type is one type: it cannot have generic parameters",
        ));
    }
    let fields = PayloadFields::of(input)?;
    let job = JobAttribute::of(&input.attrs)?;
    let name = &input.ident;
    let job_type = job
        .job_type
        .as_ref()
        .ok_or_else(|| syn::Error::new_spanned(name, "a job type needs its name: #[job(type = \"...\")]"))?;
    let values = policy_fields(&job, &fields)?;
    Ok(quote! {
        #[automatically_derived]
        impl ::jobdeck::JobType for #name {
            const TYPE: &'static ::core::primitive::str = #job_type;
            #[allow(clippy::needless_update)]
            fn policy() -> ::jobdeck::Policy {
                ::jobdeck::Policy { #(#values,)* ..::core::default::Default::default() }
            }
        }
    })
}

/// The fields of `Policy` that the attribute sets.
fn policy_fields(job: &JobAttribute, fields: &PayloadFields) -> syn::Result<Vec<TokenStream>> {
    let mut values = Vec::new();
    let owned = |text: &str| quote!(::std::string::String::from(#text));
    let resolved = |paths: &[WrittenPath], always_there| {
        let paths = paths.iter().map(|path| Ok(owned(&fields.resolve(path, always_there)?)));
        let paths: Vec<TokenStream> = paths.collect::<syn::Result<_>>()?;
        syn::Result::Ok(quote!(::std::vec![#(#paths),*]))
    };
    if let Some(queue) = &job.queue {
        let queue = owned(queue);
        values.push(quote!(queue: #queue));
    }
    values.extend(job.priority.map(|priority| quote!(priority: #priority)));
    values.extend(job.attempts.map(|attempts| quote!(max_attempts: #attempts)));
    if let Some(backoff) = &job.backoff {
        let backoff = match backoff {
            BackoffValue::Constant(constant) => quote!(#constant),
            BackoffValue::Written(WrittenBackoff::Fixed(wait)) => {
                let wait = duration(*wait);
                quote!(::jobdeck::Backoff::Fixed(#wait))
            }
            BackoffValue::Written(WrittenBackoff::Exponential { first, factor, cap }) => {
                let (first, cap) = (duration(*first), duration(*cap));
                quote!(::jobdeck::Backoff::Exponential { first: #first, factor: #factor, cap: #cap })
            }
        };
        values.push(quote!(backoff: #backoff));
    }
    values.extend(job.jitter.map(|jitter| quote!(jitter: #jitter)));
    values.extend(job.timeout.map(duration).map(|timeout| quote!(timeout: #timeout)));
    values.extend(job.max_stalled.map(|max_stalled| quote!(max_stalled: #max_stalled)));
    if let Some(stages) = &job.stages {
        let stages = stages.iter().map(|stage| match stage {
            StageValue::Named(name) => quote!(::jobdeck::Stage::named(#name)),
            StageValue::Labelled(name, en, zh_cn) => quote!(::jobdeck::Stage::new(#name, #en, #zh_cn)),
        });
        values.push(quote!(stages: ::std::vec![#(#stages),*]));
    }
    if let Some(key) = &job.key {
        let paths = resolved(key, true)?;
        let on_duplicate = match &job.on_duplicate {
            Some(word) if word.value() == "ignore" => quote!(::jobdeck::DuplicateBehaviour::Ignore),
            _ => quote!(::jobdeck::DuplicateBehaviour::ReturnExisting),
        };
        let keep = optional(job.keep.flatten().map(duration));
        values.push(quote! {
            key: ::core::option::Option::Some(
                ::jobdeck::KeyPolicy { fields: #paths, on_duplicate: #on_duplicate, keep: #keep })
        });
    }
    if let Some(redact) = &job.redact {
        let paths = resolved(redact, false)?;
        values.push(quote!(redact: #paths));
    }
    let kept = [("succeeded", &job.succeeded), ("failed", &job.failed), ("canceled", &job.canceled)];
    let kept: Vec<TokenStream> =
        kept.into_iter().filter_map(|(state, keep)| Some(keep_field(state, keep.as_ref()?))).collect();
    if !kept.is_empty() {
        values.push(quote!(retention: ::jobdeck::Retention { #(#kept,)* ..::core::default::Default::default() }));
    }
    if let Some(provider) = &job.provider {
        let provider = optional(Some(owned(provider)));
        values.push(quote!(provider: #provider));
    }
    values.extend(job.concurrency.map(|limit| quote!(concurrency: ::core::option::Option::Some(#limit))));
    values.extend(job.key_concurrency.map(|limit| quote!(key_concurrency: ::core::option::Option::Some(#limit))));
    if let Some(path) = &job.limit_key {
        let path = optional(Some(owned(&fields.resolve(path, false)?)));
        values.push(quote!(limit_key: #path));
    }
    Ok(values)
}

fn keep_field(state: &str, keep: &WrittenKeep) -> TokenStream {
    let state = syn::Ident::new(state, proc_macro2::Span::call_site());
    let age = optional(keep.age.map(duration));
    let count = optional(keep.count.map(|count| quote!(#count)));
    quote!(#state: ::jobdeck::Keep { age: #age, count: #count })
}

fn duration(duration: Duration) -> TokenStream {
    let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#secs, #nanos))
}

fn optional(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a payload with this attribute is refused with.
    fn refused(attribute: &str) -> String {
        let item = format!(
            "#[job({attribute})] #[serde(rename_all = \"camelCase\")] struct Charge {{
               event_id: String, note: Option<String>, #[serde(rename = \"a.b\")] dotted: i64, #[serde(skip)] hidden: i64,
               #[serde(default, skip_serializing_if = \"is_zero\", rename(serialize = \"sum\"))] amount: i64 }}"
        );
        match expand(&syn::parse_str(&item).expect("Rust")) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_is_allowed() {
        let cases = [
            ("queue = \"q\"", "a job type needs its name: #[job(type = \"...\")]"),
            ("type = \"a b\"", "must be 1 to 100 of A-Z a-z 0-9 _ . : - and not start with . : or -"),
            ("type = \"t\", queue = \"\"", "must be 1 to 100 of"),
            ("type = \"t\", atempts = 3", "unknown attribute; one of type, queue, priority, attempts, backoff"),
            ("type = \"t\", attempts = 3, attempts = 4", "`attempts` is there twice"),
            ("type = \"t\", attempts = 0", "must be a whole number from 1 to 2147483647"),
            ("type = \"t\", attempts = \"3\"", "must be a whole number from 1"),
            ("type = \"t\", priority = -32769", "must be a whole number from -32768 to 32767"),
            ("type = \"t\", jitter = 1.5", "must be a number from 0 to 1"),
            ("type = \"t\", jitter = -0.1", "must be a number from 0 to 1"),
            (
                "type = \"t\", timeout = \"ten minutes\"",
                "\"ten minutes\" is no duration: write whole numbers with a unit (ms, s, m, h, d, w)",
            ),
            ("type = \"t\", timeout = \"0s\"", "is zero, must be longer"),
            (
                "type = \"t\", backoff = \"linear 5s\"",
                "\"linear 5s\" is no backoff: write \"fixed 5s\", \"exponential 10s x2 10m\"",
            ),
            (
                "type = \"t\", backoff = \"exponential 10s x0 10m\"",
                "\"exponential 10s x0 10m\" needs a factor of at least 1",
            ),
            ("type = \"t\", backoff = 5", "must be a text such as \"fixed 5s\""),
            ("type = \"t\", max_stalled = -1", "must be a whole number from 0"),
            ("type = \"t\", key()", "needs a field at least"),
            (
                "type = \"t\", key(event_di)",
                "the payload has no field `event_di`; it has event_id, note, dotted, amount",
            ),
            ("type = \"t\", key(event_id, event_id)", "`event_id` is there twice"),
            ("type = \"t\", key(note)", "`note` is an Option, but a field of the key must always be there"),
            ("type = \"t\", key(hidden)", "`hidden` is skipped when the payload is written"),
            ("type = \"t\", key(dotted)", "`dotted` is called \"a.b\" in the JSON"),
            ("type = \"t\", key(\"event_id.\")", "\"event_id.\" has an empty segment"),
            ("type = \"t\", on_duplicate = \"ignore\"", "`on_duplicate` needs `key(...)`"),
            ("type = \"t\", keep = \"30d\"", "`keep` needs `key(...)`"),
            ("type = \"t\", key(event_id), on_duplicate = \"fail\"", "must be \"return_existing\" or \"ignore\""),
            ("type = \"t\", key(event_id), keep = \"long\"", "\"long\" is no duration"),
            ("type = \"t\", stages(\"a\", \"a\")", "is there twice"),
            ("type = \"t\", stages((\"a\", \"A\"))", "a stage is \"name\" or (\"name\", \"English\", \"中文\")"),
            ("type = \"t\", stages((\"a\", \"A\", \"\"))", "needs a label in each language"),
            ("type = \"t\", redact(author)", "the payload has no field `author`"),
            ("type = \"t\", retain(pending = \"5\")", "unknown state; one of succeeded, failed, canceled"),
            ("type = \"t\", retain(failed = \"some\")", "\"some\" says nothing about what is kept"),
            ("type = \"t\", provider = \"\"", "must be 1 to 200 bytes without NUL"),
            ("type = \"t\", concurrency = 0", "must be a whole number from 1"),
            ("type = \"t\", limit_key = \"customer\"", "the payload has no field `customer`"),
        ];
        for (attribute, expected) in cases {
            let error = refused(attribute);
            assert!(error.starts_with(expected), "{attribute}: {error}");
        }
    }

    #[test]
    fn paths_follow_serdes_names() {
        let item = "#[job(type = \"t\", key(event_id, amount), redact(\"note.text\", \"sum\"), limit_key = \"eventId\")]
          #[serde(rename_all = \"camelCase\", deny_unknown_fields)] struct Charge {
            event_id: String, note: Option<Note>, #[serde(default = \"zero\", rename(serialize = \"sum\", deserialize = \"total\"))] amount: i64 }";
        let code = expand(&syn::parse_str(item).expect("Rust")).expect("accepted").to_string().replace(' ', "");
        for expected in [
            "from(\"eventId\"),::std::string::String::from(\"sum\")]",
            "from(\"note.text\")",
            "Some(::std::string::String::from(\"eventId\"))",
        ] {
            assert!(code.contains(expected), "{expected} in {code}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for item in [
            "#[job(type = \"t\")] struct A(i64);",
            "#[job(type = \"t\")] struct A;",
            "#[job(type = \"t\")] struct A<T> { t: T }",
        ] {
            assert!(expand(&syn::parse_str(item).expect("Rust")).is_err(), "{item}");
        }
        assert!(
            expand(
                &syn::parse_str("#[job(type = \"t\", key(kind))] #[serde(tag = \"kind\")] enum A { B {} }")
                    .expect("Rust")
            )
            .is_ok()
        );
    }
}
