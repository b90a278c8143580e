//! The log: lines on standard error, filtered by `RUST_LOG`.

use tracing_subscriber::EnvFilter;

/// What is logged unless `RUST_LOG` says otherwise.
const DEFAULT: &str = "info,sqlx=warn";

/// Sets the log up, once per process.
///
/// # Errors
/// If `RUST_LOG` makes no sense.
pub(crate) fn init() -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.trim().is_empty() => text.parse::<EnvFilter>().map_err(|error| {
            anyhow::anyhow!("RUST_LOG must be levels such as info or jobdeck=debug,sqlx=warn: {error}")
        })?,
        _ => EnvFilter::new(DEFAULT),
    };
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal).init();
    Ok(())
}
