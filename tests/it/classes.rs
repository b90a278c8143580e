//! Which class and code an error becomes: the tables of the conversions, and how long a response asks to wait.

use std::io::ErrorKind;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use jobdeck::FailureClass::{self, RateLimited, Retryable, Unrecoverable};
use jobdeck::{JobError, MAX_RETRY_AFTER, MIN_RETRY_AFTER, code, parse_retry_after};
use proptest::prelude::*;

use crate::support::Db;

fn sorted(error: &JobError) -> (FailureClass, &str) {
    (error.class, error.code.as_str())
}

fn response(status: u16, headers: &[(&str, &str)], body: &str) -> JobError {
    let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    JobError::from_response_at(status, header, body, now())
}

/// Sunday, 6 November 1994, 08:49:37: the example of RFC 9110.
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(784_111_777, 0).expect("in range")
}

#[test]
fn timeout_reset_and_503_are_retryable() {
    let io = |kind: ErrorKind| JobError::from(std::io::Error::from(kind));
    assert_eq!(sorted(&io(ErrorKind::TimedOut)), (Retryable, code::TIMEOUT));
    for kind in [ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused, ErrorKind::BrokenPipe] {
        assert_eq!(sorted(&io(kind)), (Retryable, code::CONNECTION), "{kind}");
    }
    for status in [425, 500, 502, 503, 504, 529, 599] {
        assert_eq!(sorted(&response(status, &[], "")), (Retryable, code::HTTP_5XX), "{status}");
    }
    assert_eq!(sorted(&response(408, &[], "")), (Retryable, code::TIMEOUT));
}

#[test]
fn explicit_400_and_404_are_unrecoverable_and_so_is_every_other_4xx() {
    let codes = [
        (400, code::INVALID_PAYLOAD),
        (401, code::INVALID_CREDENTIALS),
        (402, code::QUOTA),
        (403, code::PERMISSION),
        (404, code::NOT_FOUND),
        (405, code::HTTP_4XX),
        (407, code::INVALID_CREDENTIALS),
        (409, code::HTTP_4XX),
        (410, code::NOT_FOUND),
        (413, code::INVALID_CONTENT),
        (418, code::HTTP_4XX),
        (422, code::INVALID_PAYLOAD),
        (451, code::PERMISSION),
    ];
    for (status, expected) in codes {
        assert_eq!(sorted(&response(status, &[], "")), (Unrecoverable, expected), "{status}");
    }
    for status in (400..500).filter(|status| ![408, 425, 429].contains(status)) {
        assert_eq!(response(status, &[], "").class, Unrecoverable, "{status}");
    }
    for status in [0, 100, 204, 302, 600, u16::MAX] {
        assert_eq!(sorted(&response(status, &[], "")), (Unrecoverable, code::HTTP_UNEXPECTED), "{status}");
    }
}

#[test]
fn invalid_parameters_and_missing_resources_are_unrecoverable_in_io_too() {
    let io = |kind: ErrorKind| JobError::from(std::io::Error::from(kind));
    assert_eq!(sorted(&io(ErrorKind::NotFound)), (Unrecoverable, code::NOT_FOUND));
    assert_eq!(sorted(&io(ErrorKind::PermissionDenied)), (Unrecoverable, code::PERMISSION));
    assert_eq!(sorted(&io(ErrorKind::QuotaExceeded)), (Unrecoverable, code::QUOTA));
    assert_eq!(sorted(&io(ErrorKind::StorageFull)), (Retryable, code::IO));
}

