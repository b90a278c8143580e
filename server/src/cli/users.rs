use std::io::{IsTerminal as _, Read as _};

use anyhow::{Context as _, bail, ensure};
use jobdeck::Store;
use jobdeck::store::{Actor, NewUser, UserRole};
use serde_json::json;

use crate::auth::person::{is_email, is_plausible};
use crate::auth::{self, password, token};
use crate::config::{BaseUrl, DatabaseArgs, HttpArgs, HttpConfig};
use crate::database::Database;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Create a user. The password is read from standard input or from JOBDECK_PASSWORD: 15 characters or more, none of the
    /// common ones, and not made of the address, the name or a repeated pattern.
    Create(CreateArgs),
    /// List users: address, name, role.
    List(ListArgs),
    /// Print a link with which the first admin signs in. It works once, for 15 minutes, while no user exists.
    SetupLink(SetupLinkArgs),
}

#[derive(clap::Args)]
pub(super) struct CreateArgs {
    /// Address to sign in with.
    #[arg(long)]
    email: String,
    /// What people read, 1 to 100 characters.
    #[arg(long)]
    name: String,
    /// viewer reads; operator also retries and enqueues; admin also cancels.
    #[arg(long, value_parser = ["viewer", "operator", "admin"])]
    role: String,
    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// Print an array of JSON objects: id, email, name, role, disabled_at.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(clap::Args)]
pub(super) struct SetupLinkArgs {
    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create(args).await,
        Command::List(args) => list(args).await,
        Command::SetupLink(args) => setup_link(args).await,
    }
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let (email, name) = (args.email.trim().to_owned(), args.name.trim().to_owned());
    ensure!(is_email(&email), "--email must be an address such as ana@example.com");
    ensure!(is_plausible(&name, 100), "--name must have 1 to 100 characters");
    let role: UserRole = args.role.parse().map_err(anyhow::Error::msg)?;
    let password = read_password()?;
    password::check(&password, &email, &name)?;
    let user = NewUser { email, name, role, password_hash: password::hash(&password)? };
    let database = Database::join(&args.database.into()).await?;
    let actor = Actor { user_id: None, name: "command line".to_owned(), address: None };
    let created = database.store.user_create(&user, &actor).await;
    database.close().await?;
    let id = created?;
    if args.json {
        super::print_json(&json!({ "id": id, "email": user.email, "name": user.name, "role": user.role }))
    } else {
        println!("{} may sign in now, as {}.", user.email, user.role.as_str());
        Ok(())
    }
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    let database = Database::join(&args.database.into()).await?;
    let users = database.store.user_list().await;
    database.close().await?;
    let users = users?;
    if args.json {
        let users: Vec<_> = users
            .iter()
            .map(|user| {
                json!({
                    "id": user.id, "email": user.email, "name": user.name, "role": user.role,
                    "disabled_at": user.disabled_at,
                })
            })
            .collect();
        return super::print_json(&users);
    }
    if users.is_empty() {
        println!("No users yet. `jobdeck users setup-link` prints a link for the first admin.");
    }
    let width = users.iter().map(|user| user.email.chars().count()).max().unwrap_or_default();
    for user in &users {
        let disabled = if user.disabled_at.is_some() { " (disabled)" } else { "" };
        println!("{:width$}  {:8}  {}{disabled}", user.email, user.role.as_str(), user.name);
    }
    Ok(())
}

async fn setup_link(args: SetupLinkArgs) -> anyhow::Result<()> {
    let config = HttpConfig::new(&args.http, args.http.listen);
    let database = Database::join(&args.database.into()).await?;
    let link = new_setup_link(&database.store, &config.base_url).await;
    database.close().await?;
    let Some(link) = link? else {
        bail!("there are users already: sign in, or create one with `jobdeck users create`")
    };
    if args.json {
        super::print_json(&json!({ "link": link, "expires_in_seconds": auth::SETUP_LIFE.as_secs() }))
    } else {
        println!("{link}");
        Ok(())
    }
}

/// A fresh link for the first admin; earlier ones stop working. `None` once there is a user.
pub(super) async fn new_setup_link(store: &Store, base_url: &BaseUrl) -> anyhow::Result<Option<String>> {
    if store.user_exists().await? {
        return Ok(None);
    }
    let token = token::random()?;
    let digest = token::digest(&token).context("a fresh token has no digest")?;
    store.setup_token_create(&digest, auth::SETUP_LIFE).await?;
    Ok(Some(format!("{base_url}/setup?token={token}")))
}

fn read_password() -> anyhow::Result<String> {
    match std::env::var("JOBDECK_PASSWORD") {
        Ok(password) => return Ok(password),
        Err(std::env::VarError::NotUnicode(_)) => bail!("JOBDECK_PASSWORD must be UTF-8"),
        Err(std::env::VarError::NotPresent) => {}
    }
    if std::io::stdin().is_terminal() {
        eprintln!("Password, 15 characters or more, shown as you type; then Enter:");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .take(16 * 1024)
        .read_to_string(&mut text)
        .context("cannot read the password from standard input")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
