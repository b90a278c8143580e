use serde_json::json;

use crate::config::DatabaseArgs;
use crate::database::Database;

#[derive(clap::Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: MigrateArgs) -> anyhow::Result<()> {
    // Opening a database brings it up to date.
    let database = Database::join(&args.database.into()).await?;
    let is_ready = database.store.is_ready().await;
    database.close().await?;
    anyhow::ensure!(is_ready?, "the schema is newer than this program");
    if args.json {
        super::print_json(&json!({ "schema": "current" }))
    } else {
        println!("The schema is up to date.");
        Ok(())
    }
}
