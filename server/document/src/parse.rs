//! Markdown to [`Document`]: every check that does not need fonts happens here.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use comrak::nodes::{ListType, NodeValue, TableAlignment};
use comrak::{Anchorizer, Arena, Node, Options};

use crate::document::{Align, Block, Document, Inline, Item, List, Table, Target, Warning};
use crate::images::{Image, is_data_url, percent_decode};
use crate::language::{Language, ScriptCounts, joins_without_space};
use crate::{DocumentError, MAX_MARKDOWN_BYTES, MAX_NESTING, MAX_PARSE_TIME, MAX_PIXELS, Source};

/// Warnings beyond this many are not kept.
const MAX_WARNINGS: usize = 100;

/// Links to longer addresses are dropped. Typst refuses addresses from 8000 bytes on, and some viewers stop at 2083.
const MAX_URL_BYTES: usize = 2000;

/// Reads and checks a text.
///
/// # Errors
/// All of [`DocumentError`] but `MissingGlyph` and `Typeset`. Length and NUL are looked at first, so both are found at once
/// even in a text of any size; the rest in the order of the text.
pub fn parse(source: &Source<'_>) -> Result<Document, DocumentError> {
    let text = source.markdown;
    if text.len() > MAX_MARKDOWN_BYTES {
        return Err(DocumentError::too_large(text.len()));
    }
    if let Some(at) = text.bytes().position(|b| b == 0) {
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        return Err(DocumentError::ContainsNul {
            line: 1 + before.bytes().filter(|b| *b == b'\n').count(),
            column: 1 + before[line_start..].chars().count(),
        });
    }

    let arena = Arena::new();
    let deadline = Instant::now() + MAX_PARSE_TIME;
    let root = comrak::try_parse_document(&arena, text, &options(), &|| Instant::now() > deadline)
        .map_err(|_| DocumentError::TooSlow { seconds: MAX_PARSE_TIME.as_secs() })?;
    check_nesting(root)?;

    let mut reader = Reader::default();
    reader.collect_anchors(root);
    reader.collect_footnotes(root);
    let title = reader.visible(source.title.split_whitespace().collect::<Vec<_>>().join(" ").as_str(), None);
    reader.scripts = ScriptCounts::default();
    let blocks = reader.blocks(root)?;
    let mut footnotes = Vec::with_capacity(reader.footnote_nodes.len());
    for node in std::mem::take(&mut reader.footnote_nodes) {
        footnotes.push(reader.blocks(node)?);
    }
    if blocks.is_empty() {
        return Err(DocumentError::EmptyText);
    }
    let language = source.lang.and_then(Language::from_tag).unwrap_or_else(|| Language::from_counts(&reader.scripts));
    let mut characters: Vec<_> = reader.characters.into_iter().collect();
    characters.sort_by_key(|&(character, line)| (line, character));
    Ok(Document {
        title,
        language,
        blocks,
        footnotes,
        anchors: reader.anchors,
        images: reader.images,
        characters,
        warnings: reader.warnings,
    })
}

fn options() -> Options<'static> {
    let mut options = Options::default();
    options.extension.strikethrough = true;
    options.extension.table = true;
    options.extension.autolink = true;
    options.extension.tasklist = true;
    options.extension.footnotes = true;
    options.extension.cjk_friendly_emphasis = true;
    options
}

/// Measures depth without recursion; everything after may recurse.
fn check_nesting(root: Node<'_>) -> Result<(), DocumentError> {
    let mut node = root;
    // An item and its list, a cell, its row and its table count as one level each.
    let counts = |node: Node<'_>| {
        usize::from(!matches!(node.data().value, NodeValue::Item(_) | NodeValue::TaskItem(_) | NodeValue::TableRow(_)))
    };
    let mut depth = 0;
    loop {
        if depth > MAX_NESTING {
            return Err(DocumentError::TooDeep { line: line_of(node) });
        }
        if let Some(child) = node.first_child() {
            node = child;
            depth += counts(node);
            continue;
        }
        loop {
            if node.same_node(root) {
                return Ok(());
            }
            if let Some(sibling) = node.next_sibling() {
                depth -= counts(node);
                node = sibling;
                depth += counts(node);
                break;
            }
            depth -= counts(node);
            match node.parent() {
                Some(parent) => node = parent,
                None => return Ok(()),
            }
        }
    }
}

