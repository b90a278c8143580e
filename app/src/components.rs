//! Views of passed-in data.

pub(crate) mod action_button;
pub(crate) mod badge;
pub(crate) mod blank;
pub(crate) mod brand;
pub(crate) mod icon;
pub(crate) mod json_view;
pub(crate) mod live_banner;
pub(crate) mod live_switch;
pub(crate) mod notice_line;
pub(crate) mod page_title;
pub(crate) mod preferences;
pub(crate) mod progress_bar;
pub(crate) mod relative_time;
