//! Jobdeck's pages, components and server functions. Compiled twice: for the server (feature `ssr`), which draws whole
//! pages, and for the browser (feature `hydrate`), which brings them to life.

#![recursion_limit = "256"]

mod app;
mod clock;
mod components;
pub mod error;
#[cfg(feature = "ssr")]
pub mod export_page;
pub mod format;
mod frame;
pub mod i18n;
mod live;
pub mod model;
mod pages;
pub mod server_fns;
#[cfg(feature = "ssr")]
mod shell;
#[cfg(feature = "ssr")]
pub mod ssr;
mod words;

pub use app::App;
pub use error::AppError;
pub use i18n::{Arg, Locale};
#[cfg(feature = "ssr")]
pub use shell::shell;

/// Brings the page that the server drew to life.
#[cfg(feature = "hydrate")]
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    console_error_panic_hook::set_once();
    leptos::mount::hydrate_body(App);
}
