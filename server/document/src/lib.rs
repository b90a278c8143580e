//! Markdown in, PDF or one self-contained HTML file out.
//!
//! Pure functions: no queue, no network, no clock. The same text and the same fonts give the same bytes.
//!
//! Two steps, so that a job can report them as stages: [`parse`] checks everything that can be wrong with the text, then
//! [`Document::to_html`] or [`Document::to_pdf`] renders it. [`html`] and [`pdf`] do both.
//!
//! # What is understood
//! GitHub-flavoured Markdown: headings, nested and task lists, tables, code, quotes, strikethrough, bare addresses, footnotes.
//! - **Links** are kept for `http`, `https`, `mailto` and `#heading`; any other address becomes plain text.
//! - **Images** come only from `data:` addresses (PNG, JPEG, GIF, WebP, SVG). Any other image is never fetched: its alternative text
//!   is shown in a quiet box, as a link where the address is `http(s)`.
//! - **Raw HTML** is never passed through. It is shown as literal text in both formats, so that nothing silently goes missing;
//!   two exceptions: `<br>` breaks the line and a comment is left out.
//! - **Control characters** other than line feed and tab are left out; NUL is refused.
//! - **Typst syntax** has no meaning: text reaches Typst only inside string literals.
//!
//! What was changed on the way is told in [`Rendered::warnings`].
#![warn(clippy::unwrap_used, clippy::expect_used)]

mod document;
mod error;
mod fonts;
mod html;
mod images;
mod language;
mod parse;
mod pdf;
mod typst_code;

use std::time::Duration;

pub use crate::document::{Document, Rendered, Warning};
pub use crate::error::{DocumentError, ImageFault};
pub use crate::fonts::Fonts;
pub use crate::parse::parse;

/// Longest Markdown that is accepted, images included. 4 MiB of prose is more than a thousand pages.
pub const MAX_MARKDOWN_BYTES: usize = 4 * 1024 * 1024;

/// Largest single image once its `data:` address is decoded.
pub const MAX_IMAGE_BYTES: usize = 8 * 1024 * 1024;

/// Most pixels in all raster images of a document together. They are held decoded, at four bytes each, while the PDF is made.
pub const MAX_PIXELS: u64 = 50_000_000;

/// Deepest nesting of quotes, lists and emphasis that is accepted. A PDF stops indenting long before.
pub const MAX_NESTING: usize = 64;

/// When reading the Markdown is given up. Ordinary text of the greatest length takes a few seconds even unoptimised.
pub const MAX_PARSE_TIME: Duration = Duration::from_secs(20);

/// A text and what to call it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Source<'a> {
    /// Title of the document: the PDF's metadata and running head, the HTML's `<title>`.
    /// Also printed above the text unless that opens with a heading of its own. May be empty.
    pub title: &'a str,
    /// The Markdown.
    pub markdown: &'a str,
    /// Language tag such as `en`, `zh-CN` or `zh-Hant`; decides the shapes of Han characters and the quotation marks' widths.
    /// `None` or anything that is not a tag: judged by the script of the text.
    pub lang: Option<&'a str>,
}

/// One HTML file that needs nothing else: style and images are inside, scripts and outside resources are forbidden by its own policy.
///
/// # Errors
/// Those of [`parse`].
pub fn html(source: &Source<'_>) -> Result<Rendered, DocumentError> {
    Ok(parse(source)?.to_html())
}

/// One PDF, set by Typst on A4.
///
/// # Errors
/// Those of [`parse`] and of [`Document::to_pdf`].
pub fn pdf(source: &Source<'_>, fonts: &Fonts) -> Result<Rendered, DocumentError> {
    parse(source)?.to_pdf(fonts)
}
