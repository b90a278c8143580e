//! Closed by default, and who may do what.

use http::StatusCode;
use jobdeck::JobState;
use jobdeck::store::{Actor, UserRole};
use jobdeck_app::model::{Permission, Role};
use jobdeck_app::server_fns::SERVER_FUNCTIONS;

use crate::support::{Deck, post};

/// Every address of the deck, and what someone who is not signed in gets for GET and for POST.
const ROUTES: &[(&str, u16, u16)] = &[
    ("/", 303, 303),
    ("/jobs", 303, 303),
    ("/jobs/01a22b0e-9268-773c-b768-db5b8f4d3e27", 303, 303),
    ("/jobs/01a22b0e-9268-773c-b768-db5b8f4d3e27/payload.json", 303, 303),
    ("/jobs/01a22b0e-9268-773c-b768-db5b8f4d3e27/result.json", 303, 303),
    ("/demo", 303, 303),
    ("/no-such-page", 303, 303),
    ("/sign-out", 303, 303),
    ("/sign-in/", 303, 303),
    ("/live", 401, 401),
    ("/api/fn/no_such_function", 303, 303),
    ("/sign-in", 200, 422),
    ("/setup", 200, 422),
    ("/preferences", 405, 303),
    ("/healthz", 200, 405),
    ("/readyz", 200, 405),
    ("/robots.txt", 200, 405),
    ("/assets/no-such-file.js", 404, 405),
    ("/e/no-such-link", 404, 405),
];

#[tokio::test]
async fn every_route_is_closed_unless_listed() {
    let deck = Deck::new().await;
    for (path, on_get, on_post) in ROUTES {
        let got = deck.get(path, None).await;
        assert_eq!(got.status.as_u16(), *on_get, "GET {path}: {}", got.text);
        let posted = deck.post(path, None, &[]).await;
        assert_eq!(posted.status.as_u16(), *on_post, "POST {path}: {}", posted.text);
        for reply in [got, posted] {
            if reply.status == StatusCode::SEE_OTHER && *path != "/preferences" {
                assert!(reply.location().starts_with("/sign-in"), "{path} leads to {}", reply.location());
            }
        }
    }
    for (function, _) in SERVER_FUNCTIONS {
        let reply = deck.call(function, None, &[("id", "x"), ("ids", ""), ("back", "/jobs"), ("address", "")]).await;
        assert_eq!((reply.status, reply.text.as_str()), (StatusCode::UNAUTHORIZED, "\"SignedOut\""), "{function}");
    }
    assert_eq!(deck.audit().await, Vec::<String>::new());
}

#[tokio::test]
async fn every_server_function_is_in_the_table() {
    let deck = Deck::new().await;
    let mut registered: Vec<String> =
        leptos::server_fn::axum::server_fn_paths().map(|(path, method)| format!("{method} {path}")).collect();
    let mut listed: Vec<String> = SERVER_FUNCTIONS.iter().map(|(name, _)| format!("POST /api/fn/{name}")).collect();
    registered.sort();
    listed.sort();
    assert_eq!(registered, listed);
    drop(deck);
}

#[tokio::test]
async fn each_role_may_call_what_the_table_says() {
    let deck = Deck::new().await;
    let id = deck.enqueue().await.to_string();
    for role in [UserRole::Viewer, UserRole::Operator, UserRole::Admin] {
        let cookie = deck.signed_in(role).await;
        for (function, permission) in SERVER_FUNCTIONS {
            // A job that is not there: whoever may act is told so, and nothing changes.
            let form =
                [("id", "01a22b0e-9268-773c-b768-db5b8f4d3e27"), ("ids", &id), ("back", "/jobs"), ("address", "")];
            let reply = deck.call(function, Some(&cookie), &form).await;
            let may = Role::from(role).allows(*permission);
            assert_eq!(reply.status != StatusCode::FORBIDDEN, may, "{role:?} {function}: {}", reply.text);
            assert!(!reply.status.is_server_error(), "{role:?} {function}: {}", reply.text);
            assert_eq!(reply.text == "\"Forbidden\"", !may, "{role:?} {function}: {}", reply.text);
        }
    }
    let refused = deck.audit().await;
    let expected = SERVER_FUNCTIONS
        .iter()
        .flat_map(|(_, permission)| Role::ALL.map(|role| role.allows(*permission)))
        .filter(|may| !may)
        .count();
    assert_eq!(refused.len(), expected, "{refused:?}");
    assert!(SERVER_FUNCTIONS.iter().any(|(_, permission)| *permission == Permission::CancelJobs));
}

