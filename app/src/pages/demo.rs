//! Exporting a document: Markdown in, a file out. A plain form that the server answers with the export's own page.

use leptos::html::{Input, Textarea};
use leptos::prelude::*;

use crate::components::icon::{icon, icon_small};
use crate::components::page_title::{escape, page_title};
use crate::i18n::Locale;
use crate::model::{PageFacts, Permission};

/// `/demo`
#[component]
pub(crate) fn DemoPage() -> impl IntoView {
    let locale = expect_context::<Locale>();
    let may_enqueue = expect_context::<PageFacts>().allows(Permission::EnqueueJobs);
    view! {
        {page_title(move || locale.text("demo-title"))}
        <header class="page-head"><h1>{locale.text("demo-title")}</h1></header>
        <div class="page">
            <p class="muted text-md">{locale.text("demo-intro")}</p>
            {form(locale, may_enqueue)}
        </div>
    }
}

fn form(locale: Locale, may_enqueue: bool) -> AnyView {
    let (title, document) = sample(locale);
    let text_field = NodeRef::<Textarea>::new();
    let title_field = NodeRef::<Input>::new();
    let format = RwSignal::new("PDF");
    let submit = if may_enqueue {
        view! {
            <button class="btn primary min-h-11 text-md" type="submit">
                {move || locale.format("demo-submit", &[("format", format.get().into())])}
            </button>
        }
        .into_any()
    } else {
        view! {
            <button class="btn min-h-11 text-md" type="button" disabled>
                {locale.format("demo-submit", &[("format", "PDF".into())])}
            </button>
            <p class="hint">{locale.text("demo-not-allowed")}</p>
        }
        .into_any()
    };
    // The other encoding writes Chinese text three times as long.
    view! {
        <form action="/demo" method="post" enctype="multipart/form-data" class="demo-grid">
            <section class="panel editor" aria-labelledby="h-markdown">
                <div class="panel-head">
                    <h2 id="h-markdown"><label for="markdown">"Markdown"</label></h2>
                    <div class="tools">{open_button(locale, text_field, title_field)}</div>
                </div>
                <textarea
                    class="textarea mono"
                    id="markdown"
                    name="markdown"
                    rows="19"
                    required
                    spellcheck="false"
                    node_ref=text_field
                >
                    {textarea_text(document)}
                </textarea>
            </section>
            <div class="stack gap-5">
                <section class="panel" aria-label=locale.text("demo-options")>
                    <div class="panel-body stack gap-4">
                        <div class="field">
                            <label for="title">{locale.text("demo-field-title")}</label>
                            <input
                                class="input"
                                id="title"
                                name="title"
                                required
                                maxlength="200"
                                value=title
                                node_ref=title_field
                            />
                        </div>
                        <fieldset>
                            <legend class="label mb-2">{locale.text("demo-field-format")}</legend>
                            <div class="opts grid-cols-2">
                                {format_choice("pdf", "PDF", locale.text("demo-format-pdf"), format)}
                                {format_choice("html", "HTML", locale.text("demo-format-html"), format)}
                            </div>
                        </fieldset>
                        {mishaps(locale)}
                        {submit}
                    </div>
                </section>
            </div>
        </form>
    }
    .into_any()
}

fn format_choice(
    value: &'static str,
    name: &'static str,
    hint: String,
    chosen: RwSignal<&'static str>,
) -> impl IntoView {
    view! {
        <label class="opt">
            <input
                class="check radio"
                type="radio"
                name="format"
                value=value
                checked=value == "pdf"
                on:change=move |_| chosen.set(name)
            />
            <span>
                <span class="strong">{name}</span>
                <span class="sub">{hint}</span>
            </span>
        </label>
    }
}

/// What may go wrong on purpose, so that people can see what happens then.
fn mishaps(locale: Locale) -> AnyView {
    let choices = [
        ("none", locale.text("demo-mishap-none"), String::new()),
        (
            "storage_fails_twice",
            locale.text("demo-mishap-storage-fails"),
            locale.text("demo-mishap-storage-fails-hint"),
        ),
        ("slow_down", locale.text("demo-mishap-slow-down"), locale.text("demo-mishap-slow-down-hint")),
        (
            "storage_refuses_once",
            locale.text("demo-mishap-storage-refuses"),
            locale.text("demo-mishap-storage-refuses-hint"),
        ),
    ];
    let summary = RwSignal::new(locale.text("demo-mishap-none"));
    let choices = choices.map(|(value, name, hint)| {
        let picked = name.clone();
        view! {
            <label class="opt slim">
                <input
                    class="check radio"
                    type="radio"
                    name="mishap"
                    value=value
                    checked=value == "none"
                    on:change=move |_| summary.set(picked.clone())
                />
                <span class="strong">{name}</span>
                <span class="faint">{hint}</span>
            </label>
        }
    });
    view! {
        <details class="more">
            <summary>
                {icon_small("right")}
                {locale.text("demo-mishap")}
                <span class="faint">{move || summary.get()}</span>
            </summary>
            <fieldset class="stack gap-0 mt-2">
                <legend class="visually-hidden">{locale.text("demo-mishap")}</legend>
                {choices.collect_view()}
            </fieldset>
        </details>
    }
    .into_any()
}

/// A button that reads a file into the text. Needs script, so it appears with it.
fn open_button(locale: Locale, text: NodeRef<Textarea>, title: NodeRef<Input>) -> impl IntoView {
    let file_field = NodeRef::<Input>::new();
    let is_alive = RwSignal::new(false);
    Effect::new(move |_| is_alive.set(true));
    view! {
        <input
            class="visually-hidden"
            type="file"
            tabindex="-1"
            aria-hidden="true"
            accept=".md,.markdown,.txt,text/markdown,text/plain"
            node_ref=file_field
            on:change=move |_| read_file(file_field, text, title)
        />
        <button
            class="btn ghost sm"
            type="button"
            hidden=move || !is_alive.get()
            on:click=move |_| {
                if let Some(field) = file_field.get_untracked() {
                    field.click();
                }
            }
        >
            {icon("upload")}
            {locale.text("demo-open-file")}
        </button>
    }
}

#[cfg(feature = "hydrate")]
fn read_file(field: NodeRef<Input>, text: NodeRef<Textarea>, title: NodeRef<Input>) {
    let Some(field) = field.get_untracked() else { return };
    let Some(file) = field.files().and_then(|files| files.get(0)) else { return };
    // The same file can be opened twice in a row.
    field.set_value("");
    leptos::task::spawn_local(async move {
        let Ok(content) = wasm_bindgen_futures::JsFuture::from(file.text()).await else { return };
        if let (Some(text), Some(content)) = (text.get_untracked(), content.as_string()) {
            text.set_value(&content);
        }
        if let Some(title) = title.get_untracked() {
            let name = file.name();
            title.set_value(name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem));
        }
    });
}

#[cfg(not(feature = "hydrate"))]
fn read_file(_: NodeRef<Input>, _: NodeRef<Textarea>, _: NodeRef<Input>) {}

/// The title and the text of a document to try.
fn sample(locale: Locale) -> (String, &'static str) {
    let text = match locale {
        Locale::En => include_str!("../../locales/en/sample.md"),
        Locale::ZhCn => include_str!("../../locales/zh-CN/sample.md"),
    };
    (locale.text("demo-sample-title"), text)
}

/// Leptos writes the children of a textarea into the page as they are, so the server escapes them.
fn textarea_text(text: &str) -> String {
    if cfg!(feature = "ssr") { escape(text) } else { text.to_owned() }
}
