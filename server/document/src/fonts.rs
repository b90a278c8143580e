//! The fonts a PDF may use.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use typst::foundations::Bytes;
use typst::text::{Font, FontBook, FontInfo};
use typst::utils::LazyHash;

/// Folders are searched this deep; symbolic links are followed, so a limit is needed.
const MAX_FOLDER_DEPTH: usize = 8;

/// Larger files are not fonts.
const MAX_FONT_BYTES: u64 = 256 * 1024 * 1024;

/// All fonts that were found. Load once per process and share: only what the fonts are called and which characters they have is kept;
/// a file is read when a document first needs it, and then stays in memory.
///
/// Libertinus Serif, New Computer Modern and DejaVu Sans Mono are always there. Chinese, Japanese and Korean need an installed font;
/// Noto Serif CJK and Noto Sans CJK are preferred.
pub struct Fonts {
    book: LazyHash<FontBook>,
    faces: Vec<Face>,
    files: Vec<FontFile>,
}

struct Face {
    /// Index into `Fonts::files`; `None` for a built-in face, which is loaded from the start.
    file: Option<usize>,
    index_in_file: u32,
    font: OnceLock<Option<Font>>,
}

struct FontFile {
    path: PathBuf,
    bytes: OnceLock<Option<Bytes>>,
}

impl Fonts {
    /// The fonts of this process, found on first use by [`load`](Self::load).
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Fonts> = OnceLock::new();
        SHARED.get_or_init(Self::load)
    }

    /// Built-in fonts, then those in the folders listed in the environment variable `JOBDECK_FONT_PATHS`
    /// (separated as in `PATH`), then those in the system's and the user's usual folders.
    /// Takes about a second when many fonts are installed. Unreadable folders and files are passed over.
    #[must_use]
    pub fn load() -> Self {
        let listed = std::env::var_os("JOBDECK_FONT_PATHS").unwrap_or_default();
        let listed = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty());
        Self::from_folders(listed.chain(usual_folders()))
    }

    /// Built-in fonts only: Latin, Greek and Cyrillic.
    #[must_use]
    pub fn built_in() -> Self {
        Self::from_folders([])
    }

    /// Built-in fonts, then all in these folders and the folders in them. Earlier ones win among fonts of the same name.
    pub fn from_folders(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut book = FontBook::new();
        let mut faces = Vec::new();
        let mut files = Vec::new();
        for data in typst_assets::fonts() {
            for font in Font::iter(Bytes::new(data)) {
                book.push(font.info().clone());
                faces.push(Face { file: None, index_in_file: 0, font: OnceLock::from(Some(font)) });
            }
        }
        let mut seen = std::collections::HashSet::new();
        for folder in folders {
            let mut paths = Vec::new();
            collect(&folder, 0, &mut paths);
            // The order of a folder's entries is up to the file system; ours decides which font is taken.
            paths.sort();
            for path in paths {
                if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
                    continue;
                }
                let Ok(data) = std::fs::read(&path) else { continue };
                let file = files.len();
                let n_faces = faces.len();
                let n_in_file = if data.starts_with(b"ttcf") { data.get(8..12).map_or(0, big_endian) } else { 1 };
                for index_in_file in 0..n_in_file.min(64) {
                    if let Some(info) = FontInfo::new(&data, index_in_file) {
                        book.push(info);
                        faces.push(Face { file: Some(file), index_in_file, font: OnceLock::new() });
                    }
                }
                if faces.len() > n_faces {
                    files.push(FontFile { path, bytes: OnceLock::new() });
                }
            }
        }
        Self { book: LazyHash::new(book), faces, files }
    }

    /// Number of faces, built-in ones included.
    #[must_use]
    pub fn n_faces(&self) -> usize {
        self.faces.len()
    }

    /// Whether there is a family of this name; upper and lower case are the same.
    #[must_use]
    pub fn has_family(&self, name: &str) -> bool {
        self.book.contains_family(&name.to_lowercase())
    }

    /// Whether any font has a glyph for the character.
    #[must_use]
    pub fn covers(&self, character: char) -> bool {
        (0..self.faces.len())
            .any(|face| self.book.info(face).is_some_and(|info| info.coverage.contains(u32::from(character))))
    }

    pub(crate) fn book(&self) -> &LazyHash<FontBook> {
        &self.book
    }

    pub(crate) fn font(&self, face: usize) -> Option<Font> {
        let face = self.faces.get(face)?;
        face.font
            .get_or_init(|| {
                let file = self.files.get(face.file?)?;
                let bytes = file.bytes.get_or_init(|| std::fs::read(&file.path).ok().map(Bytes::new)).clone()?;
                Font::new(bytes, face.index_in_file)
            })
            .clone()
    }
}

impl fmt::Debug for Fonts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fonts").field("faces", &self.faces.len()).field("files", &self.files.len()).finish()
    }
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn collect(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) {
    if depth > MAX_FOLDER_DEPTH {
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        if metadata.is_dir() {
            collect(&path, depth + 1, paths);
        } else if metadata.is_file() && metadata.len() <= MAX_FONT_BYTES && is_font(&path) {
            paths.push(path);
        }
    }
}

fn is_font(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["ttf", "otf", "ttc", "otc"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

fn usual_folders() -> Vec<PathBuf> {
    let home = std::env::home_dir().unwrap_or_default();
    if cfg!(target_os = "windows") {
        let system = std::env::var_os("SystemRoot").map_or_else(|| PathBuf::from("C:\\Windows"), PathBuf::from);
        vec![system.join("Fonts"), home.join("AppData\\Local\\Microsoft\\Windows\\Fonts")]
    } else if cfg!(target_os = "macos") {
        let mut folders: Vec<PathBuf> =
            ["/System/Library/Fonts", "/System/Library/AssetsV2", "/Library/Fonts", "/Network/Library/Fonts"]
                .map(PathBuf::from)
                .into();
        folders.push(home.join("Library/Fonts"));
        folders
    } else {
        vec![
            PathBuf::from("/usr/share/fonts"),
            PathBuf::from("/usr/local/share/fonts"),
            home.join(".fonts"),
            home.join(".local/share/fonts"),
        ]
    }
}
