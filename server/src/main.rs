//! Parses the command line, runs the command, turns the outcome into an exit code.

use std::process::ExitCode;

use jobdeck_server::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::from_command_line();
    let outcome =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Into::into).and_then(|runtime| {
            let outcome = runtime.block_on(cli.run());
            // A handler's blocking work cannot be interrupted; its job has been handed back, so nobody waits for it.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
