//! The deck's event stream.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt as _;
use http::StatusCode;
use jobdeck::JobState;
use jobdeck::store::{Actor, UserRole};
use jobdeck_app::model::LiveUpdate;
use sqlx::{Connection as _, PgConnection};

use crate::support::{Deck, get};

struct Events {
    body: BodyDataStream,
    text: String,
}

impl Events {
    async fn open(deck: &Deck, path: &str, cookie: &str) -> Self {
        let request = get(path, Some(cookie)).body(Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(deck.router.clone(), request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert_eq!(response.headers()["cache-control"], "no-store");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next event as text. `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(event);
            }
            let chunk =
                tokio::time::timeout(Duration::from_secs(20), self.body.next()).await.expect("an event within 20 s");
            self.text.push_str(std::str::from_utf8(&chunk?.unwrap()).unwrap());
        }
    }

    /// The next update, past other events.
    async fn update(&mut self) -> Option<LiveUpdate> {
        loop {
            let event = self.next().await?;
            if event.contains("event: update") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[tokio::test]
async fn a_stream_begins_with_the_present_and_goes_on_with_changes() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let (one, two) = (deck.enqueue().await, deck.enqueue().await);
    let missing = "01a22b0e-9268-773c-b768-db5b8f4d3e27";
    let mut events = Events::open(&deck, &format!("/live?ids={one},{two},{missing}"), &cookie).await;
    assert_eq!(events.next().await.unwrap(), "retry: 2000");
    let first = events.update().await.unwrap();
    assert_eq!(first.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [one, two]);
    assert_eq!(first.gone.len(), 1);
    let begun = std::time::Instant::now();
    deck.store.job_cancel(two, &Actor { name: "test".to_owned(), ..Actor::default() }).await.unwrap();
    let second = events.update().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "a change took {:?}", begun.elapsed());
    assert_eq!((second.rows.len(), second.rows[0].id, second.rows[0].state), (1, two, JobState::Canceled));
    assert!(second.rows[0].version > first.rows[1].version);
    sqlx::query("delete from jobdeck.jobs where id = $1").bind(two).execute(deck.store.pool()).await.unwrap();
    assert_eq!(events.update().await.unwrap().gone, [two]);
}

#[tokio::test]
async fn counts_follow_the_filter() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    deck.enqueue().await;
    let mut all = Events::open(&deck, "/live?counts=1", &cookie).await;
    let mut other = Events::open(&deck, "/live?counts=1&type=export_markdown", &cookie).await;
    let count = |update: Option<LiveUpdate>| serde_json::to_string(&update.unwrap().counts.unwrap()).unwrap();
    let (before, none) = (count(all.update().await), count(other.update().await));
    assert!(before.contains('1') && !none.contains('1'), "{before} {none}");
    deck.enqueue().await;
    let after = count(all.update().await);
    assert!(after.contains('2'), "{after}");
}

/// Holds counting without a search up until the connection ends.
async fn lock_counters(deck: &Deck) -> PgConnection {
    let mut connection = PgConnection::connect(&deck.url).await.unwrap();
    sqlx::raw_sql("begin; lock table jobdeck.job_counters in access exclusive mode")
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}

#[tokio::test]
async fn a_slow_count_keeps_neither_the_list_nor_other_counts_waiting() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let id = deck.enqueue().await;
    let counted = deck.get("/jobs", Some(&cookie)).await;
    assert!(counted.text.contains("1 job matches."), "{}", counted.text);
    let locked = lock_counters(&deck).await;
    let begun = std::time::Instant::now();
    let page = deck.get("/jobs", Some(&cookie)).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert!(begun.elapsed() < Duration::from_secs(2), "the list took {:?}", begun.elapsed());
    assert!(page.text.contains(&format!("/jobs/{id}")), "{}", page.text);
    assert!(page.text.contains("Matching jobs are not counted yet"), "{}", page.text);
    let mut slow = Events::open(&deck, "/live?counts=1", &cookie).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = std::time::Instant::now();
    let mut other = Events::open(&deck, "/live?counts=1&q=nap", &cookie).await;
    assert!(other.update().await.unwrap().counts.is_some());
    assert!(begun.elapsed() < Duration::from_millis(1500), "another count took {:?}", begun.elapsed());
    // The late number comes by itself once it can be had.
    locked.close().await.unwrap();
    assert!(slow.update().await.unwrap().counts.is_some());
}

#[tokio::test]
async fn text_that_postgres_cannot_hold_is_left_out_and_pauses_nobody() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let id = deck.enqueue().await;
    for query in ["type=%00", "q=%00", "type=na%00p&q=n%00ap", "state=%00"] {
        let page = deck.get(&format!("/jobs?{query}"), Some(&cookie)).await;
        assert_eq!(page.status, StatusCode::OK, "{query}: {}", page.text);
        assert!(page.text.contains(&format!("/jobs/{id}")), "{query}");
        let mut events = Events::open(&deck, &format!("/live?counts=1&{query}"), &cookie).await;
        assert!(events.update().await.unwrap().counts.is_some(), "{query}");
        let address = deck.call("list_jobs", Some(&cookie), &[("address", query)]).await;
        assert_eq!(address.status, StatusCode::OK, "{query}: {}", address.text);
    }
}

#[tokio::test]
async fn nonsense_is_refused() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let crowd = vec!["01a22b0e-9268-773c-b768-db5b8f4d3e27"; 201].join(",");
    for query in ["ids=x", &format!("ids={crowd}")] {
        assert_eq!(deck.get(&format!("/live?{query}"), Some(&cookie)).await.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(deck.get("/live?counts=1", None).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_user_has_six_streams_and_gets_places_back() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(Events::open(&deck, "/live?counts=1", &cookie).await);
    }
    let seventh = deck.get("/live?counts=1", Some(&cookie)).await;
    assert_eq!(seventh.status, StatusCode::TOO_MANY_REQUESTS);
    open.pop();
    open.push(Events::open(&deck, "/live?counts=1", &cookie).await);
    let other = deck.signed_in(UserRole::Admin).await;
    open.push(Events::open(&deck, "/live?counts=1", &other).await);
}

#[tokio::test]
async fn a_revoked_session_loses_its_stream_within_ten_seconds() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let id = deck.enqueue().await;
    let mut events = Events::open(&deck, &format!("/live?ids={id}"), &cookie).await;
    events.update().await.unwrap();
    let begun = std::time::Instant::now();
    sqlx::query("update jobdeck.users set disabled_at = now()").execute(deck.store.pool()).await.unwrap();
    let mut last = String::new();
    while let Some(event) = events.next().await {
        last = event;
    }
    assert!(last.contains("event: signed-out"), "its last word tells the page why: {last}");
    assert!(begun.elapsed() < Duration::from_secs(11), "it took {:?}", begun.elapsed());
}

#[tokio::test]
async fn quiet_stream_says_every_ten_seconds_that_it_is_alive() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let mut events = Events::open(&deck, &format!("/live?ids={}", deck.enqueue().await), &cookie).await;
    events.update().await.unwrap();
    let beat = events.next().await.expect("goes on");
    assert!(beat.contains("event: beat"), "{beat}");
    // A script that was refused asks with HEAD whether its sign-in has ended.
    let head = |cookie: Option<&str>| {
        let mut request = get("/live?counts=1", cookie);
        request = request.method(http::Method::HEAD);
        tower::ServiceExt::oneshot(deck.router.clone(), request.body(Body::empty()).unwrap())
    };
    assert_eq!(head(None).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(head(Some(&cookie)).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn watching_does_not_count_as_activity() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    sqlx::query("update jobdeck.sign_in_sessions set last_seen_at = now() - interval '10 minutes'")
        .execute(deck.store.pool())
        .await
        .unwrap();
    let seen = async || -> bool {
        sqlx::query_scalar("select last_seen_at > now() - interval '1 minute' from jobdeck.sign_in_sessions")
            .fetch_one(deck.store.pool())
            .await
            .unwrap()
    };
    let mut events = Events::open(&deck, "/live?counts=1", &cookie).await;
    events.update().await.unwrap();
    assert!(!seen().await);
    // Neither does what an open page asks for by itself.
    let id = deck.enqueue().await.to_string();
    assert_eq!(deck.call("follow_job", Some(&cookie), &[("id", &id)]).await.status, StatusCode::OK);
    deck.get(&format!("/e/{id}"), Some(&cookie)).await;
    deck.get(&format!("/e/{id}/events"), Some(&cookie)).await;
    assert!(!seen().await);
    deck.get("/jobs", Some(&cookie)).await;
    assert!(seen().await);
}

#[tokio::test]
async fn streams_end_at_once_when_the_deck_stops() {
    let mut deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let id = deck.enqueue().await;
    let mut events = Events::open(&deck, &format!("/live?ids={id}&counts=1"), &cookie).await;
    events.update().await.unwrap();
    deck.trigger.take().unwrap().stop();
    let ended = tokio::time::timeout(Duration::from_secs(1), async { while events.next().await.is_some() {} }).await;
    assert!(ended.is_ok(), "the stream is still open");
}

#[tokio::test]
async fn nobody_watching_asks_nothing() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let id = deck.enqueue().await;
    let mut observer = PgConnection::connect(&deck.url).await.unwrap();
    let mut events = Events::open(&deck, &format!("/live?ids={id}&counts=1"), &cookie).await;
    events.update().await.unwrap();
    drop(events);
    // The reader may be in the middle of a look.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = last_statement(&mut observer).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(last_statement(&mut observer).await, before, "statements without a viewer");
}

/// When the deck last asked its database for anything.
async fn last_statement(observer: &mut PgConnection) -> Option<chrono::DateTime<chrono::Utc>> {
    sqlx::query_scalar(
        "select max(query_start) from pg_stat_activity
         where datname = current_database() and application_name = 'jobdeck'",
    )
    .fetch_one(observer)
    .await
    .unwrap()
}
