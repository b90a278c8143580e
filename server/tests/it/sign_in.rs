//! Signing in and out, the first admin, and what guesses cost.

use std::time::Duration;

use http::StatusCode;
use jobdeck::store::UserRole;

use crate::support::{COOKIE, Deck, PASSWORD, Reply};

const ADMIN: &[(&str, &str)] = &[("email", "Admin@Example.com "), ("password", PASSWORD)];

#[tokio::test]
async fn signing_in_sets_a_strict_cookie_and_leads_back() {
    let deck = Deck::new().await;
    deck.user(UserRole::Admin).await;
    let closed = deck.get("/jobs?state=failed&q=a%20b", None).await;
    assert_eq!(closed.location(), "/sign-in?next=%2Fjobs%3Fstate%3Dfailed%26q%3Da%2520b");
    assert!(closed.set_cookie(COOKIE).is_none(), "no cookie before it is needed");

    let mut form = ADMIN.to_vec();
    form.push(("next", "/jobs?state=failed&q=a%20b"));
    let reply = deck.post("/sign-in", None, &form).await;
    assert_eq!((reply.status, reply.location()), (StatusCode::SEE_OTHER, "/jobs?state=failed&q=a%20b"));
    let (cookie, line) = reply.set_cookie(COOKIE).expect("a cookie");
    for part in ["; HttpOnly", "; SameSite=Lax", "; Secure", "; Path=/"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!line.contains("Domain"), "{line}");
    assert_eq!(cookie.len(), COOKIE.len() + 1 + 43, "256 bits");
    assert_eq!(deck.get("/jobs", Some(&cookie)).await.status, StatusCode::OK);
    let stored: i64 =
        sqlx::query_scalar("select count(*) from jobdeck.sign_in_sessions where encode(id_digest, 'escape') = $1")
            .bind(cookie.split_once('=').unwrap().1)
            .fetch_one(deck.store.pool())
            .await
            .unwrap();
    assert_eq!(stored, 0, "only the digest is kept");
    assert_eq!(deck.audit().await, ["sign_in done"]);
}

#[tokio::test]
async fn over_plain_http_the_cookie_has_no_prefix() {
    let deck = Deck::at("http://deck.example").await;
    deck.user(UserRole::Admin).await;
    let mut request = crate::support::post("/sign-in", None, ADMIN);
    request.headers_mut().insert("origin", "http://deck.example".parse().unwrap());
    let reply = deck.send(request).await;
    let (_, line) = reply.set_cookie("jobdeck").expect("a cookie");
    assert!(line.contains("; HttpOnly") && !line.contains("Secure"), "{line}");
}

