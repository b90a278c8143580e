//! What the payload's JSON holds at its top level, as serde's attributes say, and payload paths checked against it.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Data, DeriveInput, Fields, LitStr, Token, Type};

struct Field {
    rust_name: String,
    json_name: String,
    is_option: bool,
    is_skipped: bool,
}

/// The payload's fields.
pub(crate) struct PayloadFields {
    fields: Vec<Field>,
    /// Whether there may be others: flattened ones, or those of an enum's variants.
    is_open: bool,
}

/// A payload path as written.
pub(crate) struct WrittenPath {
    pub(crate) text: String,
    pub(crate) span: Span,
}

impl PayloadFields {
    pub(crate) fn of(input: &DeriveInput) -> syn::Result<Self> {
        let named = match &input.data {
            Data::Struct(data) => match &data.fields {
                Fields::Named(named) => named,
                Fields::Unnamed(_) | Fields::Unit => {
                    return Err(syn::Error::new_spanned(
                        &input.ident,
                        "a payload is a JSON object: use a struct with named fields, `struct Name {}` if it has none",
                    ));
                }
            },
            Data::Enum(_) => return Ok(Self { fields: Vec::new(), is_open: true }),
            Data::Union(_) => return Err(syn::Error::new_spanned(&input.ident, "a union cannot be a payload")),
        };
        let rename_all = SerdeNames::of(&input.attrs)?.rename_all;
        let mut is_open = false;
        let mut fields = Vec::new();
        for field in &named.named {
            let names = SerdeNames::of(&field.attrs)?;
            is_open |= names.flatten;
            let Some(rust_name) = field.ident.as_ref().map(|ident| ident.unraw().to_string()) else { continue };
            let json_name = match (names.rename, &rename_all) {
                (Some(name), _) => name,
                (None, Some(rule)) => renamed(&rust_name, rule),
                (None, None) => rust_name.clone(),
            };
            if !names.flatten {
                fields.push(Field { rust_name, json_name, is_option: is_option(&field.ty), is_skipped: names.skip });
            }
        }
        Ok(Self { fields, is_open })
    }

    /// The path as it stands in the JSON. `always_there`: whether its first field must be.
    pub(crate) fn resolve(&self, path: &WrittenPath, always_there: bool) -> syn::Result<String> {
        let refuse = |problem: String| Err(syn::Error::new(path.span, problem));
        if path.text.is_empty() || path.text.split('.').any(str::is_empty) {
            return refuse(format!(
                "{:?} has an empty segment: write names with single dots between them, such as author.email",
                path.text
            ));
        }
        let (first, rest) =
            path.text.split_once('.').map_or((path.text.as_str(), None), |(first, rest)| (first, Some(rest)));
        let by_json = self.fields.iter().find(|field| field.json_name == first);
        let Some(field) = by_json.or_else(|| self.fields.iter().find(|field| field.rust_name == first)) else {
            if self.is_open {
                return Ok(path.text.clone());
            }
            let names: Vec<&str> =
                self.fields.iter().filter(|field| !field.is_skipped).map(|field| field.rust_name.as_str()).collect();
            return refuse(format!(
                "the payload has no field `{first}`; {}",
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) }
            ));
        };
        if field.is_skipped {
            return refuse(format!("`{first}` is skipped when the payload is written, so it is never in the JSON"));
        }
        if always_there && field.is_option {
            return refuse(format!("`{first}` is an Option, but a field of the key must always be there"));
        }
        if field.json_name.contains('.') {
            return refuse(format!(
                "`{first}` is called {:?} in the JSON, and a path cannot name what holds a dot",
                field.json_name
            ));
        }
        Ok(rest.map_or_else(|| field.json_name.clone(), |rest| format!("{}.{rest}", field.json_name)))
    }
}

fn is_option(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}

/// What serde's attributes say about names when writing.
#[derive(Default)]
struct SerdeNames {
    rename: Option<String>,
    rename_all: Option<String>,
    skip: bool,
    flatten: bool,
}

impl SerdeNames {
    fn of(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut names = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("rename") {
                    names.rename = when_writing(&meta)?.or(names.rename.take());
                } else if meta.path.is_ident("rename_all") {
                    names.rename_all = when_writing(&meta)?.or(names.rename_all.take());
                } else {
                    names.skip |= meta.path.is_ident("skip") || meta.path.is_ident("skip_serializing");
                    names.flatten |= meta.path.is_ident("flatten");
                    pass_over(&meta)?;
                }
                Ok(())
            })?;
        }
        Ok(names)
    }
}

/// `= "name"` or `(serialize = "name", deserialize = "other")`.
fn when_writing(meta: &ParseNestedMeta<'_>) -> syn::Result<Option<String>> {
    if meta.input.peek(Token![=]) {
        return Ok(Some(meta.value()?.parse::<LitStr>()?.value()));
    }
    let mut name = None;
    meta.parse_nested_meta(|inner| {
        let value = inner.value()?.parse::<LitStr>()?.value();
        if inner.path.is_ident("serialize") {
            name = Some(value);
        }
        Ok(())
    })?;
    Ok(name)
}

/// Reads the rest of an attribute that says nothing about names.
fn pass_over(meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<syn::Expr>()?;
    } else if meta.input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in meta.input);
        content.parse::<proc_macro2::TokenStream>()?;
    }
    Ok(())
}

/// A field's name under serde's `rename_all`.
fn renamed(name: &str, rule: &str) -> String {
    let pascal = || {
        name.split('_').fold(String::new(), |mut joined, word| {
            let mut letters = word.chars();
            joined.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            joined.extend(letters);
            joined
        })
    };
    match rule {
        "PascalCase" => pascal(),
        "camelCase" => {
            let pascal = pascal();
            let mut letters = pascal.chars();
            letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
        }
        "UPPERCASE" | "SCREAMING_SNAKE_CASE" => name.to_ascii_uppercase(),
        "kebab-case" => name.replace('_', "-"),
        "SCREAMING-KEBAB-CASE" => name.to_ascii_uppercase().replace('_', "-"),
        // "lowercase" and "snake_case" leave a field as it is; serde refuses others.
        _ => name.to_owned(),
    }
}
