//! [`Document`] to one self-contained HTML file.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::document::{Align, Block, Document, Inline, Item, Table, Target};

const STYLE: &str = include_str!("html/style.css");

/// No scripts and nothing from outside, whatever the text may contain.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

pub(crate) fn write(document: &Document) -> String {
    let mut page = Page { document, out: String::new(), n_references: vec![0; document.footnotes.len()] };
    let lang = escape(&document.language.tag());
    let title = escape(&document.title);
    page.push("<!doctype html>\n<html lang=\"");
    page.push(&lang);
    page.push("\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"");
    page.push(POLICY);
    page.push("\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push("<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    page.push(&title);
    page.push("</title>\n<style>\n");
    page.push(STYLE);
    page.push("</style>\n</head>\n<body>\n<main>\n");
    if !title.is_empty() && !document.opens_with_title() {
        page.push("<h1 class=\"title\">");
        page.push(&title);
        page.push("</h1>\n");
    }
    page.blocks(&document.blocks);
    page.footnotes();
    page.push("</main>\n</body>\n</html>\n");
    page.out
}

struct Page<'a> {
    document: &'a Document,
    out: String,
    /// How often each footnote was referred to so far; gives each reference an id of its own.
    n_references: Vec<usize>,
}

impl<'a> Page<'a> {
    fn push(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    fn text(&mut self, text: &str) {
        escape_into(&mut self.out, text);
    }

    fn blocks(&mut self, blocks: &'a [Block]) {
        for block in blocks {
            self.block(block);
        }
    }

    fn block(&mut self, block: &'a Block) {
        match block {
            Block::Heading { level, index, content } => {
                let anchor = self.document.anchors.get(*index).map_or("", String::as_str);
                let _ = write!(self.out, "<h{level} id=\"{}\">", escape(anchor));
                self.inlines(content);
                let _ = writeln!(self.out, "</h{level}>");
            }
            Block::Paragraph(content) => self.element("p", content),
            Block::Figure { image, alt, caption } => {
                self.push("<figure>");
                self.image(*image, alt);
                if !caption.is_empty() {
                    self.push("<figcaption>");
                    self.text(caption);
                    self.push("</figcaption>");
                }
                self.push("</figure>\n");
            }
            Block::Quote(blocks) => {
                self.push("<blockquote>\n");
                self.blocks(blocks);
                self.push("</blockquote>\n");
            }
            Block::List(list) => {
                let tag = if list.start.is_some() { "ol" } else { "ul" };
                match list.start {
                    Some(start) if start != 1 => {
                        let _ = writeln!(self.out, "<ol start=\"{start}\">");
                    }
                    _ => {
                        let _ = writeln!(self.out, "<{tag}>");
                    }
                }
                for item in &list.items {
                    self.item(item, list.tight);
                }
                let _ = writeln!(self.out, "</{tag}>");
            }
            Block::Code { lang, text } => {
                self.push("<pre><code");
                if !lang.is_empty() {
                    let _ = write!(self.out, " class=\"language-{}\"", escape(lang));
                }
                self.push(">");
                self.text(text);
                self.push("\n</code></pre>\n");
            }
            Block::Table(table) => self.table(table),
            Block::Rule => self.push("<hr>\n"),
        }
    }

    fn element(&mut self, tag: &str, content: &'a [Inline]) {
        let _ = write!(self.out, "<{tag}>");
        self.inlines(content);
        let _ = writeln!(self.out, "</{tag}>");
    }

    fn item(&mut self, item: &'a Item, tight: bool) {
        match item.task {
            None => self.push("<li>"),
            Some(true) => self.push("<li class=\"task\"><input type=\"checkbox\" disabled checked> "),
            Some(false) => self.push("<li class=\"task\"><input type=\"checkbox\" disabled> "),
        }
        for block in &item.blocks {
            match block {
                Block::Paragraph(content) if tight => {
                    self.inlines(content);
                    self.push("\n");
                }
                block => self.block(block),
            }
        }
        self.push("</li>\n");
    }

    fn table(&mut self, table: &'a Table) {
        // A wide table scrolls in its own box instead of widening the page.
        self.push("<div class=\"table\">\n<table>\n<thead>\n");
        self.row("th", &table.columns, &table.header);
        self.push("</thead>\n");
        if !table.rows.is_empty() {
            self.push("<tbody>\n");
            for row in &table.rows {
                self.row("td", &table.columns, row);
            }
            self.push("</tbody>\n");
        }
        self.push("</table>\n</div>\n");
    }

    fn row(&mut self, tag: &str, columns: &[Align], cells: &'a [Vec<Inline>]) {
        self.push("<tr>");
        for (cell, align) in cells.iter().zip(columns) {
            let style = match align {
                Align::Auto => "",
                Align::Left => " style=\"text-align:left\"",
                Align::Center => " style=\"text-align:center\"",
                Align::Right => " style=\"text-align:right\"",
            };
            let _ = write!(self.out, "<{tag}{style}>");
            self.inlines(cell);
            let _ = write!(self.out, "</{tag}>");
        }
        self.push("</tr>\n");
    }

    fn inlines(&mut self, content: &'a [Inline]) {
        for inline in content {
            self.inline(inline);
        }
    }

    fn wrapped(&mut self, tag: &str, content: &'a [Inline]) {
        let _ = write!(self.out, "<{tag}>");
        self.inlines(content);
        let _ = write!(self.out, "</{tag}>");
    }

    fn inline(&mut self, inline: &'a Inline) {
        match inline {
            Inline::Text(text) => self.text(text),
            Inline::Code(code) => {
                self.push("<code>");
                self.text(code);
                self.push("</code>");
            }
            Inline::Break => self.push("<br>\n"),
            Inline::Emph(content) => self.wrapped("em", content),
            Inline::Strong(content) => self.wrapped("strong", content),
            Inline::Strike(content) => self.wrapped("del", content),
            Inline::Link { target, content } => {
                self.link_start(target, "");
                self.inlines(content);
                self.push("</a>");
            }
            Inline::Image { image, alt } => self.image(*image, alt),
            Inline::Absent { label, target: Some(target) } => {
                self.link_start(target, "absent");
                self.text(label);
                self.push("</a>");
            }
            Inline::Absent { label, target: None } => {
                self.push("<span class=\"absent\">");
                self.text(label);
                self.push("</span>");
            }
            Inline::Footnote { index } => {
                let number = index + 1;
                let reference = self.n_references.get_mut(*index).map_or(1, |n| {
                    *n += 1;
                    *n
                });
                // A colon cannot occur in a heading's anchor, so these never clash.
                let _ = write!(
                    self.out,
                    "<sup class=\"footnote\"><a href=\"#note:{number}\" id=\"ref:{number}:{reference}\" role=\"doc-noteref\">{number}</a></sup>"
                );
            }
        }
    }

    fn link_start(&mut self, target: &Target, class: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = match target {
            Target::Url(url) => write!(self.out, "<a{class} href=\"{}\" rel=\"noopener noreferrer\">", escape(url)),
            Target::Heading(index) => {
                let anchor = self.document.anchors.get(*index).map_or("", String::as_str);
                write!(self.out, "<a{class} href=\"#{}\">", escape(anchor))
            }
        };
    }

    fn image(&mut self, index: usize, alt: &str) {
        let Some(image) = self.document.images.get(index) else { return };
        let _ = write!(self.out, "<img src=\"data:{};base64,", image.kind.mime());
        STANDARD.encode_string(&*image.bytes, &mut self.out);
        let _ = write!(self.out, "\" alt=\"{}\">", escape(alt));
    }

    fn footnotes(&mut self) {
        if self.document.footnotes.is_empty() {
            return;
        }
        self.push("<section class=\"footnotes\" role=\"doc-endnotes\">\n<ol>\n");
        let document = self.document;
        for (index, blocks) in document.footnotes.iter().enumerate() {
            let number = index + 1;
            let _ = writeln!(self.out, "<li id=\"note:{number}\">");
            let back = format!(
                " <a class=\"back\" href=\"#ref:{number}:1\" role=\"doc-backlink\" aria-label=\"{number}\">↩</a>"
            );
            match blocks.split_last() {
                Some((Block::Paragraph(content), before)) => {
                    self.blocks(before);
                    self.push("<p>");
                    self.inlines(content);
                    self.push(&back);
                    self.push("</p>\n");
                }
                _ => {
                    self.blocks(blocks);
                    let _ = writeln!(self.out, "<p>{back}</p>");
                }
            }
            self.push("</li>\n");
        }
        self.push("</ol>\n</section>\n");
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape_into(&mut out, text);
    out
}

fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}