#[tokio::test]
async fn operators_cancel_is_refused_and_noted_and_changes_nothing() {
    let deck = Deck::new().await;
    let id = deck.enqueue().await;
    let cookie = deck.signed_in(UserRole::Operator).await;
    let form = [("id", &*id.to_string()), ("back", "/jobs")];
    let by_script = deck.call("cancel_job", Some(&cookie), &form).await;
    assert_eq!(by_script.status, StatusCode::FORBIDDEN);
    // The same as a form without script, on a page that is open to operators.
    let by_form = deck.post("/api/fn/cancel_job", Some(&cookie), &form).await;
    assert_ne!(by_form.status, StatusCode::OK, "{}", by_form.text);
    assert_eq!(deck.state_of(id).await, JobState::Pending);
    assert_eq!(deck.audit().await, ["cancel_job refused"; 2]);
    let entries = deck.store.audit_list(&id.to_string(), 10).await.unwrap();
    assert_eq!(entries[0].actor, "The operator");
}

#[tokio::test]
async fn viewers_retry_is_refused_and_operators_is_done() {
    let deck = Deck::new().await;
    let id = deck.enqueue().await;
    deck.store.job_cancel(id, &Actor { name: "test".to_owned(), ..Actor::default() }).await.unwrap();
    let form = [("id", &*id.to_string()), ("back", "/jobs")];
    let viewer = deck.signed_in(UserRole::Viewer).await;
    assert_eq!(deck.call("retry_job", Some(&viewer), &form).await.status, StatusCode::FORBIDDEN);
    assert_eq!(deck.state_of(id).await, JobState::Canceled);
    let operator = deck.signed_in(UserRole::Operator).await;
    let done = deck.call("retry_job", Some(&operator), &form).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.text);
    assert_eq!(deck.state_of(id).await, JobState::Pending);
    assert_eq!(deck.audit().await, ["cancel_job done", "retry_job refused", "retry_job done"]);
}

#[tokio::test]
async fn a_refusal_is_noted_whatever_its_target_is() {
    let deck = Deck::new().await;
    let viewer = deck.signed_in(UserRole::Viewer).await;
    // Incomparable characters, so that no compression makes them fit the index.
    let long: String = (0..6_000_u32).filter_map(|n| char::from_u32(0x4e00 + n * 7 % 20_000)).collect();
    for target in ["a\0b", "", "\0", &long] {
        let reply = deck.call("retry_job", Some(&viewer), &[("id", target), ("back", "/jobs")]).await;
        assert_eq!((reply.status, reply.text.as_str()), (StatusCode::FORBIDDEN, "\"Forbidden\""));
    }
    let targets: Vec<String> = sqlx::query_scalar("select target from jobdeck.audit_log order by id")
        .fetch_all(deck.store.pool())
        .await
        .unwrap();
    assert_eq!(targets.len(), 4);
    assert_eq!(targets[0], "a\u{fffd}b");
    assert!(long.starts_with(&targets[3]) && targets[3].chars().count() == 300, "{}", targets[3]);
}

#[tokio::test]
async fn admins_cancel_by_a_plain_form_returns_to_its_page() {
    let deck = Deck::new().await;
    let id = deck.enqueue().await;
    let admin = deck.signed_in(UserRole::Admin).await;
    let mut request =
        post("/api/fn/cancel_job", Some(&admin), &[("id", &*id.to_string()), ("back", "/jobs?state=pending")]);
    request.headers_mut().insert("referer", "https://evil.example/a".parse().unwrap());
    let reply = deck.send(request).await;
    assert!(reply.status.is_redirection(), "{} {}", reply.status, reply.text);
    assert!(reply.location().starts_with("/jobs?state=pending"), "{}", reply.location());
    assert_eq!(deck.state_of(id).await, JobState::Canceled);
}

#[tokio::test]
async fn viewers_may_not_enqueue() {
    let deck = Deck::new().await;
    let viewer = deck.signed_in(UserRole::Viewer).await;
    let form = [("title", "Notes"), ("format", "html"), ("markdown", "# Notes"), ("mishap", "none")];
    let reply = deck.post("/demo", Some(&viewer), &form).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN, "{}", reply.text);
    let n_jobs: i64 =
        sqlx::query_scalar("select count(*) from jobdeck.jobs").fetch_one(deck.store.pool()).await.unwrap();
    assert_eq!(n_jobs, 0);
    assert_eq!(deck.audit().await.len(), 1);
}

#[tokio::test]
async fn pages_are_drawn_for_each_role_and_unknown_addresses_are_404() {
    let deck = Deck::new().await;
    let id = deck.enqueue().await;
    for role in [UserRole::Viewer, UserRole::Operator, UserRole::Admin] {
        let cookie = deck.signed_in(role).await;
        for path in ["/jobs", "/jobs?state=pending&q=nap", &format!("/jobs/{id}")] {
            let page = deck.get(path, Some(&cookie)).await;
            assert_eq!(page.status, StatusCode::OK, "{path}");
            assert!(page.text.contains("nap"), "{path} does not show the job:\n{}", page.text);
        }
        let lost = deck.get("/no/such/page", Some(&cookie)).await;
        assert_eq!(lost.status, StatusCode::NOT_FOUND);
        assert!(lost.text.contains("<html"), "404 is a page");
        assert_eq!(deck.get("/", Some(&cookie)).await.location(), "/jobs");
    }
}
