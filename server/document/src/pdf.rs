//! [`Document`] to PDF by way of Typst.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

use typst::diag::{FileError, FileResult, SourceDiagnostic};
use typst::foundations::{Bytes, Datetime, Duration, Smart};
use typst::syntax::{FileId, RootedPath, Source, VirtualPath, VirtualRoot};
use typst::text::{Font, FontBook, is_default_ignorable};
use typst::utils::LazyHash;
use typst::{Library, LibraryExt, World};
use typst_layout::PagedDocument;
use typst_pdf::PdfOptions;

use crate::document::{Document, Rendered};
use crate::language::Han;
use crate::typst_code::{self, FontLists, image_path};
use crate::{DocumentError, Fonts};

const TEMPLATE: &str = include_str!("pdf/template.typ");

/// Layout descends by recursion, more deeply in an unoptimised build. Only addresses are reserved; memory is taken when touched.
const STACK_BYTES: usize = 128 * 1024 * 1024;

pub(crate) fn write(document: &Document, fonts: &Fonts) -> Result<Rendered, DocumentError> {
    check_glyphs(document, fonts)?;
    let code = typst_code::write(document, &font_lists(document, fonts));
    let world = DocumentWorld::new(document, fonts, code)?;
    // A pool of its own per document: Typst's parallel parts run on threads with our stack, and documents do not wait for each other.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(std::thread::available_parallelism().map_or(1, |n| n.get().min(4)))
        .stack_size(STACK_BYTES)
        .thread_name(|n| format!("typeset-{n}"))
        .build()
        .map_err(|error| DocumentError::Typeset { message: error.to_string() })?;
    let finished = std::panic::catch_unwind(AssertUnwindSafe(|| pool.install(|| typeset(&world))));
    // Typst remembers what it computed for the next version of the same document, and there is none.
    typst::comemo::evict(0);
    let (bytes, n_pages) =
        finished.unwrap_or_else(|panic| Err(DocumentError::Typeset { message: panic_message(panic.as_ref()) }))?;
    Ok(Rendered { bytes, pages: Some(u32::try_from(n_pages).unwrap_or(u32::MAX)), warnings: document.warnings.clone() })
}

fn typeset(world: &DocumentWorld<'_>) -> Result<(Vec<u8>, usize), DocumentError> {
    let document = typst::compile::<PagedDocument>(world).output.map_err(|errors| failed(&errors))?;
    // No timestamp and no identifier but the content's: the same text gives the same bytes.
    let options = PdfOptions { creator: Smart::Custom(Some("Jobdeck".to_owned())), ..PdfOptions::default() };
    let bytes = typst_pdf::pdf(&document, &options).map_err(|errors| failed(&errors))?;
    Ok((bytes, document.pages().len()))
}

fn failed(errors: &[SourceDiagnostic]) -> DocumentError {
    let messages: Vec<&str> = errors.iter().take(5).map(|error| error.message.as_str()).collect();
    DocumentError::Typeset { message: messages.join("; ") }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("unknown"))
}

/// Finds the first character that would come out as an empty box.
fn check_glyphs(document: &Document, fonts: &Fonts) -> Result<(), DocumentError> {
    for &(character, line) in &document.characters {
        let drawn = !character.is_whitespace()
            && !character.is_control()
            && !is_default_ignorable(character)
            && !is_format(character);
        if drawn && !fonts.covers(character) {
            return Err(DocumentError::MissingGlyph { character, code_point: u32::from(character), line });
        }
    }
    Ok(())
}

/// Characters that steer their neighbours and are not drawn, as far as Unicode does not call them ignorable anyway.
fn is_format(character: char) -> bool {
    matches!(character,
        '\u{600}'..='\u{605}' | '\u{6DD}' | '\u{70F}' | '\u{FFF9}'..='\u{FFFB}' | '\u{2028}' | '\u{2029}'
        | '\u{FE00}'..='\u{FE0F}' | '\u{1F3FB}'..='\u{1F3FF}' | '\u{E0000}'..='\u{E0FFF}')
}