fn line_of(node: Node<'_>) -> usize {
    // Positions of some inlines made up during parsing are zero; their container's is right.
    let mut node = node;
    loop {
        let line = node.data().sourcepos.start.line;
        if line > 0 {
            return line;
        }
        match node.parent() {
            Some(parent) => node = parent,
            None => return 1,
        }
    }
}

#[derive(Default)]
struct Reader<'a> {
    anchors: Vec<String>,
    headings_by_anchor: HashMap<String, usize>,
    n_headings_read: usize,
    footnotes_by_name: HashMap<String, usize>,
    footnote_nodes: Vec<Node<'a>>,
    images: Vec<Arc<Image>>,
    images_by_url: HashMap<String, usize>,
    pixels_used: u64,
    characters: HashMap<char, Option<usize>>,
    scripts: ScriptCounts,
    warnings: Vec<Warning>,
}

impl<'a> Reader<'a> {
    fn collect_anchors(&mut self, root: Node<'a>) {
        let mut anchorizer = Anchorizer::new();
        for node in root.descendants() {
            if matches!(node.data().value, NodeValue::Heading(_)) {
                let anchor = anchorizer.anchorize(&node.collect_text());
                self.headings_by_anchor.insert(anchor.clone(), self.anchors.len());
                self.anchors.push(anchor);
            }
        }
    }

    /// Comrak leaves only footnotes that are referred to, at the end, in the order of first reference.
    fn collect_footnotes(&mut self, root: Node<'a>) {
        for node in root.descendants() {
            if let NodeValue::FootnoteDefinition(definition) = &node.data().value {
                self.footnotes_by_name.insert(definition.name.clone(), self.footnote_nodes.len());
                self.footnote_nodes.push(node);
            }
        }
    }

