//! A deck with a database of its own, people who are signed in, and requests without a socket.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use argon2::PasswordHasher as _;
use axum::Router;
use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use jobdeck::store::{Actor, NewSignIn, NewUser, UserRole};
use jobdeck::{EnqueueOptions, JobId, JobState, JobType, Store};
use jobdeck_server::AppState;
use jobdeck_server::config::HttpConfig;
use jobdeck_server::shutdown::{Shutdown, ShutdownTrigger};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgConnection};

/// The origin of every deck here.
pub(crate) const ORIGIN: &str = "https://deck.example";
/// The sign-in cookie's name on it.
pub(crate) const COOKIE: &str = "__Host-jobdeck";
/// The proxy every deck here trusts.
pub(crate) const PROXY: &str = "10.0.0.1";
/// Everybody's password.
pub(crate) const PASSWORD: &str = "seven quiet lanterns hum";

/// A job that waits for a worker no test starts.
#[derive(Serialize, Deserialize)]
pub(crate) struct Nap {
    pub(crate) minutes: u32,
}

impl JobType for Nap {
    const TYPE: &'static str = "nap";
}

/// A deck on a database of its own.
pub(crate) struct Deck {
    pub(crate) store: Store,
    pub(crate) url: String,
    pub(crate) router: Router,
    pub(crate) trigger: Option<ShutdownTrigger>,
    pub(crate) folder: PathBuf,
}

/// What came back.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

fn set_up() -> Actor {
    Actor { name: "set-up of a test".to_owned(), ..Actor::default() }
}

/// Where tests make their databases.
fn server_url() -> String {
    std::env::var("JOBDECK_TEST_DATABASE_URL").unwrap_or_else(|_| {
        panic!("JOBDECK_TEST_DATABASE_URL is not set: run `cargo xtask test`, or name a Postgres on which databases may be made")
    })
}

/// A database without a schema. Names are unique and the test cluster is thrown away, so nothing is dropped.
pub(crate) async fn empty_database() -> String {
    let server = server_url();
    let name = format!("jobdeck_server_test_{}", uuid::Uuid::now_v7().simple());
    let mut connection = PgConnection::connect(&server).await.expect("test server answers");
    sqlx::query(sqlx::AssertSqlSafe(format!("create database {name}")))
        .execute(&mut connection)
        .await
        .expect("database made");
    connection.close().await.expect("closed");
    let (base, options) = server.split_once('?').map_or((server.as_str(), ""), |(base, options)| (base, options));
    let base = base.rsplit_once('/').expect("URL names a database").0;
    format!("{base}/{name}{}{options}", if options.is_empty() { "" } else { "?" })
}

impl Deck {
    pub(crate) async fn new() -> Self {
        Self::at(ORIGIN).await
    }

    /// A deck whose people use `base_url`.
    pub(crate) async fn at(base_url: &str) -> Self {
        let base_url = base_url.parse().expect("a base URL");
        Self::with(|config| config.base_url = base_url).await
    }

    /// A deck with other settings than usual.
    pub(crate) async fn with(change: impl FnOnce(&mut HttpConfig)) -> Self {
        let url = empty_database().await;
        let store = Store::connect(&url, 5).await.expect("database answers");
        store.migrate().await.expect("migrated");
        let folder = std::env::temp_dir().join(format!("jobdeck-server-test-{}", uuid::Uuid::now_v7().simple()));
        let mut config = HttpConfig {
            base_url: ORIGIN.parse().expect("a base URL"),
            base_url_is_set: true,
            environment: "test".to_owned(),
            trusted_proxies: PROXY.parse().expect("an address"),
            connections: Default::default(),
        };
        change(&mut config);
        let (trigger, shutdown) = Shutdown::channel();
        let state = AppState::load(store.clone(), config, &folder, shutdown).await.expect("state");
        Self { store, url, router: jobdeck_server::router(state), trigger: Some(trigger), folder }
    }

    /// Creates a user named after their role.
    pub(crate) async fn user(&self, role: UserRole) -> uuid::Uuid {
        static HASH: OnceLock<String> = OnceLock::new();
        let hash = HASH
            .get_or_init(|| argon2::Argon2::default().hash_password(PASSWORD.as_bytes()).expect("hashed").to_string());
        let user = NewUser {
            email: format!("{}@example.com", role.as_str()),
            name: format!("The {}", role.as_str()),
            role,
            password_hash: hash.clone(),
        };
        let id = self.store.user_create(&user, &set_up()).await.expect("user created");
        self.forget_set_up().await;
        id
    }

    /// Creates a user and signs them in; the value of `Cookie`.
    pub(crate) async fn signed_in(&self, role: UserRole) -> String {
        let user = self.user(role).await;
        self.sign_in(user).await
    }

    /// What a test does to begin with is not what it looks for in the audit log.
    async fn forget_set_up(&self) {
        sqlx::query("delete from jobdeck.audit_log where actor = $1")
            .bind(set_up().name)
            .execute(self.store.pool())
            .await
            .expect("audit log");
    }

