//! Parses the command line, runs the command, turns the outcome into an exit code.

use std::process::ExitCode;

use jobdeck_server::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::from_command_line();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(cli.run()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