    fn warn(&mut self, warning: Warning) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        }
    }

    /// Takes note of text that will be seen, and leaves out control characters.
    fn visible(&mut self, text: &str, line: Option<usize>) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut at = line;
        for c in text.chars() {
            if c == '\n' {
                at = at.map(|line| line + 1);
            } else if c.is_control() && c != '\t' {
                continue;
            }
            if !c.is_ascii() {
                let first = self.characters.entry(c).or_insert(at);
                *first = (*first).min(at);
            }
            clean.push(c);
        }
        self.scripts.add(&clean);
        clean
    }

    fn blocks(&mut self, parent: Node<'a>) -> Result<Vec<Block>, DocumentError> {
        let mut blocks = Vec::new();
        for node in parent.children() {
            if let Some(block) = self.block(node)? {
                blocks.push(block);
            }
        }
        Ok(blocks)
    }

    fn block(&mut self, node: Node<'a>) -> Result<Option<Block>, DocumentError> {
        let line = line_of(node);
        let data = node.data();
        Ok(Some(match &data.value {
            NodeValue::Paragraph => match self.inlines(node)? {
                content if content.is_empty() => return Ok(None),
                content => match figure(node, &content) {
                    Some(figure) => figure,
                    None => Block::Paragraph(content),
                },
            },
            NodeValue::Heading(heading) => {
                let index = self.n_headings_read;
                self.n_headings_read += 1;
                Block::Heading { level: heading.level.clamp(1, 6), index, content: self.inlines(node)? }
            }
            NodeValue::BlockQuote => Block::Quote(self.blocks(node)?),
            NodeValue::List(list) => {
                let start = (list.list_type == ListType::Ordered).then_some(list.start);
                let tight = list.tight;
                let mut items = Vec::new();
                for child in node.children() {
                    let task = match &child.data().value {
                        NodeValue::TaskItem(task) => Some(task.symbol.is_some()),
                        _ => None,
                    };
                    items.push(Item { task, blocks: self.blocks(child)? });
                }
                Block::List(List { start, tight, items })
            }
            NodeValue::CodeBlock(code) => {
                let lang = code.info.split([' ', ',', '{', '\t']).next().unwrap_or_default();
                let lang = if lang.len() <= 32 { self.plain(lang) } else { String::new() };
                let first_line = line + usize::from(code.fenced);
                Block::Code { lang, text: self.visible(code.literal.trim_end_matches('\n'), Some(first_line)) }
            }
            NodeValue::HtmlBlock(html) => {
                let literal = html.literal.trim();
                if is_comment(literal) {
                    return Ok(None);
                }
                self.warn(Warning::HtmlShownAsText { line });
                Block::Code { lang: String::new(), text: self.visible(literal, Some(line)) }
            }
            NodeValue::ThematicBreak => Block::Rule,
            NodeValue::Table(table) => {
                let columns: Vec<Align> = table
                    .alignments
                    .iter()
                    .map(|alignment| match alignment {
                        TableAlignment::None => Align::Auto,
                        TableAlignment::Left => Align::Left,
                        TableAlignment::Center => Align::Center,
                        TableAlignment::Right => Align::Right,
                    })
                    .collect();
                let mut header = Vec::new();
                let mut rows = Vec::new();
                for row in node.children() {
                    let mut cells = Vec::with_capacity(columns.len());
                    for cell in row.children() {
                        cells.push(self.inlines(cell)?);
                    }
                    cells.resize(columns.len(), Vec::new());
                    if matches!(row.data().value, NodeValue::TableRow(true)) {
                        header = cells
                    } else {
                        rows.push(cells)
                    }
                }
                Block::Table(Table { columns, header, rows })
            }
            // Read apart, in `collect_footnotes`.
            NodeValue::FootnoteDefinition(_) => return Ok(None),
            // Only extensions that are off make other blocks.
            _ => Block::Paragraph(vec![Inline::Text(self.visible(&node.collect_text(), Some(line)))]),
        }))
    }

    fn plain(&self, text: &str) -> String {
        text.chars().filter(|c| !c.is_control()).collect()
    }

    fn inlines(&mut self, parent: Node<'a>) -> Result<Vec<Inline>, DocumentError> {
        let mut content = Vec::new();
        for node in parent.children() {
            self.inline(node, &mut content)?;
        }
        Ok(content)
    }

    fn inline(&mut self, node: Node<'a>, out: &mut Vec<Inline>) -> Result<(), DocumentError> {
        let line = line_of(node);
        let data = node.data();
        match &data.value {
            NodeValue::Text(text) => {
                let text = self.visible(text, Some(line));
                push_text(out, &text);
            }
            NodeValue::SoftBreak => {
                let before = node.previous_sibling().and_then(|n| edge(n, true));
                let after = node.next_sibling().and_then(|n| edge(n, false));
                let joined =
                    matches!((before, after), (Some(a), Some(b)) if joins_without_space(a) && joins_without_space(b));
                if !joined {
                    push_text(out, " ");
                }
            }
            NodeValue::LineBreak => out.push(Inline::Break),
            NodeValue::Code(code) => out.push(Inline::Code(self.visible(&code.literal, Some(line)))),
            NodeValue::HtmlInline(html) => {
                if is_line_break(html) {
                    out.push(Inline::Break);
                } else if !is_comment(html) {
                    self.warn(Warning::HtmlShownAsText { line });
                    out.push(Inline::Code(self.visible(html, Some(line))));
                }
            }
            NodeValue::Emph => out.push(Inline::Emph(self.inlines(node)?)),
            NodeValue::Strong => out.push(Inline::Strong(self.inlines(node)?)),
            NodeValue::Strikethrough => out.push(Inline::Strike(self.inlines(node)?)),
            NodeValue::Link(link) => {
                let content = self.inlines(node)?;
                match self.target(&link.url) {
                    // A link within a link's text cannot be written in HTML; Markdown rules it out except by autolinks.
                    Some(target) if !content.is_empty() => out.push(Inline::Link { target, content }),
                    Some(_) => {}
                    None => {
                        self.warn(Warning::LinkDropped { line });
                        out.extend(content);
                    }
                }
            }
            NodeValue::Image(link) => {
                let alt = node.collect_text();
                if is_data_url(&link.url) {
                    let image = self.image(&link.url, line)?;
                    out.push(Inline::Image { image, alt: self.plain(&alt) });
                } else {
                    self.warn(Warning::ImageNotFetched { line });
                    let label = [alt.as_str(), link.title.as_str(), link.url.as_str()]
                        .into_iter()
                        .map(str::trim)
                        .find(|label| !label.is_empty())
                        .map(shortened)
                        .unwrap_or_default();
                    let label = self.visible(&label, Some(line));
                    let target = self.target(&link.url).filter(|_| !inside_link(node));
                    out.push(Inline::Absent { label, target });
                }
            }
            NodeValue::FootnoteReference(reference) => {
                if let Some(&index) = self.footnotes_by_name.get(&reference.name) {
                    out.push(Inline::Footnote { index });
                }
            }
            // Only extensions that are off make other inlines.
            _ => {
                let text = self.visible(&node.collect_text(), Some(line));
                push_text(out, &text);
            }
        }
        Ok(())
    }

    fn image(&mut self, url: &str, line: usize) -> Result<usize, DocumentError> {
        if let Some(&image) = self.images_by_url.get(url) {
            return Ok(image);
        }
        let mut budget = MAX_PIXELS - self.pixels_used;
        let image =
            Image::from_data_url(url, &mut budget).map_err(|reason| DocumentError::BrokenImage { line, reason })?;
        self.pixels_used = MAX_PIXELS - budget;
        self.images.push(Arc::new(image));
        self.images_by_url.insert(url.to_owned(), self.images.len() - 1);
        Ok(self.images.len() - 1)
    }

    fn target(&self, url: &str) -> Option<Target> {
        let url = url.trim();
        if let Some(fragment) = url.strip_prefix('#') {
            let decoded = percent_decode(fragment).and_then(|bytes| String::from_utf8(bytes).ok());
            let anchor = decoded.map_or(Cow::Borrowed(fragment), Cow::Owned);
            return self.headings_by_anchor.get(anchor.as_ref()).copied().map(Target::Heading);
        }
        let allowed = ["http://", "https://", "mailto:"].iter().any(|scheme| {
            url.len() > scheme.len() && url.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme))
        });
        let printable = !url.chars().any(char::is_control);
        (allowed && printable && url.len() <= MAX_URL_BYTES).then(|| Target::Url(url.to_owned()))
    }
}