#[test]
fn status_429_is_rate_limited_for_as_long_as_the_server_says() {
    let wait = |headers: &[(&str, &str)]| {
        let error = response(429, headers, "slow down");
        assert_eq!(sorted(&error), (RateLimited, code::SLOW_DOWN));
        error.retry_after
    };
    let secs = |secs| Some(Duration::from_secs(secs));
    assert_eq!(wait(&[]), None, "the type's backoff decides");
    assert_eq!(wait(&[("retry-after", "soon")]), None);
    assert_eq!(wait(&[("retry-after", "120")]), secs(120));
    assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")]), secs(30));
    assert_eq!(wait(&[("retry-after-ms", "2500"), ("retry-after", "9")]), Some(Duration::from_millis(2500)));
    // GitHub's reset counts only when nothing is left, and only as seconds since 1970.
    let reset = |left, at| wait(&[("x-ratelimit-remaining", left), ("x-ratelimit-reset", at), ("date", DATE)]);
    const DATE: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
    assert_eq!(reset("0", "1000000060"), secs(60));
    assert_eq!(reset("7", "1000000060"), None);
    assert_eq!(reset("0", "60"), None);
    assert_eq!(reset("0", "99999999999999999999"), Some(MAX_RETRY_AFTER));
}

#[test]
fn date_is_counted_from_the_servers_own_clock() {
    let headers = [("date", "Tue, 01 Dec 2026 12:00:00 GMT"), ("retry-after", "Tue, 01 Dec 2026 12:00:42 GMT")];
    assert_eq!(response(429, &headers, "").retry_after, Some(Duration::from_secs(42)));
}

#[test]
fn status_503_with_retry_after_is_retryable_after_the_wait_it_names() {
    let error = response(503, &[("retry-after", "17")], "maintenance");
    assert_eq!((sorted(&error), error.retry_after), ((Retryable, code::HTTP_5XX), Some(Duration::from_secs(17))));
    assert_eq!(response(404, &[("retry-after", "17")], "").retry_after, None, "waiting does not help");
}

#[test]
fn status_403_that_asks_to_wait_is_a_rate_limit() {
    let error = response(403, &[("retry-after", "60")], "secondary rate limit");
    assert_eq!((sorted(&error), error.retry_after), ((RateLimited, code::SLOW_DOWN), Some(Duration::from_secs(60))));
}

#[test]
fn used_up_quota_is_not_waited_for() {
    let body = r#"{"error": {"type": "insufficient_quota", "message": "check your plan"}}"#;
    let error = response(429, &[("retry-after", "1")], body);
    assert_eq!((sorted(&error), error.retry_after), ((Unrecoverable, code::QUOTA), None));
    assert!(error.detail.contains("check your plan"), "{}", error.detail);
}

#[test]
fn detail_carries_status_and_the_start_of_the_body_only() {
    assert_eq!(response(500, &[], " oops\n").detail, "HTTP 500: oops");
    assert_eq!(response(500, &[], "").detail, "HTTP 500");
    let long = response(500, &[], &"é".repeat(1_000_000)).detail;
    assert!(long.starts_with("HTTP 500: éé") && long.ends_with("é…") && long.len() < 1100, "{} bytes", long.len());
    let broken = JobError::from_response(500, |_| None, b"\xc3\x28 not text");
    assert_eq!(broken.detail, "HTTP 500: \u{fffd}( not text");
}

#[test]
fn retry_after_is_read_as_seconds_and_in_the_three_date_forms_of_http() {
    let at = |value: &str| parse_retry_after(value, now() - TimeDelta::seconds(90)).map(|wait| wait.as_secs());
    assert_eq!(at("Sun, 06 Nov 1994 08:49:37 GMT"), Some(90), "IMF-fixdate");
    assert_eq!(at("Sunday, 06-Nov-94 08:49:37 GMT"), Some(90), "RFC 850");
    assert_eq!(at("Sun Nov  6 08:49:37 1994"), Some(90), "asctime");
    assert_eq!((at("90"), at("  90 "), at("90, 120")), (Some(90), Some(90), Some(90)));
    assert_eq!(at("1.2"), Some(2), "never too early");
    for nonsense in ["", "soon", "90 s", "9e9", "+", "-", ".", "١٢", "0x10", "Sun, 99 Nov 1994 08:49:37 GMT"] {
        assert_eq!(at(nonsense), None, "{nonsense:?}");
    }
}

#[test]
fn waits_that_are_over_or_absurd_have_a_stated_bound() {
    let wait = |value: &str| parse_retry_after(value, now());
    for over in ["0", "-0", "-30", "0.2", "Sun, 06 Nov 1994 08:49:36 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        assert_eq!(wait(over), Some(MIN_RETRY_AFTER), "{over}");
    }
    for absurd in ["86401", "18446744073709551615", "99999999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        assert_eq!(wait(absurd), Some(MAX_RETRY_AFTER), "{absurd}");
    }
}