    /// Signs a user in; the value of `Cookie`.
    pub(crate) async fn sign_in(&self, user: uuid::Uuid) -> String {
        let token = format!("{0}{0}", uuid::Uuid::now_v7().simple())[..43].to_owned();
        let digest: [u8; 32] = Sha256::digest(&token).into();
        let sign_in = NewSignIn {
            digest: &digest,
            user_id: user,
            life: Duration::from_secs(3600),
            user_agent: None,
            replaces: None,
        };
        self.store.sign_in_create(&sign_in, &set_up()).await.expect("signed in");
        self.forget_set_up().await;
        format!("{COOKIE}={token}")
    }

    /// The request's reply, body and all. Fails when it takes longer than a minute.
    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let reply = async {
            let response = tower::ServiceExt::oneshot(self.router.clone(), request).await.expect("infallible");
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.expect("a whole body").to_bytes();
            Reply { status: parts.status, headers: parts.headers, text: String::from_utf8_lossy(&bytes).into_owned() }
        };
        tokio::time::timeout(Duration::from_secs(60), reply).await.expect("a reply within a minute")
    }

    /// What a browser gets for an address.
    pub(crate) async fn get(&self, path: &str, cookie: Option<&str>) -> Reply {
        self.send(get(path, cookie).body(Body::empty()).expect("a request")).await
    }

    /// What a browser gets for a form on one of our pages.
    pub(crate) async fn post(&self, path: &str, cookie: Option<&str>, form: &[(&str, &str)]) -> Reply {
        self.send(post(path, cookie, form)).await
    }

    /// What script gets for a call of a server function.
    pub(crate) async fn call(&self, function: &str, cookie: Option<&str>, form: &[(&str, &str)]) -> Reply {
        let mut request = post(&format!("/api/fn/{function}"), cookie, form);
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        self.send(request).await
    }

    pub(crate) async fn enqueue(&self) -> JobId {
        self.store.enqueue(&Nap { minutes: 5 }, EnqueueOptions::default()).await.expect("enqueued").id
    }

    pub(crate) async fn state_of(&self, id: JobId) -> JobState {
        self.store.job_get(id).await.expect("read").expect("the job is there").state
    }

    /// Audit rows as `action outcome`, oldest first.
    pub(crate) async fn audit(&self) -> Vec<String> {
        sqlx::query_scalar("select action || ' ' || outcome from jobdeck.audit_log order by id")
            .fetch_all(self.store.pool())
            .await
            .expect("audit log")
    }

    /// A digest of everything a request could have changed.
    pub(crate) async fn fingerprint(&self) -> String {
        sqlx::query_scalar(
            "select md5(concat(
               (select string_agg(j::text, ',' order by j.id) from jobdeck.jobs j),
               (select string_agg(u::text, ',' order by u.id) from jobdeck.users u),
               (select string_agg(s::text, ',' order by s.id_digest) from jobdeck.sign_in_sessions s),
               (select string_agg(t::text, ',' order by t.digest) from jobdeck.setup_tokens t),
               (select string_agg(a::text, ',' order by a.id) from jobdeck.audit_log a)))",
        )
        .fetch_one(self.store.pool())
        .await
        .expect("fingerprint")
    }

    /// A set-up token that works.
    pub(crate) async fn setup_token(&self) -> String {
        let token = format!("{0}{0}", uuid::Uuid::now_v7().simple())[..43].to_owned();
        let digest: [u8; 32] = Sha256::digest(&token).into();
        self.store.setup_token_create(&digest, Duration::from_secs(900)).await.expect("token");
        token
    }
}

impl Drop for Deck {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    pub(crate) fn location(&self) -> &str {
        self.header("location")
    }

    /// `name=value` of the cookie that was set, and the whole line.
    pub(crate) fn set_cookie(&self, name: &str) -> Option<(String, String)> {
        self.headers.get_all(header::SET_COOKIE).iter().find_map(|line| {
            let line = line.to_str().expect("text");
            let pair = line.split(';').next().expect("a pair");
            pair.starts_with(&format!("{name}=")).then(|| (pair.to_owned(), line.to_owned()))
        })
    }
}

pub(crate) fn get(path: &str, cookie: Option<&str>) -> http::request::Builder {
    let builder = Request::builder().uri(path).header(header::ACCEPT, "text/html").header("sec-fetch-site", "none");
    match cookie {
        Some(cookie) => builder.header(header::COOKIE, cookie),
        None => builder,
    }
}

pub(crate) fn post(path: &str, cookie: Option<&str>, form: &[(&str, &str)]) -> Request<Body> {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::ACCEPT, "text/html")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(HeaderName::from_static("sec-fetch-site"), "same-origin")
        .header(header::ORIGIN, ORIGIN)
        .body(Body::from(body))
        .expect("a request");
    if let Some(cookie) = cookie {
        request.headers_mut().insert(header::COOKIE, HeaderValue::from_str(cookie).expect("a cookie"));
    }
    request
}
