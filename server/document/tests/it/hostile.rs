use std::fmt::Write;
use std::time::Instant;

use base64::Engine;
use jobdeck_document::{DocumentError, Fonts, ImageFault, MAX_NESTING, parse};

use crate::support::{body, html, pdf, source, text_of};

/// Text that would mean something to Typst outside a string literal.
const TYPST: &str = r##"#import "/etc/passwd": * $x^2$ `raw` \u{41} \ "quoted" // comment /* block */ <label> @ref #(panic("no")) *b* [c] {d} = e"##;

#[test]
fn typst_syntax_is_only_text() {
    // In a code span nothing is Markdown either; a double backtick delimits it.
    let markdown = format!(
        "# ``{TYPST}``\n\n- ``{TYPST}``\n\n| ``{TYPST}`` |\n|---|\n| x |\n\n```\n{TYPST}\n```\n\nnote[^1]\n\n[^1]: ``{TYPST}``\n"
    );
    let rendered = pdf(&markdown).unwrap();
    let text = text_of(&rendered.bytes).replace(['\u{200B}', ' '], "");
    let expected = TYPST.replace(' ', "");
    for part in [
        r#"#import"/etc/passwd":*"#,
        "$x^2$`raw`",
        r"\u{41}\",
        "//comment/*block*/<label>@ref",
        r#"#(panic("no"))"#,
        "[c]{d}=e",
    ] {
        assert!(expected.contains(part));
        assert!(text.matches(part).count() >= 4, "{part:?} in {text}");
    }
}

#[test]
fn every_ascii_sign_in_every_place_is_only_text() {
    let signs: Vec<char> = (' '..='~').filter(|c| !c.is_ascii_alphanumeric()).collect();
    for length in 1..=3_usize {
        // A few hundred combinations, spread over all of them, as one document each.
        let mut markdown = String::new();
        for nth in 0..160_usize {
            let word: String = (0..length).map(|place| signs[(nth * 7 + place * (nth + 3)) % signs.len()]).collect();
            let quoted: String = word.chars().flat_map(|c| ['\\', c]).collect();
            let _ = write!(
                markdown,
                "{quoted} a{word}\"{word}\\{word}\n\n[{quoted}](https://example.org/{nth}\"{nth}) {quoted}\n\n"
            );
        }
        let source = jobdeck_document::Source {
            title: &markdown[..markdown.floor_char_boundary(200)],
            markdown: &markdown,
            lang: None,
        };
        jobdeck_document::pdf(&source, &Fonts::built_in()).unwrap();
    }
}

#[test]
fn hostile_text_is_escaped_in_html() {
    let title = "</title><script>alert(1)</script>";
    let source = jobdeck_document::Source { title, markdown: "x", lang: Some("en\"><script>") };
    let html = String::from_utf8(jobdeck_document::html(&source).unwrap().bytes).unwrap();
    assert!(!html.contains("<script"), "{html}");
    let body = body(
        "[x](https://e.org/\"onmouseover=alert(1)//)\n\n![\"><script>](data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7)\n\n```\"><b>\n</code></pre><script>\n```\n",
    );
    assert!(!body.contains("<script") && !body.contains("<b>") && !body.contains("\"onmouseover"), "{body}");
}

#[test]
fn nesting_beyond_the_limit_is_refused_without_overflow() {
    let n = 10_000;
    let too_deep = |text: &str, what: &str| {
        let started = Instant::now();
        match parse(&source(text)) {
            Err(DocumentError::TooDeep { .. }) => {}
            other => panic!("{what}: {other:?}"),
        }
        assert!(started.elapsed().as_secs() < 20, "{what} took {:?}", started.elapsed());
    };
    too_deep(&format!("{}x", "> ".repeat(n)), "quotes in a line");
    too_deep(&format!("{}x", "- ".repeat(n)), "lists in a line");
    too_deep(&(0..200).map(|depth| format!("{}- x\n", "  ".repeat(depth))).collect::<String>(), "lists by indentation");
    too_deep(&format!("{}x{}", "*a ".repeat(n), " b*".repeat(n)), "emphasis");
    too_deep(&format!("{}x{}", "**a ".repeat(n), " b**".repeat(n)), "strong emphasis");
    too_deep(&format!("{}x{}", "~~*a ".repeat(n), " b*~~".repeat(n)), "mixed emphasis");
    too_deep(&format!("{}x{}", "![".repeat(n), "](https://e.org)".repeat(n)), "images within images");
}

