//! The real thing: every test makes a cluster of its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use jobdeck_embedded_postgres::{Binaries, EmbeddedPostgres, Error, Options, usable_dir};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// An empty folder that the server's user can reach.
fn dir(name: &str) -> Result<PathBuf> {
    let preferred = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let fallback = std::env::temp_dir().join(format!("jobdeck-it-{name}"));
    let dir = usable_dir(preferred, fallback);
    if dir.exists() {
        // A run that failed may have left a server behind.
        drop(EmbeddedPostgres::start(&options(&dir)).map(EmbeddedPostgres::stop));
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(dir)
}

fn options(dir: &Path) -> Options {
    Options { durable: false, max_connections: 20, ..Options::new(dir, "deck") }
}

fn query(url: &str, sql: &str) -> Result<String> {
    let output = Command::new(Binaries::find()?.dir().join("psql")).args([url, "-XAtc", sql]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Another program that runs a server in `dir`, and the URL it printed.
fn owner(dir: &Path) -> Result<(Child, String)> {
    let tests = std::env::current_exe()?;
    let example = tests.parent().and_then(Path::parent).ok_or("no target folder")?.join("examples/hold");
    let mut child = Command::new(example).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut url = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut url)?;
    Ok((child, url.trim().to_owned()))
}

#[test]
fn further_settings_win_and_a_server_is_durable_unless_told_otherwise() -> Result {
    let dir = dir("settings")?;
    let settings = vec![("work_mem".to_owned(), "7MB".to_owned()), ("max_connections".to_owned(), "33".to_owned())];
    let server = EmbeddedPostgres::start(&Options { settings, ..Options::new(&dir, "deck") })?;
    let url = server.default_url();
    assert_eq!(query(&url, "select current_setting('work_mem'), current_setting('max_connections')")?, "7MB|33");
    for name in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(query(&url, &format!("show {name}"))?, "on");
    }
    server.stop()?;
    Ok(std::fs::remove_dir_all(dir)?)
}

#[test]
fn a_server_starts_answers_and_stops() -> Result {
    let dir = dir("starts")?;
    let server = EmbeddedPostgres::start(&options(&dir))?;
    assert!(!server.was_adopted());
    let url = server.default_url();
    assert_eq!(
        query(
            &url,
            "select current_database(), pg_encoding_to_char(encoding) from pg_database where datname = current_database()"
        )?,
        "deck|UTF8"
    );
    assert_eq!(query(&url, "show fsync")?, "off");
    server.stop()?;
    assert!(!dir.join("cluster/postmaster.pid").exists());
    Ok(std::fs::remove_dir_all(dir)?)
}

#[test]
fn data_and_password_survive_a_restart_and_the_default_is_durable() -> Result {
    let dir = dir("restart")?;
    let durable = Options::new(&dir, "deck");
    let server = EmbeddedPostgres::start(&durable)?;
    query(&server.default_url(), "create table kept as select 42 as n")?;
    assert_eq!(
        query(
            &server.url("postgres"),
            "select string_agg(setting, ',') from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes')"
        )?,
        "on,on,on"
    );
    drop(server);
    assert!(!dir.join("cluster/postmaster.pid").exists(), "dropping stops the server");
    let server = EmbeddedPostgres::start(&durable)?;
    assert_eq!(query(&server.default_url(), "select n from kept")?, "42");
    server.stop()?;
    Ok(std::fs::remove_dir_all(dir)?)
}

#[test]
fn a_server_left_behind_by_a_killed_program_is_adopted() -> Result {
    let dir = dir("adopted")?;
    let (mut program, url) = owner(&dir)?;
    program.kill()?;
    program.wait()?;
    assert_eq!(query(&url, "select 1")?, "1", "the server outlives the program");
    let server = EmbeddedPostgres::start(&options(&dir))?;
    assert!(server.was_adopted());
    assert_eq!(
        server.default_url().rsplit_once('/').map(|(server, _)| server.to_owned()),
        url.rsplit_once('/').map(|(server, _)| server.to_owned())
    );
    server.stop()?;
    Ok(std::fs::remove_dir_all(dir)?)
}

#[test]
fn a_killed_server_is_started_anew() -> Result {
    let dir = dir("stale")?;
    let (mut program, url) = owner(&dir)?;
    query(&url, "create table kept as select 7 as n")?;
    let pid = std::fs::read_to_string(dir.join("cluster/postmaster.pid"))?;
    let pid = pid.lines().next().unwrap_or_default().to_owned();
    program.kill()?;
    program.wait()?;
    assert!(Command::new("kill").args(["-9", &pid]).status()?.success());
    let server = EmbeddedPostgres::start(&options(&dir))?;
    assert!(!server.was_adopted());
    assert_eq!(query(&server.url("jobdeck"), "select n from kept")?, "7");
    server.stop()?;
    Ok(std::fs::remove_dir_all(dir)?)
}

#[test]
fn a_second_program_on_one_folder_is_refused() -> Result {
    let dir = dir("second")?;
    let (mut program, _) = owner(&dir)?;
    let error = EmbeddedPostgres::start(&options(&dir)).err().ok_or("the second start succeeded")?;
    assert!(matches!(&error, Error::InUse { pid: Some(pid), .. } if *pid == program.id()), "{error}");
    assert!(error.to_string().starts_with(&format!("another Jobdeck (pid {}) is using /", program.id())), "{error}");
    // The end of its input tells the program to stop, in order.
    drop(program.stdin.take());
    assert!(program.wait()?.success());
    assert!(!dir.join("cluster/postmaster.pid").exists());
    Ok(std::fs::remove_dir_all(dir)?)
}

#[test]
fn a_lost_password_is_named() -> Result {
    let dir = dir("password")?;
    EmbeddedPostgres::start(&options(&dir))?.stop()?;
    std::fs::remove_file(dir.join("password"))?;
    let error = EmbeddedPostgres::start(&options(&dir)).err().ok_or("started without a password")?;
    assert!(matches!(&error, Error::PasswordLost { path } if path.ends_with("password")), "{error}");
    Ok(std::fs::remove_dir_all(dir)?)
}

#[test]
fn a_fresh_start_forgets() -> Result {
    let dir = dir("fresh")?;
    let server = EmbeddedPostgres::start(&options(&dir))?;
    query(&server.default_url(), "create table gone ()")?;
    drop(server);
    let server = EmbeddedPostgres::start(&Options { fresh: true, ..options(&dir) })?;
    assert_eq!(query(&server.default_url(), "select count(*) from pg_tables where tablename = 'gone'")?, "0");
    server.stop()?;
    Ok(std::fs::remove_dir_all(dir)?)
}
