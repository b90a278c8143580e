//! The style sheet: our own files in `style/` plus the Tailwind utilities that the sources name, written to
//! `style/dist/app.css`, which is in git. Only this command needs the engine, so only it is built with it.

#[cfg(any(feature = "css", test))]
mod candidates;
#[cfg(any(feature = "css", test))]
mod order;
#[cfg(any(feature = "css", test))]
#[cfg_attr(not(feature = "css"), expect(dead_code, reason = "without the engine only the tests use it"))]
mod sheet;
#[cfg(feature = "css")]
mod write;

use std::process::ExitCode;

use anyhow::Result;

/// Generates the style sheet, or with `check` only compares it.
pub(crate) fn css(check: bool) -> Result<ExitCode> {
    #[cfg(feature = "css")]
    {
        write::write(check)
    }
    #[cfg(not(feature = "css"))]
    {
        let mut cargo = crate::tools::cargo();
        cargo.args(["run", "--quiet", "--package", "xtask", "--features", "css", "--", "css"]);
        if check {
            cargo.arg("--check");
        }
        let status = cargo.status()?;
        Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
    }
}
