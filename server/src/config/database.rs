use std::path::PathBuf;

/// Which database.
#[derive(clap::Args, Clone)]
pub struct DatabaseArgs {
    /// A Postgres server to use, as postgres://user:password@host:port/database. Default: a private server that Jobdeck
    /// starts and stops itself, in the data folder.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL", value_parser = database_url)]
    pub database_url: Option<String>,
    /// Folder for exported files and the private Postgres server.
    #[arg(long, env = "JOBDECK_DATA_DIR", default_value = "data", value_name = "FOLDER", value_parser = data_dir)]
    pub data_dir: PathBuf,
    /// Most connections of the shared pool, 2 to 1000; a worker holds three more.
    #[arg(long, env = "JOBDECK_DATABASE_CONNECTIONS", default_value = "10", value_name = "N", value_parser = connections)]
    pub database_connections: u32,
}

/// Where the database and files are. Has no `Debug`: the URL may hold a password.
#[derive(Clone)]
pub struct DatabaseConfig {
    /// `None` for the private server in [`DatabaseConfig::data_dir`].
    pub url: Option<String>,
    /// Folder for exported files and the private Postgres server.
    pub data_dir: PathBuf,
    /// Most connections of the shared pool.
    pub connections: u32,
}

impl From<DatabaseArgs> for DatabaseConfig {
    fn from(args: DatabaseArgs) -> Self {
        Self { url: args.database_url, data_dir: args.data_dir, connections: args.database_connections }
    }
}

fn database_url(text: &str) -> Result<String, String> {
    let problem =
        "DATABASE_URL must be postgres://user:password@host:port/database, or be unset for the private server";
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err(problem.to_owned());
    }
    // The parser's own message could repeat the password.
    text.parse::<sqlx::postgres::PgConnectOptions>().map_err(|_| problem.to_owned())?;
    Ok(text.to_owned())
}

fn data_dir(text: &str) -> Result<PathBuf, String> {
    if text.trim().is_empty() {
        return Err("JOBDECK_DATA_DIR must be a folder's path, such as ./data".to_owned());
    }
    Ok(PathBuf::from(text))
}

fn connections(text: &str) -> Result<u32, String> {
    super::worker::number("JOBDECK_DATABASE_CONNECTIONS", text, 2..=1000)
}
