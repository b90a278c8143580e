//! The command line.

mod migrate;
mod serve;
mod users;

use clap::{Parser, Subcommand};

use crate::config::{DatabaseArgs, HttpArgs, WorkerArgs};
use crate::telemetry;

/// Below each help text.
const SETTINGS: &str = "Settings: flags win over environment variables, those over defaults.\n\
                        The log goes to standard error; RUST_LOG chooses levels, default info,sqlx=warn.";

/// A job queue on Postgres with a live web deck.
///
/// Without a command: serve.
#[derive(Parser)]
#[command(
    name = "jobdeck",
    version,
    after_help = SETTINGS
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the web deck and a worker in one process.
    #[command(after_help = SETTINGS)]
    Serve(ServeArgs),
    /// Run the web deck alone.
    #[command(after_help = SETTINGS)]
    Web(WebArgs),
    /// Run a worker alone.
    #[command(after_help = SETTINGS)]
    Work(WorkArgs),
    /// Bring the database's schema up to date. Every other command does so as well.
    Migrate(migrate::MigrateArgs),
    /// Create and list the people who may sign in.
    Users {
        #[command(subcommand)]
        command: users::Command,
    },
}

#[derive(clap::Args)]
struct ServeArgs {
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    worker: WorkerArgs,
}

#[derive(clap::Args)]
struct WebArgs {
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(clap::Args)]
struct WorkArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    worker: WorkerArgs,
}

impl Cli {
    /// Reads the command line and the environment. Ends the process on a mistake, with what would be right.
    pub fn from_command_line() -> Self {
        let mut args: Vec<_> = std::env::args_os().collect();
        if args.len() <= 1 {
            args.push("serve".into());
        }
        Self::parse_from(args)
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// What kept it from its end, for people to read.
    pub async fn run(self) -> anyhow::Result<()> {
        telemetry::init()?;
        match self.command {
            Some(Command::Serve(args)) => {
                serve::run(args.database.into(), Some(args.http), Some(args.worker.try_into()?)).await
            }
            Some(Command::Web(args)) => serve::run(args.database.into(), Some(args.http), None).await,
            Some(Command::Work(args)) => serve::run(args.database.into(), None, Some(args.worker.try_into()?)).await,
            Some(Command::Migrate(args)) => migrate::run(args).await,
            Some(Command::Users { command }) => users::run(command).await,
            None => Ok(()),
        }
    }
}

/// Prints a value as one line of JSON on standard output.
fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mistakes_name_the_variable_and_what_it_may_hold() {
        for (args, expected) in [
            (["jobdeck", "web", "--listen", "3700"], "JOBDECK_LISTEN must be an IP address and a port"),
            (["jobdeck", "web", "--base-url", "deck"], "JOBDECK_BASE_URL must be http:// or https://"),
            (["jobdeck", "work", "--concurrency", "0"], "JOBDECK_CONCURRENCY must be a whole number from 1 to 256"),
            (["jobdeck", "work", "--database-url", "mysql://u:pw@h/d"], "DATABASE_URL must be postgres://"),
        ] {
            let error = Cli::try_parse_from(args).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn help_tells_unit_and_default_of_each_setting_and_keeps_secrets() {
        let help = Cli::command().find_subcommand_mut("serve").unwrap().render_long_help().to_string();
        for expected in
            ["JOBDECK_LISTEN", "127.0.0.1:3700", "JOBDECK_GRACE_SECS", "[default: 10]", "Seconds", "DATABASE_URL"]
        {
            assert!(help.contains(expected), "{expected} is missing in\n{help}");
        }
    }
}
