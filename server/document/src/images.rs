//! Embedded images: `data:` addresses decoded and checked before any renderer sees them.

use std::io::Cursor;

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use image::{ImageFormat, ImageReader};
use roxmltree::{Node, ParsingOptions};
use typst::foundations::Bytes;
use typst::visualize::{ExchangeFormat, RasterImage, SvgImage};

use crate::{ImageFault, MAX_IMAGE_BYTES, MAX_PIXELS};

/// Most elements an SVG may consist of once every `<use>` is replaced by what it stands for.
const MAX_SVG_ELEMENTS: u64 = 50_000;

/// Deepest nesting of an SVG's elements; the renderers descend by recursion.
const MAX_SVG_NESTING: usize = 128;

/// Filters are drawn as pixels, so their number is bounded rather than their area.
const MAX_SVG_FILTERS: usize = 32;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// An image that decodes.
pub(crate) struct Image {
    pub(crate) kind: Kind,
    pub(crate) bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Png,
    Jpeg,
    Gif,
    WebP,
    Svg,
}

impl Kind {
    pub(crate) fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
            Self::Svg => "image/svg+xml",
        }
    }

    /// The file name's ending, by which Typst tells the format.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Gif => "gif",
            Self::WebP => "webp",
            Self::Svg => "svg",
        }
    }
}

pub(crate) fn is_data_url(url: &str) -> bool {
    url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

impl Image {
    /// Decodes a `data:` address. The kind is told by the content; what the address claims is not trusted.
    /// Takes its pixels from `budget`, which all images of a document share.
    pub(crate) fn from_data_url(url: &str, budget: &mut u64) -> Result<Self, ImageFault> {
        let bytes = decode_data_url(url)?;
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err(ImageFault::TooLarge);
        }
        let kind = check(&bytes, budget, true)?;
        let bytes = Bytes::new(bytes);
        // The very decoders that will draw it: what passes here does not fail later.
        let decodes = match kind {
            Kind::Png => RasterImage::plain(bytes.clone(), ExchangeFormat::Png).is_ok(),
            Kind::Jpeg => RasterImage::plain(bytes.clone(), ExchangeFormat::Jpg).is_ok(),
            Kind::Gif => RasterImage::plain(bytes.clone(), ExchangeFormat::Gif).is_ok(),
            Kind::WebP => RasterImage::plain(bytes.clone(), ExchangeFormat::Webp).is_ok(),
            Kind::Svg => SvgImage::new(bytes.clone()).is_ok(),
        };
        if decodes { Ok(Self { kind, bytes }) } else { Err(ImageFault::Damaged) }
    }
}

fn decode_data_url(url: &str) -> Result<Vec<u8>, ImageFault> {
    let rest = url.get(5..).ok_or(ImageFault::Address)?;
    let (head, body) = rest.split_once(',').ok_or(ImageFault::Address)?;
    let body = percent_decode(body).ok_or(ImageFault::Address)?;
    if !head.trim_end().to_ascii_lowercase().ends_with(";base64") {
        return Ok(body);
    }
    let body: Vec<u8> = body.into_iter().filter(|b| !b.is_ascii_whitespace()).collect();
    BASE64.decode(body).map_err(|_| ImageFault::Address)
}

/// Undoes percent-encoding; `None` when a percent sign is not followed by two hexadecimal digits.
pub(crate) fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            decoded.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}

/// Looks at the header only.
fn check(bytes: &[u8], budget: &mut u64, svg_allowed: bool) -> Result<Kind, ImageFault> {
    if bytes.is_empty() {
        return Err(ImageFault::Damaged);
    }
    let kind = match image::guess_format(bytes) {
        Ok(ImageFormat::Png) => Kind::Png,
        Ok(ImageFormat::Jpeg) => Kind::Jpeg,
        Ok(ImageFormat::Gif) => Kind::Gif,
        Ok(ImageFormat::WebP) => Kind::WebP,
        Ok(_) => return Err(ImageFault::Format),
        Err(_) if svg_allowed => {
            check_svg(bytes, budget)?;
            return Ok(Kind::Svg);
        }
        Err(_) => return Err(ImageFault::Format),
    };
    let (width, height) = ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .map_err(|_| ImageFault::Damaged)?
        .into_dimensions()
        .map_err(|_| ImageFault::Damaged)?;
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 {
        return Err(ImageFault::Damaged);
    }
    debug_assert!(*budget <= MAX_PIXELS, "the budget only shrinks");
    *budget = budget.checked_sub(pixels).ok_or(ImageFault::TooLarge)?;
    Ok(kind)
}

