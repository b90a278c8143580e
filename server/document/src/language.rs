//! Which language a text is in, as far as typesetting cares.

/// A language in Typst's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Language {
    /// Two or three lower-case letters.
    pub(crate) lang: String,
    /// Two upper-case letters.
    pub(crate) region: Option<String>,
}

/// Whose shapes to prefer for Han characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Han {
    Simplified,
    Traditional,
    Japanese,
    Korean,
}

impl Language {
    /// Reads a tag such as `en`, `zh-CN`, `zh_TW.UTF-8` or `zh-Hant`. `None` when the first part is not a language code.
    pub(crate) fn from_tag(tag: &str) -> Option<Self> {
        let mut parts = tag.trim().split(['-', '_', '.', '@']);
        let lang = parts.next().filter(|p| (2..=3).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_alphabetic()))?;
        let lang = lang.to_ascii_lowercase();
        let mut region = None;
        for part in parts {
            if part.len() == 2 && part.bytes().all(|b| b.is_ascii_alphabetic()) {
                region = Some(part.to_ascii_uppercase());
                break;
            }
            if part.eq_ignore_ascii_case("hant") {
                region = Some("TW".to_owned());
            }
        }
        if lang == "zh" && region.is_none() {
            region = Some("CN".to_owned());
        }
        Some(Self { lang, region })
    }

    /// Judges by script: kana or hangul decide at once when they are frequent, then Han against other letters.
    pub(crate) fn from_counts(counts: &ScriptCounts) -> Self {
        let cjk = counts.han + counts.kana + counts.hangul;
        let tag = if cjk * 4 < counts.other_letters {
            "en"
        } else if counts.kana * 10 > cjk {
            "ja"
        } else if counts.hangul * 2 > cjk {
            "ko"
        } else if cjk > 0 {
            "zh-CN"
        } else {
            "en"
        };
        Self::from_tag(tag).unwrap_or(Self { lang: "en".to_owned(), region: None })
    }

    pub(crate) fn tag(&self) -> String {
        match &self.region {
            Some(region) => format!("{}-{region}", self.lang),
            None => self.lang.clone(),
        }
    }

    /// Whether the text is mainly Chinese, Japanese or Korean.
    pub(crate) fn is_cjk(&self) -> bool {
        matches!(self.lang.as_str(), "zh" | "ja" | "ko")
    }

    pub(crate) fn han(&self) -> Han {
        match (self.lang.as_str(), self.region.as_deref()) {
            ("ja", _) => Han::Japanese,
            ("ko", _) => Han::Korean,
            ("zh", Some("TW" | "HK" | "MO")) => Han::Traditional,
            _ => Han::Simplified,
        }
    }
}

/// How many letters of which script were seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScriptCounts {
    han: usize,
    kana: usize,
    hangul: usize,
    other_letters: usize,
}

impl ScriptCounts {
    pub(crate) fn add(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\u{3040}'..='\u{30FF}' => self.kana += 1,
                '\u{AC00}'..='\u{D7AF}' | '\u{1100}'..='\u{11FF}' => self.hangul += 1,
                _ if is_han(c) => self.han += 1,
                _ if c.is_alphabetic() => self.other_letters += 1,
                _ => {}
            }
        }
    }
}

pub(crate) fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// Whether a line of the source may end next to this character without a space: Han, kana and full-width punctuation.
pub(crate) fn joins_without_space(c: char) -> bool {
    is_han(c) || matches!(c, '\u{3000}'..='\u{30FF}' | '\u{FF00}'..='\u{FF60}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_leniently() {
        let read = |tag| Language::from_tag(tag).map(|l| l.tag());
        assert_eq!(read("en").as_deref(), Some("en"));
        assert_eq!(read("zh").as_deref(), Some("zh-CN"));
        assert_eq!(read("zh_TW.UTF-8").as_deref(), Some("zh-TW"));
        assert_eq!(read("zh-Hant").as_deref(), Some("zh-TW"));
        assert_eq!(read("\" onload="), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn script_decides_when_no_tag_is_given() {
        let judge = |text| {
            let mut counts = ScriptCounts::default();
            counts.add(text);
            Language::from_counts(&counts).tag()
        };
        assert_eq!(judge("waiting for a job"), "en");
        assert_eq!(judge("等待后台任务 by a worker"), "zh-CN");
        assert_eq!(judge("仕事を待っています"), "ja");
        assert_eq!(judge("작업을 기다립니다"), "ko");
        assert_eq!(judge("12 + 3"), "en");
    }
}
