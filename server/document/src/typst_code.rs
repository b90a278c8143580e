//! [`Document`] to Typst code.
//!
//! Everything written here is fixed code and numbers, except what [`Writer::literal`] writes: a string literal, in which Typst gives
//! meaning only to the backslash and the quotation mark, both escaped. So no text of a user is ever read as code or markup.

use std::fmt::Write;

use crate::document::{Align, Block, Document, Inline, Item, List, Table, Target};
use crate::images::Kind;

/// Containers are no longer indented below this depth; there would be no room for text, and Typst limits recursion.
const MAX_INDENTED: usize = 12;

/// Emphasis has no further effect below this depth.
const MAX_STYLED: usize = 12;

/// Wider tables are printed as lines of text.
const MAX_COLUMNS: usize = 40;

/// Inline code up to this many characters gets a background; longer code must be able to break across lines.
const MAX_BOXED: usize = 40;

/// Longer paragraphs are set as several: the time Typst takes for one grows with the square of what is in it.
/// Counted in parts (each piece of text, link and so on), thirty bytes of text counting as one more.
const MAX_PARAGRAPH: usize = 300;

/// Footnotes first referred to within footnotes within footnotes are set at the end.
const MAX_NOTES_WITHIN: usize = 3;

/// Code blocks up to this size are coloured; all together up to `MAX_COLOURED_TOTAL`. Colouring is slow compared with the rest.
const MAX_COLOURED: usize = 20_000;
const MAX_COLOURED_TOTAL: usize = 400_000;
const MAX_COLOURED_LINE: usize = 500;

/// What the main file must know about fonts.
pub(crate) struct FontLists {
    pub(crate) serif: Vec<String>,
    pub(crate) sans: Vec<String>,
    pub(crate) mono: Vec<String>,
}

/// Path of an image in Typst's virtual file system.
pub(crate) fn image_path(index: usize, kind: Kind) -> String {
    format!("/image-{index}.{}", kind.extension())
}

pub(crate) fn write(document: &Document, fonts: &FontLists) -> String {
    let mut writer = Writer {
        document,
        out: String::new(),
        footnote_written: vec![false; document.footnotes.len()],
        coloured: 0,
        indented: 0,
        styled: 0,
        in_table: false,
        notes_within: 0,
    };
    writer.main(fonts);
    writer.out
}

struct Writer<'a> {
    document: &'a Document,
    out: String,
    footnote_written: Vec<bool>,
    /// Bytes of code coloured so far.
    coloured: usize,
    indented: usize,
    styled: usize,
    in_table: bool,
    /// How many footnotes enclose what is being written.
    notes_within: usize,
}

impl<'a> Writer<'a> {
    fn push(&mut self, code: &str) {
        self.out.push_str(code);
    }

    /// Writes a string literal. The only way for text to get into the code.
    fn literal(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                '\t' => self.out.push_str("\\t"),
                // Line ends of other kinds would be normalised by Typst's reader.
                '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(self.out, "\\u{{{:x}}}", u32::from(c));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn families(&mut self, name: &str, families: &[String], latin_apart: bool) {
        let _ = write!(self.out, "{name}: (");
        for (nth, family) in families.iter().enumerate() {
            // In a Chinese text the quotation marks, dashes and dots that Latin fonts have too are to be full-width.
            if nth == 0 && latin_apart {
                self.push("(name: ");
                self.literal(family);
                self.push(", covers: \"latin-in-cjk\"), ");
            } else {
                self.literal(family);
                self.push(", ");
            }
        }
        self.push("), ");
    }