/// An SVG must be XML (not compressed), name no other file, and not unfold into an unreasonable number of shapes.
fn check_svg(bytes: &[u8], budget: &mut u64) -> Result<(), ImageFault> {
    let text = std::str::from_utf8(bytes).map_err(|_| ImageFault::Format)?.trim_start_matches('\u{FEFF}');
    if !text.trim_start().starts_with('<') {
        return Err(ImageFault::Format);
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: 200_000, ..ParsingOptions::default() };
    let tree = roxmltree::Document::parse_with_options(text, options).map_err(|error| match error {
        roxmltree::Error::NodesLimitReached => ImageFault::TooLarge,
        _ => ImageFault::Damaged,
    })?;
    if tree.root_element().tag_name().name() != "svg" {
        return Err(ImageFault::Format);
    }

    // Document order, so that a parent's depth is known before its children's.
    let mut depths = std::collections::HashMap::new();
    let mut ids = std::collections::HashMap::new();
    let mut filters = 0;
    for node in tree.descendants().filter(Node::is_element) {
        let depth = node.parent().and_then(|parent| depths.get(&parent.id())).map_or(0, |depth| depth + 1);
        if depth > MAX_SVG_NESTING {
            return Err(ImageFault::TooLarge);
        }
        depths.insert(node.id(), depth);
        if let Some(id) = node.attribute("id") {
            ids.entry(id).or_insert(node);
        }
        if node.tag_name().name() == "filter" {
            filters += 1;
        }
        if matches!(node.tag_name().name(), "image" | "feImage") {
            match href(node) {
                Some(target) if is_data_url(target) => {
                    check(&decode_data_url(target)?, budget, false)?;
                }
                Some(target) if !target.starts_with('#') && !target.is_empty() => return Err(ImageFault::Linked),
                _ => {}
            }
        }
    }
    if filters > MAX_SVG_FILTERS {
        return Err(ImageFault::TooLarge);
    }

    // Sizes from the leaves up: children come after their parent, so walk backwards. A <use> of something not yet
    // sized (it stands before the use) is settled in another round; each round settles one more level of indirection.
    let elements: Vec<_> = tree.descendants().filter(Node::is_element).collect();
    let mut sizes: std::collections::HashMap<roxmltree::NodeId, u64> = std::collections::HashMap::new();
    for _ in 0..=16 {
        let before = sizes.get(&tree.root_element().id()).copied();
        for node in elements.iter().rev() {
            let mut size = 1_u64;
            for child in node.children().filter(Node::is_element) {
                size = size.saturating_add(sizes.get(&child.id()).copied().unwrap_or(1));
            }
            for target in references(*node).filter_map(|id| ids.get(id)) {
                size = size.saturating_add(sizes.get(&target.id()).copied().unwrap_or(1));
            }
            if size > MAX_SVG_ELEMENTS {
                return Err(ImageFault::TooLarge);
            }
            sizes.insert(node.id(), size);
        }
        if sizes.get(&tree.root_element().id()).copied() == before {
            return Ok(());
        }
    }
    // Still growing: a circle, or indirection too deep to be drawn by hand.
    Err(ImageFault::TooLarge)
}

fn href<'a>(node: Node<'a, '_>) -> Option<&'a str> {
    node.attribute(("http://www.w3.org/1999/xlink", "href")).or_else(|| node.attribute("href")).map(str::trim)
}

/// Identifiers of the elements that are drawn again because of this one: by `href="#id"` or by `url(#id)` in any attribute.
fn references<'a>(node: Node<'a, '_>) -> impl Iterator<Item = &'a str> {
    let by_href = href(node).and_then(|target| target.strip_prefix('#'));
    let by_url = node.attributes().flat_map(|attribute| attribute.value().split("url(").skip(1)).filter_map(|rest| {
        let id = rest.split(')').next()?.trim_matches(['"', '\'', ' ']);
        id.strip_prefix('#')
    });
    by_href.into_iter().chain(by_url)
}