/// The one image of a paragraph that holds nothing else.
fn figure(paragraph: Node<'_>, content: &[Inline]) -> Option<Block> {
    let [Inline::Image { image, alt }] = content else { return None };
    let child = paragraph.first_child()?;
    let caption = match &child.data().value {
        NodeValue::Image(link) => link.title.clone(),
        _ => String::new(),
    };
    Some(Block::Figure { image: *image, alt: alt.clone(), caption })
}

fn inside_link(node: Node<'_>) -> bool {
    node.ancestors().skip(1).any(|ancestor| matches!(ancestor.data().value, NodeValue::Link(_)))
}

fn push_text(out: &mut Vec<Inline>, text: &str) {
    if text.is_empty() {
        return;
    }
    match out.last_mut() {
        Some(Inline::Text(last)) => last.push_str(text),
        _ => out.push(Inline::Text(text.to_owned())),
    }
}

/// The first or last character that a node shows, if it is text.
fn edge(node: Node<'_>, last: bool) -> Option<char> {
    let mut node = node;
    loop {
        match &node.data().value {
            NodeValue::Text(text) => return if last { text.chars().next_back() } else { text.chars().next() },
            NodeValue::Code(code) => {
                return if last { code.literal.chars().next_back() } else { code.literal.chars().next() };
            }
            _ => {}
        }
        let child = if last { node.last_child() } else { node.first_child() };
        node = child?;
    }
}

fn is_comment(html: &str) -> bool {
    html.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")).is_some_and(|body| !body.contains("-->"))
}

fn is_line_break(html: &str) -> bool {
    let html = html.trim_start_matches('<').trim_end_matches('>').trim_end_matches('/').trim();
    html.eq_ignore_ascii_case("br")
}

fn shortened(label: &str) -> String {
    const LONGEST: usize = 200;
    match label.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.to_owned(),
    }
}