    fn main(&mut self, fonts: &FontLists) {
        let document = self.document;
        let language = &document.language;
        let cjk = language.is_cjk();
        self.push("#import \"/template.typ\": *\n#show: page-design.with(title: ");
        self.literal(&document.title);
        self.push(", lang: ");
        self.literal(&language.lang);
        self.push(", region: ");
        match &language.region {
            Some(region) => self.literal(region),
            None => self.push("none"),
        }
        let _ = write!(self.out, ", cjk: {cjk}, ");
        let latin_apart = cjk && language.lang != "ko";
        self.families("serif", &fonts.serif, latin_apart && fonts.serif.len() > 1);
        self.families("sans", &fonts.sans, latin_apart && fonts.sans.len() > 1);
        self.families("mono", &fonts.mono, false);
        self.push(")\n#{\n");
        if !document.title.is_empty() && !document.opens_with_title() {
            self.push("document-title(");
            self.literal(&document.title);
            self.push(")\n");
        }
        self.blocks(&document.blocks);
        for index in 0..document.footnotes.len() {
            if self.footnote_written.get(index) == Some(&false) {
                self.push("par(");
                self.footnote(index);
                self.push(")\n");
            }
        }
        self.push("}\n");
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.block(block);
        }
    }

    /// A code block holding the blocks; never empty.
    fn body(&mut self, blocks: &[Block]) {
        self.push("{\n");
        self.blocks(blocks);
        self.push("[] }");
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Heading { index, content, .. } if weight(content) > MAX_PARAGRAPH => {
                self.push("[#block(");
                self.content(content);
                let _ = writeln!(self.out, ")<h{index}>]");
            }
            Block::Heading { level, index, content } => {
                let _ = write!(self.out, "[#heading(level: {level}, ");
                self.content(content);
                let _ = writeln!(self.out, ")<h{index}>]");
            }
            Block::Paragraph(content) => {
                self.push(if weight(content) > MAX_PARAGRAPH { "block(" } else { "par(" });
                self.content(content);
                self.push(")\n");
            }
            Block::Figure { image, alt, caption } => {
                self.push("picture(");
                self.image(*image);
                if !alt.is_empty() {
                    self.push(", alt: ");
                    self.literal(alt);
                }
                if !caption.is_empty() {
                    self.push(", caption: ");
                    self.literal(caption);
                }
                self.push(")\n");
            }
            Block::Quote(blocks) if self.indented >= MAX_INDENTED => self.blocks(blocks),
            Block::Quote(blocks) => {
                self.indented += 1;
                self.push("quotation(");
                self.body(blocks);
                self.push(")\n");
                self.indented -= 1;
            }
            Block::List(list) if self.indented >= MAX_INDENTED => {
                for item in &list.items {
                    self.blocks(&item.blocks);
                }
            }
            Block::List(list) => {
                self.indented += 1;
                self.list(list);
                self.indented -= 1;
            }
            Block::Code { lang, text } => self.code(lang, text),
            Block::Table(table) if table.columns.len() > MAX_COLUMNS => self.wide_table(table),
            Block::Table(table) => self.table(table),
            Block::Rule => self.push("divider\n"),
        }
    }

    fn list(&mut self, list: &List) {
        if list.items.iter().any(|item| item.task.is_some()) {
            let _ = write!(self.out, "task-list(tight: {}, ", list.tight);
            let mut number = list.start;
            for item in &list.items {
                match (item.task, number) {
                    (Some(done), _) => {
                        let _ = write!(self.out, "checkbox({done}), ");
                    }
                    (None, Some(number)) => {
                        let _ = write!(self.out, "\"{number}.\", ");
                    }
                    (None, None) => self.push("\"•\", "),
                }
                number = number.map(|n| n.saturating_add(1));
                self.item(item, list.tight);
                self.push(", ");
            }
            self.push(")\n");
            return;
        }
        let _ = match list.start {
            Some(start) => write!(self.out, "enum(start: {start}, tight: {}, ", list.tight),
            None => write!(self.out, "list(tight: {}, ", list.tight),
        };
        for item in &list.items {
            self.item(item, list.tight);
            self.push(", ");
        }
        self.push(")\n");
    }

    fn item(&mut self, item: &Item, tight: bool) {
        self.push("{\n");
        for block in &item.blocks {
            match block {
                Block::Paragraph(content) if tight => {
                    self.content(content);
                    self.push("\n");
                }
                block => self.block(block),
            }
        }
        self.push("[] }");
    }

    fn code(&mut self, lang: &str, text: &str) {
        let colour = !lang.is_empty()
            && text.len() <= MAX_COLOURED
            && self.coloured + text.len() <= MAX_COLOURED_TOTAL
            && text.lines().all(|line| line.len() <= MAX_COLOURED_LINE);
        self.push("code-block(");
        if colour {
            self.coloured += text.len();
            self.push("lang: ");
            self.literal(&lang.to_ascii_lowercase());
            self.push(", ");
        }
        self.literal(&breakable(text, 60));
        self.push(")\n");
    }

    fn table(&mut self, table: &Table) {
        self.in_table = true;
        self.push("data-table(align: (");
        for align in &table.columns {
            self.push(match align {
                Align::Auto | Align::Left => "left, ",
                Align::Center => "center, ",
                Align::Right => "right, ",
            });
        }
        self.push("), ");
        match table.columns.len() {
            0..=6 => {}
            7..=10 => self.push("size: 0.8em, "),
            11..=16 => self.push("size: 0.65em, "),
            _ => self.push("size: 0.5em, "),
        }
        // A header is repeated on each page, and a footnote in it must not be.
        if table.header.iter().any(|cell| has_footnote(cell)) {
            self.push("repeat: false, ");
        }
        self.push("(");
        for cell in &table.header {
            self.content(cell);
            self.push(", ");
        }
        self.push("), ");
        for cell in table.rows.iter().flatten() {
            self.content(cell);
            self.push(", ");
        }
        self.push(")\n");
        self.in_table = false;
    }

    fn wide_table(&mut self, table: &Table) {
        for row in std::iter::once(&table.header).chain(&table.rows) {
            self.push("par({ ");
            for (nth, cell) in row.iter().enumerate() {
                if nth > 0 {
                    self.push("\" | \"; ");
                }
                self.inlines(cell);
            }
            self.push("[] })\n");
        }
    }

    /// A code block holding the inlines; never empty.
    fn content(&mut self, content: &[Inline]) {
        self.push("{ ");
        if weight(content) > MAX_PARAGRAPH {
            self.push("set par(spacing: par-leading); ");
            for piece in split(content) {
                self.push("par({ ");
                self.inlines(&piece);
                self.push("[] }); ");
            }
        } else {
            self.inlines(content);
        }
        self.push("[] }");
    }

    fn inlines(&mut self, content: &[Inline]) {
        for inline in content {
            self.inline(inline);
            self.push("; ");
        }
    }

    fn styled(&mut self, function: &str, content: &[Inline]) {
        if self.styled >= MAX_STYLED {
            self.content(content);
            return;
        }
        self.styled += 1;
        self.push(function);
        self.push("(");
        self.content(content);
        self.push(")");
        self.styled -= 1;
    }

    fn inline(&mut self, inline: &Inline) {
        match inline {
            Inline::Text(text) => {
                let text = breakable(text, if self.in_table { 16 } else { 50 });
                self.literal(&text);
            }
            Inline::Code(code) => {
                let short = code.chars().count() <= if self.in_table { 12 } else { MAX_BOXED };
                self.push(if short { "inline-code(" } else { "long-inline-code(" });
                let code = code.replace('\n', " ");
                if short {
                    self.literal(&code);
                } else {
                    self.literal(&breakable(&code, if self.in_table { 12 } else { 40 }));
                }
                self.push(")");
            }
            Inline::Break => self.push("linebreak()"),
            Inline::Emph(content) => self.styled("emph", content),
            Inline::Strong(content) => self.styled("strong", content),
            Inline::Strike(content) => self.styled("strike", content),
            Inline::Link { target, content } => {
                self.target(target);
                self.content(content);
                self.push(")");
            }
            Inline::Image { image, alt } => {
                self.push("inline-picture(");
                self.image(*image);
                if !alt.is_empty() {
                    self.push(", alt: ");
                    self.literal(alt);
                }
                self.push(")");
            }
            Inline::Absent { label, target } => {
                if let Some(target) = target {
                    self.target(target);
                }
                let short = label.chars().count() <= if self.in_table { 12 } else { MAX_BOXED };
                self.push(if short { "absent(" } else { "long-absent(" });
                self.literal(&breakable(label, 30));
                self.push(if target.is_some() { "))" } else { ")" });
            }
            Inline::Footnote { index } => self.footnote(*index),
        }
    }

    fn image(&mut self, index: usize) {
        let kind = self.document.images.get(index).map_or(Kind::Png, |image| image.kind);
        self.literal(&image_path(index, kind));
    }

    /// Opens a link; the caller writes its body and closes the parenthesis.
    fn target(&mut self, target: &Target) {
        match target {
            Target::Url(url) => {
                self.push("link(");
                self.literal(url);
                self.push(", ");
            }
            Target::Heading(index) => {
                let _ = write!(self.out, "link(label(\"h{index}\"), ");
            }
        }
    }

    /// The first reference carries the note, later ones point to it, also those within the note itself.
    /// Numbers are those of the HTML and written out, so that Typst need not count.
    fn footnote(&mut self, index: usize) {
        let document = self.document;
        let (Some(written), Some(blocks)) = (self.footnote_written.get_mut(index), document.footnotes.get(index))
        else {
            return;
        };
        let number = index + 1;
        if !*written && self.notes_within < MAX_NOTES_WITHIN {
            *written = true;
            // A note is set apart from what refers to it, so its nesting starts anew.
            let outside = (self.indented, self.styled, self.in_table);
            (self.indented, self.styled, self.in_table) = (MAX_INDENTED / 2, MAX_STYLED / 2, false);
            self.notes_within += 1;
            let _ = write!(self.out, "[#note(\"{number}\", ");
            match blocks.as_slice() {
                [Block::Paragraph(content)] => self.content(content),
                blocks => self.body(blocks),
            }
            let _ = write!(self.out, ")<f{index}>]");
            self.notes_within -= 1;
            (self.indented, self.styled, self.in_table) = outside;
        } else {
            let _ = write!(self.out, "note-again(\"f{index}\", \"{number}\")");
        }
    }
}

