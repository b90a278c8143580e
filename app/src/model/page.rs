//! What every page knows about its reader; sent with the page, so that the browser draws the same.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Permission, Role};
use crate::i18n::Locale;

/// A forced colour scheme. Without one the system's is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Theme {
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// The word in the cookie and in `data-theme`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The theme a cookie or a form names; `None` for anything else, such as `system`.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Light, Self::Dark].into_iter().find(|theme| theme.as_str() == word)
    }
}

/// Who reads the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Viewer {
    /// What people read.
    pub name: String,
    /// As entered.
    pub email: String,
    /// What they may do.
    pub role: Role,
}

/// Facts of a page view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageFacts {
    /// The reader's language.
    pub locale: Locale,
    /// The forced colour scheme.
    pub theme: Option<Theme>,
    /// Nobody on the pages for signing in and setting up.
    pub viewer: Option<Viewer>,
    /// Shown beside the brand; may be empty.
    pub environment: String,
    /// Jobdeck's version.
    pub version: String,
    /// Whether the set-up link in the address still works.
    pub can_set_up: bool,
    /// The server's clock when the page was drawn.
    pub now: DateTime<Utc>,
}

impl PageFacts {
    /// Whether the reader may do what needs `permission`.
    pub fn allows(&self, permission: Permission) -> bool {
        self.viewer.as_ref().is_some_and(|viewer| viewer.role.allows(permission))
    }
}
