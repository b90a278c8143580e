//! The binary: commands, mistakes, start and stop.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::support::{PASSWORD, empty_database};

fn jobdeck(args: &[&str], url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobdeck"));
    command
        .args(args)
        .env("DATABASE_URL", url)
        .env("JOBDECK_LISTEN", "127.0.0.1:0")
        .env(
            "JOBDECK_DATA_DIR",
            std::env::temp_dir().join(format!("jobdeck-cli-test-{}", uuid::Uuid::now_v7().simple())),
        )
        .env_remove("JOBDECK_BASE_URL")
        .env_remove("JOBDECK_PASSWORD")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn outcome(mut command: Command) -> (bool, String, String) {
    let output =
        tokio::time::timeout(Duration::from_secs(30), command.output()).await.expect("ends within 30 s").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn users_are_created_and_listed() {
    let url = empty_database().await;
    let (ok, link, _) = outcome(jobdeck(&["users", "setup-link", "--base-url", "https://deck.example"], &url)).await;
    assert!(ok && link.starts_with("https://deck.example/setup?token="), "{link}");

    let args = ["users", "create", "--email", "ana@example.com", "--name", "Ana Costa", "--role", "operator", "--json"];
    let mut short = jobdeck(&args, &url);
    short.env("JOBDECK_PASSWORD", "too short");
    let (ok, _, error) = outcome(short).await;
    assert!(!ok && error.contains("at least 15 characters"), "{error}");

    let mut create = jobdeck(&args, &url).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    create.stdin.take().unwrap().write_all(format!("{PASSWORD}\n").as_bytes()).await.unwrap();
    let output = create.wait_with_output().await.unwrap();
    assert!(output.status.success());
    let created: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(created["role"], "operator");

    let mut again = jobdeck(&args, &url);
    again.env("JOBDECK_PASSWORD", PASSWORD);
    let (ok, _, error) = outcome(again).await;
    assert!(!ok && error.contains("is there already"), "{error}");

    let (ok, list, _) = outcome(jobdeck(&["users", "list", "--json"], &url)).await;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(ok);
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!((&list[0]["email"], &list[0]["id"]), (&"ana@example.com".into(), &created["id"]));
    let (_, list, _) = outcome(jobdeck(&["users", "list"], &url)).await;
    assert!(list.contains("ana@example.com  operator  Ana Costa"), "{list}");

    let (ok, _, error) = outcome(jobdeck(&["users", "setup-link"], &url)).await;
    assert!(!ok && error.contains("there are users already"), "{error}");
}

#[tokio::test]
async fn migrate_runs_twice() {
    let url = empty_database().await;
    for _ in 0..2 {
        let (ok, text, error) = outcome(jobdeck(&["migrate", "--json"], &url)).await;
        assert!(ok, "{error}");
        assert_eq!(text, "{\"schema\":\"current\"}\n");
    }
}

#[tokio::test]
async fn mistakes_are_told_in_one_line() {
    let url = empty_database().await;
    let mut wrong = jobdeck(&["work"], &url);
    wrong.env("JOBDECK_LEASE_SECS", "5").env("JOBDECK_HEARTBEAT_SECS", "3");
    let (ok, _, error) = outcome(wrong).await;
    assert!(!ok && error.contains("JOBDECK_HEARTBEAT_SECS is 3"), "{error}");

    let mut wrong = jobdeck(&["web"], &url);
    wrong.env("JOBDECK_TRUSTED_PROXIES", "127.0.0.1, proxy.local");
    let (ok, _, error) = outcome(wrong).await;
    assert!(!ok && error.contains("JOBDECK_TRUSTED_PROXIES must be IP addresses or networks"), "{error}");
    assert!(error.contains("\"proxy.local\" is none"), "{error}");

    let (ok, _, error) = outcome(jobdeck(&["serve"], "postgres://ana:secret@127.0.0.1:1/deck")).await;
    assert!(!ok && error.contains("cannot connect to the database at 127.0.0.1:1/deck"), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

async fn serve(url: &str) -> (Child, String, Option<String>) {
    let mut child = jobdeck(&["serve"], url).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut address, mut link) = (None, None);
    // The address, then the link where there is one, then a note about it.
    let read = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(url) = line.strip_prefix("Jobdeck is at http://") {
                address = Some(url.to_owned());
            } else if let Some((_, token)) = line.split_once("/setup?token=") {
                link = Some(token.to_owned());
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(15), read).await;
    (child, address.expect("an address"), link)
}

async fn fetch(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn serve_answers_and_stops_in_order_with_a_stream_open() {
    let url = empty_database().await;
    let (mut child, address, link) = serve(&url).await;
    let health = fetch(&address, &format!("GET /healthz HTTP/1.1\nHost: {address}\nConnection: close\n\n")).await;
    assert!(health.starts_with("HTTP/1.1 200 OK") && health.ends_with("ok\n"), "{health}");

    // The link signs the first admin in.
    let body =
        format!("token={}&name=Ana&email=ana%40example.com&password=seven+quiet+lanterns+hum", link.expect("a link"));
    let request = format!(
        "POST /setup HTTP/1.1\nHost: {address}\nOrigin: http://{address}\nConnection: close\n\
         Content-Type: application/x-www-form-urlencoded\nContent-Length: {}\n\n{body}",
        body.len()
    );
    let reply = fetch(&address, &request).await;
    let cookie =
        reply.split("set-cookie: ").nth(1).and_then(|rest| rest.split(';').next()).expect("a cookie").to_owned();

    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = format!("GET /live?counts=1 HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    while !seen.contains("event: update") {
        let mut buffer = [0; 4096];
        let n = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await.unwrap().unwrap();
        assert!(n > 0, "the stream ended: {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }

    let begun = Instant::now();
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    let status = tokio::time::timeout(Duration::from_secs(10), child.wait()).await.expect("stops within 10 s").unwrap();
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(4), "stopping took {:?}", begun.elapsed());
}
