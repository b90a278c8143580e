//! Settings: one validated struct per concern, read from flags and the environment before anything starts.
//!
//! Flags win over environment variables, those over defaults. Every error names the variable and what it may hold.

mod database;
mod http;
mod proxies;
mod worker;

pub use database::{DatabaseArgs, DatabaseConfig};
pub use http::{BaseUrl, ConnectionLimits, HttpArgs, HttpConfig};
pub use proxies::TrustedProxies;
pub use worker::{WorkerArgs, WorkerConfig};
