//! What can be wrong with a document, named so that a caller can explain it.

use crate::MAX_MARKDOWN_BYTES;

/// Why a document was refused or could not be typeset.
///
/// `Display` is for the operator's log. For a sentence in the reader's language, match on the variant (or on [`code`](Self::code))
/// and use its fields; they hold nothing but positions, sizes and single characters of the text.
/// Every variant but [`Typeset`](Self::Typeset) is a fault of the text: trying again with the same text gives the same answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// There is nothing to show: only blanks, comments or link definitions.
    #[error("text is empty")]
    EmptyText,

    /// The Markdown is longer than [`MAX_MARKDOWN_BYTES`]; nothing of it was read.
    #[error("text has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Length of the Markdown.
        bytes: usize,
        /// The limit that was exceeded.
        limit: usize,
    },

    /// The text contains a NUL character, as a binary file does.
    #[error("NUL character in line {line}, column {column}")]
    ContainsNul {
        /// Line in the Markdown, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },

    /// An embedded image cannot be used.
    #[error("image in line {line}: {reason}")]
    BrokenImage {
        /// Line in the Markdown, from 1.
        line: usize,
        /// What is wrong with it.
        reason: ImageFault,
    },

    /// No available font can draw a character. Only a PDF needs this; HTML leaves it to the reader's machine.
    #[error("no font has a glyph for U+{code_point:04X}, first seen in {}", place(*.line))]
    MissingGlyph {
        /// The character.
        character: char,
        /// The same as a number, as in `U+1F600`.
        code_point: u32,
        /// Line in the Markdown, from 1; `None` when it is in the title.
        line: Option<usize>,
    },

    /// Quotes, lists or emphasis are nested deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    #[error("nested too deeply in line {line}")]
    TooDeep {
        /// Line in the Markdown, from 1.
        line: usize,
    },

    /// Reading the Markdown was given up after [`MAX_PARSE_TIME`](crate::MAX_PARSE_TIME).
    /// Only text made for the purpose takes that long.
    #[error("parsing took longer than {seconds} s")]
    TooSlow {
        /// The limit that was exceeded.
        seconds: u64,
    },

    /// Typst failed for a reason that is not among the above.
    #[error("typesetting failed: {message}")]
    Typeset {
        /// Typst's own words, for the log.
        message: String,
    },
}

impl DocumentError {
    /// A short stable name, to be kept with a failed attempt and looked up in translations.
    ///
    /// ```
    /// assert_eq!(jobdeck_document::DocumentError::EmptyText.code(), "empty_text");
    /// ```
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::EmptyText => "empty_text",
            Self::TooLarge { .. } => "too_large",
            Self::ContainsNul { .. } => "contains_nul",
            Self::BrokenImage { .. } => "broken_image",
            Self::MissingGlyph { .. } => "missing_glyph",
            Self::TooDeep { .. } => "too_deep",
            Self::TooSlow { .. } => "too_slow",
            Self::Typeset { .. } => "typeset",
        }
    }

    /// Line of the Markdown where the fault is, from 1, when there is one such line.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::ContainsNul { line, .. } | Self::BrokenImage { line, .. } | Self::TooDeep { line } => Some(*line),
            Self::MissingGlyph { line, .. } => *line,
            Self::EmptyText | Self::TooLarge { .. } | Self::TooSlow { .. } | Self::Typeset { .. } => None,
        }
    }

    pub(crate) fn too_large(bytes: usize) -> Self {
        Self::TooLarge { bytes, limit: MAX_MARKDOWN_BYTES }
    }
}

/// What is wrong with an embedded image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageFault {
    /// The `data:` address is not valid base64, not valid percent-encoding, or has no comma.
    #[error("its data: address is malformed")]
    Address,
    /// Neither PNG, JPEG, GIF, WebP nor SVG.
    #[error("it is none of PNG, JPEG, GIF, WebP and SVG")]
    Format,
    /// It begins like an image of its kind and cannot be decoded, usually because it was cut off.
    #[error("it is damaged or cut off")]
    Damaged,
    /// More bytes than [`MAX_IMAGE_BYTES`](crate::MAX_IMAGE_BYTES), or more pixels in all images together than
    /// [`MAX_PIXELS`](crate::MAX_PIXELS), or an SVG that unfolds into too many shapes.
    #[error("it is too large")]
    TooLarge,
    /// An SVG that refers to another file; nothing is ever fetched.
    #[error("it refers to another file")]
    Linked,
}

impl ImageFault {
    /// A short stable name, like [`DocumentError::code`].
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Format => "format",
            Self::Damaged => "damaged",
            Self::TooLarge => "too_large",
            Self::Linked => "linked",
        }
    }
}

fn place(line: Option<usize>) -> String {
    line.map_or_else(|| "the title".to_owned(), |line| format!("line {line}"))
}
