use jobdeck_document::{Fonts, Source, Warning, parse};

use crate::support::{body, fixture, html, pdf, pipe, text_of};

#[test]
fn pdf_of_the_english_fixture_reads_as_it_was_written() {
    let rendered = pdf(&fixture("english.md")).unwrap();
    let text = text_of(&rendered.bytes);
    for sentence in [
        "The cost of waiting",
        "Notes on background jobs, gathered over one spring",
        "at once, because the first request looked lost;",
        "A progress bar is a promise.",
        "Renews the lease, or reports that somebody else holds the job by now.",
        "711 8.7 s 2 min 22 %",
        "The ninety-ninth percentile moved from eleven minutes to under two",
        "Median wait by hour of the day, in seconds",
        "queued running done",
        "café, naïve and Ångström",
        "1/3",
    ] {
        assert!(text.contains(sentence), "{sentence:?} is missing in:\n{text}");
    }
    assert_eq!(rendered.pages, Some(3));
    assert_eq!(rendered.warnings, []);
    // No letter of it is a blank box.
    assert!(!text.contains('\u{FFFD}'));
    let links = String::from_utf8(pipe("pdfinfo", &["-url", "-"], &rendered.bytes)).unwrap();
    assert!(links.contains("https://example.org/data/waiting.csv"), "{links}");
    assert!(links.contains("mailto:notes@example.org"), "{links}");
}

#[test]
fn pdf_of_the_chinese_fixture_has_real_han_glyphs() {
    let rendered = pdf(&fixture("chinese.md")).unwrap();
    let text = text_of(&rendered.bytes).replace(' ', "");
    for sentence in [
        "等待的代价",
        "最慢的一次将近十一分钟",
        "进度条是一种承诺",
        "续约；如果任务已经归别人所有，就报告出来。",
        "主要是因为长文档不再挡住短文档",
        "龘、犇、彧、㐂",
        "排队运行完成",
    ] {
        assert!(text.contains(sentence), "{sentence:?} is missing in:\n{text}");
    }
    let fonts = String::from_utf8(pipe("pdffonts", &["-"], &rendered.bytes)).unwrap();
    assert!(fonts.contains("CJK"), "{fonts}");
}

#[test]
fn pdf_carries_the_title_and_no_time() {
    let source = Source { title: "Wait \"and\" see — 等", markdown: "text", lang: None };
    let rendered = jobdeck_document::pdf(&source, Fonts::shared()).unwrap();
    let info = String::from_utf8(pipe("pdfinfo", &["-"], &rendered.bytes)).unwrap();
    assert!(info.contains("Wait \"and\" see — 等"), "{info}");
    assert!(!info.contains("CreationDate"), "{info}");
    assert!(text_of(&rendered.bytes).contains("Wait \"and\" see — 等 text"));
}

#[test]
fn same_text_gives_the_same_bytes() {
    for name in ["english.md", "chinese.md"] {
        let text = fixture(name);
        assert_eq!(pdf(&text).unwrap(), pdf(&text).unwrap(), "{name}");
        assert_eq!(html(&text), html(&text), "{name}");
    }
}

#[test]
fn html_needs_nothing_from_outside() {
    for name in ["english.md", "chinese.md"] {
        let html = html(&fixture(name));
        assert!(html.contains("<meta charset=\"utf-8\">"));
        assert!(html.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:"));
        assert_eq!(html.matches("<img src=\"data:image/").count(), 2);
        assert_eq!(html.matches("src=").count(), 2);
        assert!(!html.contains("<script") && !html.contains("@import") && !html.contains("url("));
    }
    assert!(html(&fixture("chinese.md")).contains("<html lang=\"zh-CN\">"));
}

#[test]
fn markdown_becomes_the_expected_markup() {
    assert_eq!(body("*a* **b** ~~c~~ `d`"), "<p><em>a</em> <strong>b</strong> <del>c</del> <code>d</code></p>\n");
    assert_eq!(
        body("# Über uns\n\n[up](#über-uns)"),
        "<h1 id=\"über-uns\">Über uns</h1>\n<p><a href=\"#über-uns\">up</a></p>\n"
    );
    assert_eq!(body("3. x\n4. y"), "<ol start=\"3\">\n<li>x\n</li>\n<li>y\n</li>\n</ol>\n");
    assert_eq!(body("等待\n任务\nof a\nworker"), "<p>等待任务 of a worker</p>\n");
    assert!(body("x[^1]\n\n[^1]: note").contains("<li id=\"note:1\">\n<p>note <a class=\"back\" href=\"#ref:1:1\""));
}

#[test]
fn only_web_and_mail_addresses_stay_links() {
    let source = fixture("raw-html.md");
    let body = body(&source);
    assert_eq!(body.matches("href=").count(), 2, "{body}");
    assert!(body.contains("<a href=\"https://example.org/\""));
    assert!(body.contains("<a class=\"absent\" href=\"https://example.org/pixel.png\""));
    for address in [
        "JAVASCRIPT:alert(1)",
        "vbscript:x",
        "data:text/html,x",
        "//example.org",
        "file:///etc/passwd",
        "./x.md",
        "#nowhere",
    ] {
        assert_eq!(crate::support::body(&format!("[t](<{address}>)")), "<p>t</p>\n", "{address}");
    }
}

#[test]
fn raw_html_is_shown_as_text_in_both_formats() {
    let text = fixture("raw-html.md");
    let body = body(&text);
    assert!(body.contains("&lt;script&gt;document.title"));
    assert!(body.contains("<code>&lt;b onclick=&quot;alert(1)&quot;&gt;</code>an inline tag"));
    assert!(body.contains("a line<br>\nbreak and a  comment"), "{body}");
    for tag in ["<script", "<b ", "<div style", "<img", "onerror=\"", "A comment of its own"] {
        assert!(!body.contains(tag), "{tag} in {body}");
    }
    let rendered = pdf(&text).unwrap();
    let read = text_of(&rendered.bytes);
    assert!(read.contains("<script>document.title = \"stolen\""), "{read}");
    assert!(read.contains("The last sentence is still here."));
    assert!(rendered.warnings.contains(&Warning::HtmlShownAsText { line: 3 }));
    assert!(rendered.warnings.contains(&Warning::LinkDropped { line: 17 }), "{:?}", rendered.warnings);
    assert!(rendered.warnings.contains(&Warning::ImageNotFetched { line: 22 }), "{:?}", rendered.warnings);
}

#[test]
fn ragged_table_is_made_even() {
    let text = fixture("ragged-table.md");
    let body = body(&text);
    assert_eq!(body.matches("<tr>").count(), 5, "{body}");
    assert_eq!(body.matches("<td").count(), 12, "{body}");
    assert!(body.contains("a | b"));
    assert!(text_of(&pdf(&text).unwrap().bytes).contains("After the table the text goes on."));
}

#[test]
fn language_is_judged_unless_given() {
    let lang = |markdown, lang| parse(&Source { title: "", markdown, lang }).unwrap().lang();
    assert_eq!(lang("等待后台任务", None), "zh-CN");
    assert_eq!(lang("等待后台任务", Some("ja")), "ja");
    assert_eq!(lang("waiting", Some("\"><script>")), "en");
}

#[test]
fn title_is_printed_only_above_a_text_without_one() {
    assert!(html("text").contains("<h1 class=\"title\">A test</h1>"));
    assert!(!html("# My own\n\ntext").contains("<h1 class=\"title\">"));
}