proptest! {
    #[test]
    fn retry_after_never_panics_and_stays_in_its_bounds(
        value in prop_oneof![
            "(?s).{0,40}",
            "-?[0-9]{1,40}(\\.[0-9]{0,5})?",
            "(Sun|Mon|Tue), [0-9]{2} (Jan|Feb|Nov|Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
            "(Sunday|Friday), [0-9]{2}-(Jan|Feb)-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
            "Sun (Jan|Feb) [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4}",
        ],
        status in any::<u16>(),
        seconds in -8_334_601_228_800i64..8_210_266_876_799,
    ) {
        let now = DateTime::from_timestamp(seconds, 999_999_999).expect("in range");
        if let Some(wait) = parse_retry_after(&value, now) {
            prop_assert!((MIN_RETRY_AFTER..=MAX_RETRY_AFTER).contains(&wait));
        }
        let error = JobError::from_response_at(status, |_| Some(&value), &value, now);
        prop_assert!(error.retry_after.is_none_or(|wait| (MIN_RETRY_AFTER..=MAX_RETRY_AFTER).contains(&wait)));
    }
}

#[test]
fn rate_limit_until_a_time_waits_until_then_and_names_its_provider() {
    let error = JobError::rate_limited_until(Utc::now() + TimeDelta::seconds(100), "busy").provider("openai");
    let wait = error.retry_after.expect("a wait");
    assert!(wait <= Duration::from_secs(100) && wait > Duration::from_secs(50), "{wait:?}");
    assert_eq!((sorted(&error), error.provider.as_deref()), ((RateLimited, code::SLOW_DOWN), Some("openai")));
    let over = JobError::rate_limited_until(DateTime::<Utc>::MIN_UTC, "busy");
    assert_eq!((over.retry_after, over.provider), (Some(Duration::ZERO), None));
    assert!(JobError::rate_limited_until(DateTime::<Utc>::MAX_UTC, "busy").retry_after > Some(MAX_RETRY_AFTER));
}

#[tokio::test]
async fn database_errors_are_sorted_by_what_postgres_says() {
    let db = Db::new().await;
    sqlx::raw_sql("create table things (id int primary key check (id > 0)); insert into things values (1)")
        .execute(db.store.pool())
        .await
        .expect("prepared");
    let statements = [
        ("insert into things values (1)", Unrecoverable, code::INVALID_CONTENT),
        ("insert into things values (-1)", Unrecoverable, code::INVALID_CONTENT),
        ("insert into things values (null)", Unrecoverable, code::INVALID_CONTENT),
        ("select 1 / 0", Unrecoverable, code::INVALID_CONTENT),
        ("select 'x'::int", Unrecoverable, code::INVALID_CONTENT),
        ("select * from not_migrated_yet", Retryable, code::DATABASE),
        ("set local role pg_monitor; insert into things values (2)", Unrecoverable, code::PERMISSION),
        ("set local statement_timeout = '10ms'; select pg_sleep(5)", Retryable, code::TIMEOUT),
        ("set transaction read only; insert into things values (2)", Retryable, code::DATABASE),
        ("select pg_terminate_backend(pg_backend_pid())", Retryable, code::CONNECTION),
    ];
    for (statement, class, expected) in statements {
        let mut tx = db.store.begin().await.expect("begun");
        let error = sqlx::raw_sql(statement).execute(&mut *tx).await.expect_err(statement);
        assert_eq!(sorted(&JobError::from(error)), (class, expected), "{statement}");
    }
    for (state, class, expected) in [
        ("40001", Retryable, code::DATABASE),
        ("40P01", Retryable, code::DATABASE),
        ("53300", Retryable, code::CONNECTION),
        ("53100", Retryable, code::CONNECTION),
        ("57P03", Retryable, code::CONNECTION),
        ("55P03", Retryable, code::TIMEOUT),
        ("28P01", Unrecoverable, code::INVALID_CREDENTIALS),
        ("08006", Retryable, code::CONNECTION),
        ("XX000", Retryable, code::DATABASE),
    ] {
        let raise = format!("do $$ begin raise exception 'told to' using errcode = '{state}'; end $$");
        let raised = sqlx::raw_sql(sqlx::AssertSqlSafe(raise)).execute(db.store.pool()).await.expect_err("raised");
        let error = JobError::from(raised);
        assert_eq!(sorted(&error), (class, expected), "{state}");
        assert!(error.detail.contains("told to"), "{}", error.detail);
    }
    let missing = sqlx::query("select 1 where false").fetch_one(db.store.pool()).await.expect_err("no row");
    assert_eq!(sorted(&missing.into()), (Unrecoverable, code::NOT_FOUND));
    db.store.pool().close().await;
    let closed = sqlx::query("select 1").fetch_one(db.store.pool()).await.expect_err("closed");
    assert_eq!(sorted(&closed.into()), (Retryable, code::CONNECTION));
}

