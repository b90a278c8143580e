//! Renders a Markdown file: `cargo run --release -p jobdeck-document --example render -- text.md out.pdf` (or `out.html`).
//! Prints pages, bytes and seconds.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use jobdeck_document::{Fonts, Source, parse};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = arguments.as_slice() else { return Err("usage: render FROM.md TO.pdf|TO.html".into()) };
    let markdown = std::fs::read_to_string(from)?;
    let title = Path::new(from).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();

    let started = Instant::now();
    let document = parse(&Source { title, markdown: &markdown, lang: None })?;
    let parsed = started.elapsed();
    let rendered = if to.ends_with(".html") {
        document.to_html()
    } else {
        let started = Instant::now();
        let fonts = Fonts::shared();
        println!("{} faces found in {:.2?}", fonts.n_faces(), started.elapsed());
        document.to_pdf(fonts)?
    };
    std::fs::write(to, &rendered.bytes)?;
    let pages = rendered.pages.map_or_else(String::new, |pages| format!("{pages} pages, "));
    println!(
        "{pages}{} bytes, {}, parsed in {parsed:.2?}, all in {:.2?}, {} warnings",
        rendered.bytes.len(),
        document.lang(),
        started.elapsed(),
        rendered.warnings.len()
    );
    Ok(())
}
