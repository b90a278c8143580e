//! Runs a server in the folder given as first argument, prints its URL, and stops it when standard input ends:
//! `cargo run -p jobdeck-embedded-postgres --example hold -- /tmp/deck`

use std::io::{Read as _, Write as _};

use jobdeck_embedded_postgres::{EmbeddedPostgres, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("give a folder as first argument")?;
    let server = EmbeddedPostgres::start(&Options::new(dir, "jobdeck"))?;
    println!("{}", server.default_url());
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop()?;
    Ok(())
}