/// The families to use, of those that are there. Typst looks through all others by itself for what these lack.
fn font_lists(document: &Document, fonts: &Fonts) -> FontLists {
    let (noto, others): (&str, &[&str]) = match document.language.han() {
        Han::Simplified => {
            ("SC", &["Songti SC", "STSong", "SimSun", "PingFang SC", "Microsoft YaHei", "WenQuanYi Micro Hei"])
        }
        Han::Traditional => ("TC", &["Songti TC", "PMingLiU", "PingFang TC", "Microsoft JhengHei"]),
        Han::Japanese => ("JP", &["Hiragino Mincho ProN", "Yu Mincho", "Hiragino Sans", "Yu Gothic"]),
        Han::Korean => ("KR", &["AppleMyungjo", "Batang", "Apple SD Gothic Neo", "Malgun Gothic"]),
    };
    let serif_cjk =
        [format!("Noto Serif CJK {noto}"), format!("Source Han Serif {noto}"), format!("Noto Serif {noto}")];
    let sans_cjk = [format!("Noto Sans CJK {noto}"), format!("Source Han Sans {noto}"), format!("Noto Sans {noto}")];
    let mono_cjk = [format!("Noto Sans Mono CJK {noto}")];
    let others = || others.iter().map(|family| (*family).to_owned());
    let available = |families: Vec<String>| families.into_iter().filter(|family| fonts.has_family(family)).collect();
    let latin = || std::iter::once("Libertinus Serif".to_owned());
    FontLists {
        serif: available(latin().chain(serif_cjk.clone()).chain(others()).chain(sans_cjk.clone()).collect()),
        sans: available(latin().chain(sans_cjk.clone()).chain(others()).chain(serif_cjk).collect()),
        mono: available(
            std::iter::once("DejaVu Sans Mono".to_owned()).chain(mono_cjk).chain(sans_cjk).chain(others()).collect(),
        ),
    }
}

/// All that Typst can see: two files of code, the images, the fonts. No disk, no packages, no date.
struct DocumentWorld<'a> {
    fonts: &'a Fonts,
    main: Source,
    template: Source,
    images: HashMap<FileId, Bytes>,
}

impl<'a> DocumentWorld<'a> {
    fn new(document: &Document, fonts: &'a Fonts, code: String) -> Result<Self, DocumentError> {
        let mut images = HashMap::with_capacity(document.images.len());
        for (index, image) in document.images.iter().enumerate() {
            images.insert(file_id(&image_path(index, image.kind))?, image.bytes.clone());
        }
        Ok(Self {
            fonts,
            main: Source::new(file_id("/main.typ")?, code),
            template: Source::new(file_id("/template.typ")?, TEMPLATE.to_owned()),
            images,
        })
    }
}

fn file_id(path: &str) -> Result<FileId, DocumentError> {
    let path = VirtualPath::new(path).map_err(|_| DocumentError::Typeset { message: format!("bad path {path}") })?;
    Ok(RootedPath::new(VirtualRoot::Project, path).intern())
}

impl World for DocumentWorld<'_> {
    fn library(&self) -> &LazyHash<Library> {
        static LIBRARY: OnceLock<LazyHash<Library>> = OnceLock::new();
        LIBRARY.get_or_init(|| LazyHash::new(Library::default()))
    }

    fn book(&self) -> &LazyHash<FontBook> {
        self.fonts.book()
    }

    fn main(&self) -> FileId {
        self.main.id()
    }

    fn source(&self, id: FileId) -> FileResult<Source> {
        [&self.main, &self.template].into_iter().find(|source| source.id() == id).cloned().ok_or_else(|| not_found(id))
    }

    fn file(&self, id: FileId) -> FileResult<Bytes> {
        self.images.get(&id).cloned().ok_or_else(|| not_found(id))
    }

    fn font(&self, index: usize) -> Option<Font> {
        self.fonts.font(index)
    }

    fn today(&self, _offset: Option<Duration>) -> Option<Datetime> {
        None
    }
}

fn not_found(id: FileId) -> FileError {
    FileError::NotFound(id.get().vpath().get_with_slash().into())
}