#[tokio::test]
async fn each_sign_in_has_a_new_id_and_ends_the_old_one() {
    let deck = Deck::new().await;
    let planted = format!("{COOKIE}={}", "A".repeat(43));
    deck.user(UserRole::Admin).await;
    let first = deck.post("/sign-in", Some(&planted), ADMIN).await.set_cookie(COOKIE).unwrap().0;
    assert_ne!(first, planted);
    let second = deck.post("/sign-in", Some(&first), ADMIN).await.set_cookie(COOKIE).unwrap().0;
    assert_ne!(second, first);
    for dead in [&planted, &first] {
        assert_eq!(deck.get("/jobs", Some(dead)).await.status, StatusCode::SEE_OTHER);
    }
    assert_eq!(deck.get("/jobs", Some(&second)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn signing_out_ends_the_session_on_the_server() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    // Not by a link.
    assert_ne!(deck.get("/sign-out", Some(&cookie)).await.status, StatusCode::SEE_OTHER);
    assert_eq!(deck.get("/jobs", Some(&cookie)).await.status, StatusCode::OK);
    let reply = deck.post("/sign-out", Some(&cookie), &[]).await;
    assert_eq!((reply.status, reply.location()), (StatusCode::SEE_OTHER, "/sign-in"));
    assert!(reply.set_cookie(COOKIE).unwrap().1.contains("Max-Age=0"));
    assert!(reply.headers.contains_key("clear-site-data"));
    assert_eq!(deck.get("/jobs", Some(&cookie)).await.status, StatusCode::SEE_OTHER);
    assert_eq!(deck.audit().await, ["sign_out done"]);
}

#[tokio::test]
async fn unknown_address_and_wrong_password_look_alike() {
    let deck = Deck::new().await;
    deck.user(UserRole::Admin).await;
    let mut times = Vec::new();
    for email in ["admin@example.com", "nobody@example.com"] {
        let begun = std::time::Instant::now();
        let reply = deck.post("/sign-in", None, &[("email", email), ("password", "not the right password")]).await;
        times.push(begun.elapsed());
        assert_eq!(reply.location(), "/sign-in?error=wrong");
        assert!(reply.set_cookie(COOKIE).is_none());
    }
    let (known, unknown) = (times[0], times[1]);
    assert!(unknown > known / 4, "an unknown address answers in {unknown:?}, a known one in {known:?}");
    assert_eq!(deck.audit().await, ["sign_in refused"; 2]);
    // What was typed as an address is only kept when it is one of ours.
    let targets: Vec<Option<String>> = sqlx::query_scalar("select target from jobdeck.audit_log order by id")
        .fetch_all(deck.store.pool())
        .await
        .unwrap();
    assert_eq!(targets, [Some("admin@example.com".to_owned()), None]);
}

#[tokio::test]
async fn passwords_of_any_length_get_an_answer() {
    let deck = Deck::new().await;
    deck.user(UserRole::Admin).await;
    for password in ["", "x", &"x".repeat(1025), &"字".repeat(2_000), "a\0b"] {
        let reply = deck.post("/sign-in", None, &[("email", "nobody@example.com"), ("password", password)]).await;
        assert_eq!(reply.status, StatusCode::SEE_OTHER);
    }
    let reply = deck.post("/sign-in", None, &[("email", "a\0@example.com"), ("password", "x")]).await;
    assert_eq!(reply.location(), "/sign-in?error=wrong");
}

#[tokio::test]
async fn guessing_is_slowed_down_and_open_sessions_stay() {
    let deck = Deck::new().await;
    let open = deck.signed_in(UserRole::Admin).await;
    let wrong = [("email", "admin@example.com"), ("password", "wrong wrong wrong wrong")];
    let wait_of = |reply: &Reply| {
        let wait = reply.location().strip_prefix("/sign-in?error=wait&wait=").map(|wait| wait.parse::<u64>().unwrap());
        assert!(wait.is_some() || reply.location() == "/sign-in?error=wrong", "{}", reply.location());
        wait
    };
    let mut n_guesses = 0;
    // Up to a wait that outlasts the slowest test machine's next request.
    loop {
        match wait_of(&deck.post("/sign-in", None, &wrong).await) {
            None => n_guesses += 1,
            Some(wait) if wait < 4 => tokio::time::sleep(Duration::from_secs(wait)).await,
            Some(_) => break,
        }
        assert!(n_guesses < 30, "guessing is never slowed down");
    }
    assert!(n_guesses >= 6, "slowed down after {n_guesses}");
    // Now even the right password has to wait, and is told for how long.
    let wait = wait_of(&deck.post("/sign-in", None, ADMIN).await).expect("a wait");
    assert_eq!(deck.get("/jobs", Some(&open)).await.status, StatusCode::OK);
    deck.user(UserRole::Viewer).await;
    let other = deck.post("/sign-in", None, &[("email", "viewer@example.com"), ("password", PASSWORD)]).await;
    assert!(other.set_cookie(COOKIE).is_some(), "other accounts are not slowed down");
    tokio::time::sleep(Duration::from_secs(wait)).await;
    assert!(deck.post("/sign-in", None, ADMIN).await.set_cookie(COOKIE).is_some());
}

#[tokio::test]
async fn an_act_that_cannot_be_noted_is_not_done() {
    let deck = Deck::new().await;
    let token = deck.setup_token().await;
    let refuse = "create function jobdeck.refuse_entry() returns trigger language plpgsql as
                    $$ begin raise exception 'disk full' using errcode = '53100'; end $$;
                  create trigger refuse_entry before insert on jobdeck.audit_log execute function jobdeck.refuse_entry()";
    sqlx::raw_sql(refuse).execute(deck.store.pool()).await.unwrap();
    let form = [("token", &*token), ("name", "Ana Costa"), ("email", "ana@example.com"), ("password", PASSWORD)];
    assert_eq!(deck.post("/setup", None, &form).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!deck.store.user_exists().await.unwrap());
    sqlx::query("drop trigger refuse_entry on jobdeck.audit_log").execute(deck.store.pool()).await.unwrap();
    assert!(deck.post("/setup", None, &form).await.set_cookie(COOKIE).is_some());

    let open = deck.post("/sign-in", None, &[("email", "ana@example.com"), ("password", PASSWORD)]).await;
    let open = open.set_cookie(COOKIE).unwrap().0;
    let create =
        "create trigger refuse_entry before insert on jobdeck.audit_log execute function jobdeck.refuse_entry()";
    sqlx::query(create).execute(deck.store.pool()).await.unwrap();
    let sessions = async || -> i64 {
        let count = "select count(*) from jobdeck.sign_in_sessions";
        sqlx::query_scalar(count).fetch_one(deck.store.pool()).await.unwrap()
    };
    let before = sessions().await;
    let reply = deck.post("/sign-in", Some(&open), &[("email", "ana@example.com"), ("password", PASSWORD)]).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.set_cookie(COOKIE).is_none());
    assert_eq!(deck.post("/sign-out", Some(&open), &[]).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(sessions().await, before, "neither signed in nor out");
    assert_eq!(deck.get("/jobs", Some(&open)).await.status, StatusCode::OK);
    assert_eq!(deck.audit().await, ["create_first_admin done", "sign_in done", "sign_in done"]);
}

#[tokio::test]
async fn strangers_fill_no_audit_log() {
    let deck = Deck::new().await;
    for n in 0..90 {
        let email = format!("stranger{n}@example.com");
        // Nobody's password, so that none is hashed.
        let form = [("email", &*email), ("password", &"x".repeat(1025))];
        assert_eq!(deck.post("/sign-in", None, &form).await.location(), "/sign-in?error=wrong");
    }
    assert_eq!(deck.audit().await, ["sign_in refused"; 60]);
}

#[tokio::test]
async fn trouble_with_the_database_is_no_wrong_password() {
    let deck = Deck::new().await;
    deck.user(UserRole::Admin).await;
    let rename = async |from: &str, to: &str| {
        let statement = format!("alter table jobdeck.{from} rename to {to}");
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(deck.store.pool()).await.unwrap();
    };
    rename("users", "elsewhere").await;
    for _ in 0..10 {
        let reply = deck.post("/sign-in", None, ADMIN).await;
        assert_eq!((reply.status, reply.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "1"));
    }
    rename("elsewhere", "users").await;
    assert!(deck.post("/sign-in", None, ADMIN).await.set_cookie(COOKIE).is_some(), "no guess was counted");
}

#[tokio::test]
async fn next_stays_on_the_deck() {
    let deck = Deck::new().await;
    deck.user(UserRole::Admin).await;
    for next in
        ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\tevil", "/sign-out"]
    {
        let mut form = ADMIN.to_vec();
        form.push(("next", next));
        assert_eq!(deck.post("/sign-in", None, &form).await.location(), "/jobs", "{next}");
        let reply = deck.post("/preferences", None, &[("theme", "dark"), ("next", next)]).await;
        assert_eq!(reply.location(), "/jobs", "{next}");
    }
}

#[tokio::test]
async fn idle_expired_and_disabled_sessions_end() {
    let deck = Deck::new().await;
    for statement in [
        "update jobdeck.sign_in_sessions set last_seen_at = now() - interval '31 minutes'",
        "update jobdeck.sign_in_sessions set expires_at = now() - interval '1 second'",
        "update jobdeck.users set disabled_at = now()",
        "delete from jobdeck.users",
    ] {
        sqlx::query("delete from jobdeck.users").execute(deck.store.pool()).await.unwrap();
        let cookie = deck.signed_in(UserRole::Admin).await;
        assert_eq!(deck.get("/jobs", Some(&cookie)).await.status, StatusCode::OK);
        sqlx::query(statement).execute(deck.store.pool()).await.unwrap();
        assert_eq!(deck.get("/jobs", Some(&cookie)).await.status, StatusCode::SEE_OTHER, "{statement}");
    }
    // Someone disabled cannot come back either.
    sqlx::query("delete from jobdeck.users").execute(deck.store.pool()).await.unwrap();
    deck.user(UserRole::Admin).await;
    sqlx::query("update jobdeck.users set disabled_at = now()").execute(deck.store.pool()).await.unwrap();
    assert!(deck.post("/sign-in", None, ADMIN).await.location().contains("error=wrong"));
}

#[tokio::test]
async fn the_first_admin_comes_in_by_the_link_once() {
    let deck = Deck::new().await;
    let token = deck.setup_token().await;
    assert_eq!(deck.get(&format!("/setup?token={token}"), None).await.status, StatusCode::OK);
    let form = [("token", &*token), ("name", "Ana Costa"), ("email", "ana@example.com"), ("password", PASSWORD)];
    let reply = deck.post("/setup", None, &form).await;
    assert_eq!((reply.status, reply.location()), (StatusCode::SEE_OTHER, "/demo"));
    let cookie = reply.set_cookie(COOKIE).expect("signed in").0;
    assert_eq!(deck.get("/jobs", Some(&cookie)).await.status, StatusCode::OK);

    let second = [("token", &*token), ("name", "Eve"), ("email", "eve@example.com"), ("password", PASSWORD)];
    let reply = deck.post("/setup", None, &second).await;
    assert_eq!(reply.location(), "/setup?error=link");
    assert!(reply.set_cookie(COOKIE).is_none());
    // Nor with a fresh token, now that there is someone.
    let fresh = deck.setup_token().await;
    let third = [("token", &*fresh), ("name", "Eve"), ("email", "eve@example.com"), ("password", PASSWORD)];
    assert_eq!(deck.post("/setup", None, &third).await.location(), "/setup?error=link");
    let users: Vec<(String, String)> =
        sqlx::query_as("select email, role::text from jobdeck.users").fetch_all(deck.store.pool()).await.unwrap();
    assert_eq!(users, [("ana@example.com".to_owned(), "admin".to_owned())]);
    let hash: String =
        sqlx::query_scalar("select password_hash from jobdeck.users").fetch_one(deck.store.pool()).await.unwrap();
    assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
    assert_eq!(deck.audit().await, ["create_first_admin done", "sign_in done"]);
}

#[tokio::test]
async fn mistakes_in_the_set_up_form_keep_the_link() {
    let deck = Deck::new().await;
    let token = deck.setup_token().await;
    for (name, email, password, error) in [
        ("", "ana@example.com", PASSWORD, "name"),
        ("Ana", "ana", PASSWORD, "email"),
        ("Ana", "ana@example.com", "too short", "short"),
        ("Ana", "ana@example.com", &"x".repeat(1025), "long"),
        ("Ana", "ana@example.com", "aaaaaaaaaaaaaaa", "pattern"),
        ("Ana", "ana@example.com", "correct horse battery staple", "common"),
        ("Ana", "anastasia@example.com", "anastasia@example.com", "own"),
    ] {
        let form = [("token", &*token), ("name", name), ("email", email), ("password", password)];
        let reply = deck.post("/setup", None, &form).await;
        assert_eq!(reply.location(), format!("/setup?token={token}&error={error}"));
    }
    for token in ["", "x", &"A".repeat(43)] {
        let form = [("token", token), ("name", "Ana"), ("email", "ana@example.com"), ("password", PASSWORD)];
        assert_eq!(deck.post("/setup", None, &form).await.location(), "/setup?error=link");
    }
    sqlx::query("update jobdeck.setup_tokens set expires_at = now()").execute(deck.store.pool()).await.unwrap();
    let form = [("token", &*token), ("name", "Ana"), ("email", "ana@example.com"), ("password", PASSWORD)];
    assert_eq!(deck.post("/setup", None, &form).await.location(), "/setup?error=link");
    assert!(!deck.store.user_exists().await.unwrap());
}

#[tokio::test]
async fn fifty_set_ups_at_once_make_one_admin() {
    let deck = Deck::new().await;
    let token = deck.setup_token().await;
    let posts = (0..10).map(|n| {
        let (deck, token) = (&deck, &token);
        async move {
            let email = format!("ana{n}@example.com");
            let form = [("token", &**token), ("name", "Ana"), ("email", &*email), ("password", PASSWORD)];
            deck.post("/setup", None, &form).await.set_cookie(COOKIE).is_some()
        }
    });
    let n_signed_in = futures_util::future::join_all(posts).await.into_iter().filter(|signed_in| *signed_in).count();
    assert_eq!(n_signed_in, 1);
}

#[tokio::test]
async fn a_flood_of_passwords_is_bounded() {
    let deck = Deck::new().await;
    let posts = (0..60).map(|n| {
        let deck = &deck;
        async move {
            let email = format!("flood{n}@example.com");
            deck.post("/sign-in", None, &[("email", &*email), ("password", PASSWORD)]).await
        }
    });
    let replies = futures_util::future::join_all(posts).await;
    let busy = replies.iter().filter(|reply| reply.status == StatusCode::SERVICE_UNAVAILABLE);
    assert!(busy.clone().count() >= 60 - 2 * 18, "{}", busy.clone().count());
    assert!(busy.clone().all(|reply| reply.header("retry-after") == "2"));
    assert!(replies.iter().any(|reply| reply.location().contains("error=wrong")));
}

#[tokio::test]
async fn preferences_are_kept_in_cookies() {
    let deck = Deck::new().await;
    let reply = deck.post("/preferences", None, &[("lang", "zh-CN"), ("theme", "dark"), ("next", "/sign-in")]).await;
    assert_eq!(reply.location(), "/sign-in");
    let (lang, theme) = (reply.set_cookie("lang").unwrap().0, reply.set_cookie("theme").unwrap().0);
    let page = deck.get("/sign-in", Some(&format!("{lang}; {theme}"))).await;
    assert!(page.text.contains("lang=\"zh-CN\""), "{}", page.text);
    assert!(page.text.contains("data-theme=\"dark\""), "{}", page.text);
    let nonsense = deck.post("/preferences", None, &[("lang", "xx\r\nSet-Cookie: a=b"), ("theme", "system")]).await;
    assert!(nonsense.set_cookie("lang").is_none());
    assert!(nonsense.set_cookie("theme").unwrap().1.contains("Max-Age=0"));
}
