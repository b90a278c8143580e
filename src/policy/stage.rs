//! The labels inside running and succeeded that people read.

use serde::{Deserialize, Serialize};

/// A label inside running or succeeded that people read, such as "Uploading".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The word handlers use, in lower case.
    pub name: String,
    /// The words people read.
    pub label: StageLabel,
}

/// A stage's words by language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLabel {
    /// English.
    pub en: String,
    /// 简体中文.
    #[serde(rename = "zh-CN")]
    pub zh_cn: String,
}

/// Words for the stages that many types share.
const SHARED: [(&str, &str, &str); 9] = [
    ("preparing", "Preparing", "正在准备"),
    ("generating", "Generating", "正在生成"),
    ("rendering", "Rendering", "正在排版"),
    ("uploading", "Uploading", "正在上传"),
    ("downloading", "Downloading", "正在下载"),
    ("downloadable", "Ready to download", "可下载"),
    ("sending", "Sending", "正在发送"),
    ("sent", "Sent", "已发送"),
    ("copying", "Copying", "正在复制"),
];

impl Stage {
    /// A stage with its words.
    pub fn new(name: &str, en: &str, zh_cn: &str) -> Self {
        let label = StageLabel { en: en.to_owned(), zh_cn: zh_cn.to_owned() };
        Self { name: name.to_owned(), label }
    }

    /// A stage with the words that types share: `preparing`, `generating`, `rendering`, `uploading`, `downloading`,
    /// `downloadable`, `sending`, `sent`, `copying`. Any other name is shown as it is, in both languages, with a capital letter
    /// and spaces for underscores.
    pub fn named(name: &str) -> Self {
        if let Some((_, en, zh_cn)) = SHARED.iter().find(|(shared, ..)| *shared == name) {
            return Self::new(name, en, zh_cn);
        }
        let mut letters = name.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        let shown: String =
            first.into_iter().chain(letters).map(|letter| if letter == '_' { ' ' } else { letter }).collect();
        Self::new(name, &shown, &shown)
    }
}