#[tokio::test]
async fn database_that_refuses_connections_is_retryable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let url = format!("postgres://nobody@127.0.0.1:{port}/none");
    let error = <sqlx::PgConnection as sqlx::Connection>::connect(&url).await.expect_err("refused");
    assert_eq!(sorted(&error.into()), (Retryable, code::CONNECTION));
}

#[tokio::test]
async fn object_store_errors_are_sorted_by_what_the_store_says() {
    use object_store::{Error, ObjectStoreExt, PutMode, PutPayload};
    let folder = std::env::temp_dir().join(format!("jobdeck-test-{}", uuid::Uuid::now_v7().simple()));
    std::fs::create_dir(&folder).expect("made");
    let store = object_store::local::LocalFileSystem::new_with_prefix(&folder).expect("a folder");
    let path = object_store::path::Path::from("a.pdf");
    let missing = store.get(&path).await.expect_err("missing");
    assert_eq!(sorted(&missing.into()), (Unrecoverable, code::NOT_FOUND));
    store.put(&path, PutPayload::from_static(b"x")).await.expect("put");
    let twice = object_store::ObjectStore::put_opts(&store, &path, PutPayload::new(), PutMode::Create.into()).await;
    assert_eq!(sorted(&twice.expect_err("there already").into()), (Unrecoverable, code::IO));
    std::fs::remove_dir_all(&folder).expect("removed");

    let source = || "x".into();
    let path = || "a.pdf".to_owned();
    let generic = |source| JobError::from(Error::Generic { store: "S3", source });
    let io = |kind: ErrorKind| generic(std::io::Error::from(kind).into());
    let cloud = |status: &str| generic(format!("Server returned non-2xx status code: {status}: body").into());
    let table = [
        (Error::PermissionDenied { path: path(), source: source() }.into(), Unrecoverable, code::PERMISSION),
        (Error::Unauthenticated { path: path(), source: source() }.into(), Unrecoverable, code::INVALID_CREDENTIALS),
        (Error::Precondition { path: path(), source: source() }.into(), Retryable, code::IO),
        (Error::NotSupported { source: source() }.into(), Unrecoverable, code::IO),
        (io(ErrorKind::PermissionDenied), Unrecoverable, code::PERMISSION),
        (io(ErrorKind::ConnectionRefused), Retryable, code::CONNECTION),
        (io(ErrorKind::TimedOut), Retryable, code::TIMEOUT),
        (io(ErrorKind::StorageFull), Retryable, code::IO),
        (cloud("503 Service Unavailable"), Retryable, code::HTTP_5XX),
        (cloud("429 Too Many Requests"), RateLimited, code::SLOW_DOWN),
        (cloud("400 Bad Request"), Unrecoverable, code::INVALID_PAYLOAD),
        (generic("no more words".into()), Retryable, code::CONNECTION),
    ];
    for (error, class, expected) in table {
        assert_eq!(sorted(&error), (class, expected), "{error}");
    }
}

#[test]
fn every_code_is_named_once_and_stays_as_it_is_when_stored() {
    let mut codes = code::ALL.to_vec();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), code::ALL.len());
    for code in codes {
        assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'), "{code}");
    }
}