fn has_footnote(content: &[Inline]) -> bool {
    content.iter().any(|inline| match inline {
        Inline::Footnote { .. } => true,
        Inline::Emph(content) | Inline::Strong(content) | Inline::Strike(content) | Inline::Link { content, .. } => {
            has_footnote(content)
        }
        _ => false,
    })
}

/// Work that the inlines mean for a paragraph; see [`MAX_PARAGRAPH`].
fn weight(content: &[Inline]) -> usize {
    content
        .iter()
        .map(|inline| match inline {
            Inline::Text(text) | Inline::Code(text) => 1 + text.len() / 30,
            Inline::Emph(content)
            | Inline::Strong(content)
            | Inline::Strike(content)
            | Inline::Link { content, .. } => 1 + weight(content),
            _ => 1,
        })
        .sum()
}

/// Pieces of at most [`MAX_PARAGRAPH`], or little more.
fn split(content: &[Inline]) -> Vec<Vec<Inline>> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut room = MAX_PARAGRAPH;
    for inline in content {
        for part in split_inline(inline) {
            let size = weight(std::slice::from_ref(&part));
            if size > room && !piece.is_empty() {
                pieces.push(std::mem::take(&mut piece));
                room = MAX_PARAGRAPH;
            }
            room = room.saturating_sub(size);
            piece.push(part);
        }
    }
    pieces.push(piece);
    pieces
}

