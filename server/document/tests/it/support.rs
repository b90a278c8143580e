//! Reading fixtures, and reading back what was rendered.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use jobdeck_document::{DocumentError, Fonts, Rendered, Source};

pub(crate) fn fixture_bytes(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../end2end/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn fixture(name: &str) -> String {
    String::from_utf8(fixture_bytes(name)).expect("fixtures are UTF-8")
}

pub(crate) fn source(markdown: &str) -> Source<'_> {
    Source { title: "A test", markdown, lang: None }
}

pub(crate) fn html(markdown: &str) -> String {
    let rendered = jobdeck_document::html(&source(markdown)).expect("renders as HTML");
    String::from_utf8(rendered.bytes).expect("HTML is UTF-8")
}

/// What stands in the body, without the fixed frame.
pub(crate) fn body(markdown: &str) -> String {
    let html = html(markdown);
    let (_, rest) = html.split_once("<main>\n").expect("has a main part");
    rest.rsplit_once("</main>").expect("main part ends").0.replace("<h1 class=\"title\">A test</h1>\n", "")
}

pub(crate) fn pdf(markdown: &str) -> Result<Rendered, DocumentError> {
    jobdeck_document::pdf(&source(markdown), Fonts::shared())
}

/// The text of a PDF as `pdftotext` reads it, line ends and runs of blanks made single spaces.
pub(crate) fn text_of(pdf: &[u8]) -> String {
    let text = pipe("pdftotext", &["-layout", "-", "-"], pdf);
    String::from_utf8(text).expect("pdftotext writes UTF-8").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a program of poppler-utils.
pub(crate) fn pipe(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} (from poppler-utils): {error}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("program ends");
    writer.join().expect("writer ends").expect("program reads its input");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} failed: {}: {complaint}", output.status);
    output.stdout
}
