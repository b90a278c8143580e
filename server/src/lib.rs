//! The parts of the binary `jobdeck`: command line, web deck, sign-in, live stream and the bundled job types.
//!
//! `main.rs` parses and dispatches. Another axum app can mount [`router`] with a state of its own.

mod auth;
pub mod cli;
pub mod config;
mod database;
mod embedded_postgres;
pub mod http;
pub mod job_types;
pub mod links;
pub mod live;
pub mod shutdown;
pub mod state;
pub mod storage;
mod telemetry;

pub use http::router;
pub use state::AppState;