/// The inline itself unless it alone is too long.
fn split_inline(inline: &Inline) -> Vec<Inline> {
    if weight(std::slice::from_ref(inline)) <= MAX_PARAGRAPH {
        return vec![inline.clone()];
    }
    let wrap =
        |content: &[Inline], with: &dyn Fn(Vec<Inline>) -> Inline| split(content).into_iter().map(with).collect();
    match inline {
        Inline::Text(text) => split_text(text).map(|part| Inline::Text(part.to_owned())).collect(),
        Inline::Code(text) => split_text(text).map(|part| Inline::Code(part.to_owned())).collect(),
        Inline::Emph(content) => wrap(content, &Inline::Emph),
        Inline::Strong(content) => wrap(content, &Inline::Strong),
        Inline::Strike(content) => wrap(content, &Inline::Strike),
        Inline::Link { target, content } => wrap(content, &|content| Inline::Link { target: target.clone(), content }),
        inline => vec![inline.clone()],
    }
}

/// Parts of about three thousand bytes, ending after a blank where there is one.
fn split_text(text: &str) -> impl Iterator<Item = &str> {
    const PART: usize = 3_000;
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.floor_char_boundary(PART);
        if end < rest.len() {
            end = rest[..end].rfind(' ').map_or(end, |blank| blank + 1);
        }
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}

/// Lets words longer than `longest` break: after a joint such as `_` or `/`, or else anywhere, by a zero-width space.
/// Words that Typst can break by itself (Han, or anything with a hyphen) are left alone unless they are that long between joints.
fn breakable(text: &str, longest: usize) -> String {
    const ZERO_WIDTH_SPACE: char = '\u{200B}';
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(char::is_whitespace) {
        if piece.len() <= longest || piece.chars().count() <= longest {
            out.push_str(piece);
            continue;
        }
        let mut run = 0;
        for c in piece.chars() {
            if c > '\u{2E80}' {
                run = 0;
                out.push(c);
                continue;
            }
            // Never before a combining mark or another zero-width character.
            let joins = matches!(c, '\u{300}'..='\u{36F}' | '\u{200B}'..='\u{200F}' | '\u{FE00}'..='\u{FE0F}')
                || c.is_whitespace();
            if run >= longest && !joins {
                out.push(ZERO_WIDTH_SPACE);
                run = 0;
            }
            out.push(c);
            run += 1;
            if run >= longest / 3 && matches!(c, '_' | '/' | '.' | ':' | ',' | ';' | '=' | '&' | '?' | ')' | '(') {
                out.push(ZERO_WIDTH_SPACE);
                run = 0;
            }
        }
    }
    out
}
