//! The checked document between reading and rendering: a tree without anything the two formats would have to refuse.

use std::fmt;
use std::sync::Arc;

use crate::images::Image;
use crate::language::Language;
use crate::{DocumentError, Fonts};

/// A document that was read and checked. Made by [`parse`](crate::parse).
#[derive(Clone)]
pub struct Document {
    pub(crate) title: String,
    pub(crate) language: Language,
    pub(crate) blocks: Vec<Block>,
    /// Footnotes in the order of their first reference.
    pub(crate) footnotes: Vec<Vec<Block>>,
    /// Anchor of each heading, in order; unique.
    pub(crate) anchors: Vec<String>,
    pub(crate) images: Vec<Arc<Image>>,
    /// Each character of the visible text beyond ASCII with the line it is first seen in, by line; `None` is the title.
    pub(crate) characters: Vec<(char, Option<usize>)>,
    pub(crate) warnings: Vec<Warning>,
}

impl Document {
    /// The title as it will be shown, blanks at its ends removed.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Language tag in use, given or judged: `en`, `zh-CN` and so on.
    #[must_use]
    pub fn lang(&self) -> String {
        self.language.tag()
    }

    /// What was changed on the way in.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Renders one self-contained HTML file.
    #[must_use]
    pub fn to_html(&self) -> Rendered {
        let bytes = crate::html::write(self).into_bytes();
        Rendered { bytes, pages: None, warnings: self.warnings.clone() }
    }

    /// Renders a PDF. Takes seconds for hundreds of pages, on threads of its own; call it where blocking is allowed.
    ///
    /// # Errors
    /// [`DocumentError::MissingGlyph`] when no font has a character of the text, before anything is laid out;
    /// [`DocumentError::Typeset`] when Typst fails.
    pub fn to_pdf(&self, fonts: &Fonts) -> Result<Rendered, DocumentError> {
        crate::pdf::write(self, fonts)
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("title", &self.title)
            .field("blocks", &self.blocks.len())
            .finish_non_exhaustive()
    }
}

/// A finished file.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rendered {
    /// The file's content.
    pub bytes: Vec<u8>,
    /// Number of pages; `None` for HTML.
    pub pages: Option<u32>,
    /// What was changed on the way, in the order of the text; at most a hundred.
    pub warnings: Vec<Warning>,
}

impl fmt::Debug for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendered")
            .field("bytes", &self.bytes.len())
            .field("pages", &self.pages)
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// Something in the text that is shown differently from how it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A remote or relative image: only its alternative text is shown.
    ImageNotFetched {
        /// Line in the Markdown, from 1.
        line: usize,
    },
    /// A link whose address is not allowed or leads nowhere: only its text is shown.
    LinkDropped {
        /// Line in the Markdown, from 1.
        line: usize,
    },
    /// Raw HTML, shown as literal text.
    HtmlShownAsText {
        /// Line in the Markdown, from 1.
        line: usize,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum Block {
    Heading {
        level: u8,
        index: usize,
        content: Vec<Inline>,
    },
    Paragraph(Vec<Inline>),
    /// A paragraph of nothing but one image.
    Figure {
        image: usize,
        alt: String,
        caption: String,
    },
    Quote(Vec<Block>),
    List(List),
    Code {
        lang: String,
        text: String,
    },
    Table(Table),
    Rule,
}

#[derive(Debug, Clone)]
pub(crate) struct List {
    /// First number of an ordered list.
    pub(crate) start: Option<usize>,
    /// Items stand close together: their paragraphs are not set apart.
    pub(crate) tight: bool,
    pub(crate) items: Vec<Item>,
}

#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Whether a task is done; `None` for an ordinary item.
    pub(crate) task: Option<bool>,
    pub(crate) blocks: Vec<Block>,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// One per column; every row has this many cells.
    pub(crate) columns: Vec<Align>,
    pub(crate) header: Vec<Vec<Inline>>,
    pub(crate) rows: Vec<Vec<Vec<Inline>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Auto,
    Left,
    Center,
    Right,
}

#[derive(Debug, Clone)]
pub(crate) enum Inline {
    Text(String),
    Code(String),
    Break,
    Emph(Vec<Inline>),
    Strong(Vec<Inline>),
    Strike(Vec<Inline>),
    Link {
        target: Target,
        content: Vec<Inline>,
    },
    Image {
        image: usize,
        alt: String,
    },
    /// An image that is not fetched.
    Absent {
        label: String,
        target: Option<Target>,
    },
    Footnote {
        index: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Begins with `http:`, `https:` or `mailto:`.
    Url(String),
    /// Index of a heading.
    Heading(usize),
}

impl Document {
    /// Whether the text begins with a heading of its own, so that the title need not be printed above it.
    pub(crate) fn opens_with_title(&self) -> bool {
        matches!(self.blocks.first(), Some(Block::Heading { level: 1, .. }))
    }
}
