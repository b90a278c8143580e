use std::time::Instant;

use jobdeck_document::{DocumentError, Fonts, ImageFault, MAX_MARKDOWN_BYTES, Source, parse};

use crate::support::{fixture, pdf, source};

fn refused(markdown: &str) -> DocumentError {
    parse(&source(markdown)).expect_err("is refused")
}

#[test]
fn text_without_content_is_named_empty() {
    for text in ["", " \n\t\n", "<!-- only a comment -->\n", "[a]: https://example.org\n"] {
        assert_eq!(refused(text), DocumentError::EmptyText, "{text:?}");
    }
}

#[test]
fn text_of_twenty_megabytes_is_refused_at_once() {
    let text = "word ".repeat(4_000_000);
    let started = Instant::now();
    assert_eq!(refused(&text), DocumentError::TooLarge { bytes: 20_000_000, limit: MAX_MARKDOWN_BYTES });
    assert!(started.elapsed().as_millis() < 100);
}

#[test]
fn nul_is_located() {
    assert_eq!(refused(&fixture("nul.md")), DocumentError::ContainsNul { line: 4, column: 16 });
    assert_eq!(refused("等\0"), DocumentError::ContainsNul { line: 1, column: 2 });
}

#[test]
fn broken_image_is_located_and_explained() {
    assert_eq!(
        refused(&fixture("broken-image.md")),
        DocumentError::BrokenImage { line: 5, reason: ImageFault::Damaged }
    );
    for (address, reason) in [
        ("data:image/png;base64,@@@@", ImageFault::Address),
        ("data:image/png;base64", ImageFault::Address),
        ("data:image/png;base64,", ImageFault::Damaged),
        ("data:image/svg+xml,%3Csvg%zz", ImageFault::Address),
        ("data:text/html,hello", ImageFault::Format),
        ("data:image/png;base64,aGVsbG8gd29ybGQ=", ImageFault::Format),
        ("data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%3E", ImageFault::Damaged),
        ("data:image/svg+xml,%3Chtml/%3E", ImageFault::Format),
    ] {
        let text = format!("first\n\n![alt](<{address}>)");
        assert_eq!(refused(&text), DocumentError::BrokenImage { line: 3, reason }, "{address}");
    }
}

#[test]
fn svg_may_not_refer_to_other_files() {
    let svg = |inside: &str| {
        format!(
            "![x](<data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='9' height='9'%3E{inside}%3C/svg%3E>)"
        )
    };
    parse(&source(&svg("%3Crect width='9' height='9'/%3E"))).unwrap();
    assert_eq!(
        refused(&svg("%3Cimage href='file:///etc/passwd' width='9' height='9'/%3E")),
        DocumentError::BrokenImage { line: 1, reason: ImageFault::Linked }
    );
}

#[test]
fn missing_glyph_is_named_before_layout() {
    let error = pdf(&fixture("missing-glyph.md")).unwrap_err();
    assert_eq!(error, DocumentError::MissingGlyph { character: '\u{10BEEF}', code_point: 0x10_BEEF, line: Some(5) });
    assert_eq!(error.to_string(), "no font has a glyph for U+10BEEF, first seen in line 5");
    let source = Source { title: "", markdown: "# Waiting\n\n```\nlet x = \"等\";\n```\n", lang: None };
    let error = jobdeck_document::pdf(&source, &Fonts::built_in()).unwrap_err();
    assert_eq!(error, DocumentError::MissingGlyph { character: '等', code_point: 0x7B49, line: Some(4) });
    let source = Source { title: "等", markdown: "Waiting", lang: None };
    let error = jobdeck_document::pdf(&source, &Fonts::built_in()).unwrap_err();
    assert_eq!(error, DocumentError::MissingGlyph { character: '等', code_point: 0x7B49, line: None });
}

#[test]
fn invisible_characters_need_no_glyph() {
    let text = "soft\u{AD}hyphen, joined\u{200D}, \u{FEFF}mark, wide\u{3000}space, \u{2066}isolate\u{2069}, \u{1}control\u{1B}, text\u{FE0F}";
    jobdeck_document::pdf(&source(text), &Fonts::built_in()).unwrap();
}

#[test]
fn every_error_has_a_stable_code() {
    let codes: Vec<&str> =
        ["", &"x".repeat(MAX_MARKDOWN_BYTES + 1), "\0", &fixture("broken-image.md"), &"> ".repeat(200)]
            .map(|text| refused(text).code())
            .to_vec();
    assert_eq!(codes, ["empty_text", "too_large", "contains_nul", "broken_image", "too_deep"]);
}