#[test]
fn nesting_up_to_the_limit_is_set() {
    // Paragraph and text count too, and the document itself does not.
    let depth = MAX_NESTING - 2;
    let texts = [
        format!("{}inmost", "> ".repeat(depth)),
        format!("{}inmost", "- ".repeat(depth)),
        format!("{}inmost", "1. > - ".repeat(depth / 3)),
        format!("{}inmost", "- [ ] x\n\n  > - y\n".to_owned() + &"> ".repeat(20)),
        format!("{}inmost{}", "*a **b ".repeat(depth / 2), "** *".repeat(depth / 2)),
        format!("{}{}inmost{}", "> - ".repeat(depth / 4), "~~*a ".repeat(depth / 4), " b*~~".repeat(depth / 4)),
        format!("{}a[^1]\n\n[^1]: {}inmost", "> ".repeat(depth - 2), "> ".repeat(depth - 4)),
    ];
    for text in texts {
        let rendered = pdf(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        assert!(text_of(&rendered.bytes).contains("inmost"), "{text}");
        assert!(html(&text).contains("inmost"), "{text}");
    }
}

#[test]
fn footnotes_may_refer_to_themselves_and_each_other() {
    let text = "a[^1] b[^2] again[^1]\n\n[^1]: first, see[^1] and[^2]\n\n[^2]: second, see[^1]\n\n    > with a quote[^3]\n\n[^3]: third\n";
    let read = text_of(&pdf(text).unwrap().bytes);
    assert!(read.contains("first, see") && read.contains("second, see") && read.contains("third"), "{read}");
    let chain: String = (1..2_000).map(|n| format!("[^{n}]: chain{n}[^{}]\n\n", n + 1)).collect();
    let read = text_of(&pdf(&format!("start[^1]\n\n{chain}[^2000]: last link\n")).unwrap().bytes);
    assert!(read.contains("chain1") && read.contains("chain1999") && read.contains("last link"));
    let table = "| a[^1] | b |\n|---|---|\n".to_owned()
        + &"| x | y[^1] |\n".repeat(120)
        + "\n[^1]: note in a header that is repeated\n";
    assert!(text_of(&pdf(&table).unwrap().bytes).contains("note in a header"));
}

#[test]
fn decompression_bombs_are_refused_by_their_header() {
    // 60 000 × 60 000 pixels, declared in 45 bytes.
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0".to_vec();
    png.extend(crc32(&png[12..]).to_be_bytes());
    png.extend(b"\0\0\0\x04IDAT\x78\x9c\x01\0");
    let too_large = DocumentError::BrokenImage { line: 1, reason: ImageFault::TooLarge };
    let url = |mime: &str, bytes: &[u8]| {
        format!("![x](data:{mime};base64,{})", base64::engine::general_purpose::STANDARD.encode(bytes))
    };
    assert_eq!(parse(&source(&url("image/png", &png))).unwrap_err(), too_large);

    let mut svg =
        "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><defs><g id='g0'><path d='M0 0h9'/></g>"
            .to_owned();
    for level in 1..12 {
        let before = level - 1;
        let _ = write!(svg, "<g id='g{level}'>{}</g>", format!("<use href='#g{before}'/>").repeat(10));
    }
    svg.push_str("</defs><use href='#g11'/></svg>");
    assert_eq!(parse(&source(&url("image/svg+xml", svg.as_bytes()))).unwrap_err(), too_large);

    let deep = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'>{}{}</svg>",
        "<g>".repeat(900),
        "</g>".repeat(900)
    );
    assert_eq!(parse(&source(&url("image/svg+xml", deep.as_bytes()))).unwrap_err(), too_large);
}

#[test]
fn awkward_shapes_are_set() {
    let texts = [
        "x".repeat(20_000),
        "https://example.org/".to_owned() + &"a/b?c=d&".repeat(200),
        format!("`{}`", "y".repeat(3_000)),
        format!("```rust\n{}\n```", "z".repeat(20_000)),
        format!("|{}\n|{}\n|{}", " h |".repeat(60), "---|".repeat(60), " c |".repeat(60)),
        "| a |\n|---|\n| ".to_owned() + &"w".repeat(4_000) + " |",
        "word *and word* ".repeat(3_000),
        format!("**{}**", "等待".repeat(10_000)),
        format!("# {}", "[x](https://example.org) ".repeat(500)),
        "a[^1] ".repeat(2_000) + "\n\n[^1]: often\n",
        "- \n-\n\n1.\n\n>\n\n# \n\n```\n```\n".to_owned(),
        "999999999. last\n".to_owned(),
        "![](https://example.org/a.png) ![](b.png)\n".to_owned(),
    ];
    for text in texts {
        let head: String = text.chars().take(40).collect();
        pdf(&text).unwrap_or_else(|error| panic!("{error} in {head}"));
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}
