//! Signing in and out, and the first admin. Plain forms; each ends in a redirect.

use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Form};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jobdeck::StoreError;
use jobdeck::store::{Actor, NewSignIn, NewUser, User, UserRole};
use jobdeck_app::ssr::RequestContext;
use serde::Deserialize;
use uuid::Uuid;

use super::{gate, headers, redirect};
use crate::auth::password::{self, Busy, WeakPassword};
use crate::auth::person::{is_email, is_plausible};
use crate::auth::{self, cookie, token};
use crate::state::AppState;

/// `POST /sign-in`
#[derive(Deserialize)]
pub(super) struct SignIn {
    email: String,
    password: String,
    next: Option<String>,
}

/// `POST /setup`
#[derive(Deserialize)]
pub(super) struct SetUp {
    token: String,
    name: String,
    email: String,
    password: String,
}

/// Why a form ended without its purpose.
enum Problem {
    Store(StoreError),
    Busy,
    Other(anyhow::Error),
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Busy> for Problem {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Store(error) => headers::unavailable(&error),
            Problem::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                [(header::RETRY_AFTER, HeaderValue::from_static("2"))],
                "Too many people sign in at this moment. Go back and try again in a few seconds.\n",
            )
                .into_response(),
            Problem::Other(error) => headers::internal_error(format!("{error:#}")),
        }
    }
}

/// Checks a password and signs in. Where it is wrong, `/sign-in` says so: `error=wrong`, or `error=wait` with the seconds in
/// `wait` after too many tries. An unknown address looks and takes like a wrong password.
pub(super) async fn sign_in(
    State(state): State<AppState>,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
    Form(form): Form<SignIn>,
) -> Response {
    try_sign_in(&state, &context, &headers, &form).await.unwrap_or_else(Response::from)
}

async fn try_sign_in(
    state: &AppState,
    context: &RequestContext,
    headers: &HeaderMap,
    form: &SignIn,
) -> Result<Response, Problem> {
    let next = redirect::local_path(form.next.as_deref());
    let guess = match state.auth.throttle.begin(&form.email, context.address.as_deref(), Instant::now()) {
        Ok(guess) => guess,
        Err(wait) => {
            // The wrong passwords themselves are in the audit; one who only knocks must not fill the log.
            tracing::debug!(address = context.address, "sign-in refused: too many wrong passwords");
            let seconds = wait.as_secs_f64().ceil().to_string();
            return Ok(back_to_sign_in(&[("error", "wait"), ("wait", &seconds)], next));
        }
    };
    let email = form.email.trim();
    let found = if is_plausible(email, 254) { state.store.user_by_email(email).await } else { Ok(None) };
    let user = match found {
        Ok(user) => user,
        Err(error) => {
            // Trouble of ours is nobody's wrong password.
            guess.was_not_made();
            return Err(error.into());
        }
    };
    if user.is_some() {
        guess.is_for_an_account();
    }
    let hash = user.as_ref().map(|user| user.password_hash.clone());
    // Longer ones are nobody's password.
    let is_right = form.password.len() <= password::MAX_BYTES
        && match state.auth.hasher.verify(form.password.clone(), hash).await {
            Ok(is_right) => is_right,
            Err(busy) => {
                guess.was_not_made();
                return Err(busy.into());
            }
        };
    match user {
        Some(user) if is_right && user.disabled_at.is_none() => {
            guess.was_right();
            let actor = Actor { user_id: Some(user.id), name: user.name, address: context.address.clone() };
            let mut response = redirect::to(next, &[]);
            begin_session(state, headers, &actor, user.id, &mut response).await?;
            Ok(response)
        }
        user => {
            // Someone who types the password into the wrong field must not find it in the log.
            let known: Option<&str> = user.as_ref().map(|user: &User| user.email.as_str());
            let actor = Actor { user_id: None, name: "unknown".to_owned(), address: context.address.clone() };
            // Guesses at accounts are bounded by their waits; strangers' addresses are without end.
            let note = if known.is_some() { Some(None) } else { state.auth.strangers.note(Instant::now()) };
            match note {
                Some(reason) => {
                    state.store.audit_refused_because(&actor, "sign_in", known, reason.as_deref()).await?;
                }
                None => tracing::debug!(address = context.address, "a stranger's sign-in is not noted by itself"),
            }
            Ok(back_to_sign_in(&[("error", "wrong")], next))
        }
    }
}

fn back_to_sign_in(query: &[(&str, &str)], next: &str) -> Response {
    let mut query = query.to_vec();
    if next != redirect::HOME {
        query.push(("next", next));
    }
    redirect::to("/sign-in", &query)
}

/// Signs out. Repeating it changes nothing.
pub(super) async fn sign_out(
    State(state): State<AppState>,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
) -> Response {
    let end = async {
        if let Some(digest) = gate::sign_in_digest(&state, &headers) {
            state.store.sign_in_end(&digest, &context.actor()).await?;
        }
        Ok::<_, StoreError>(())
    };
    if let Err(error) = end.await {
        return headers::unavailable(&error);
    }
    let mut response = redirect::to("/sign-in", &[]);
    response.headers_mut().insert(header::SET_COOKIE, cookie::sign_out(&state.config));
    // What the browser kept of signed-in pages goes with it.
    response.headers_mut().insert("clear-site-data", HeaderValue::from_static("\"cache\""));
    response
}

/// Creates the first admin with the link from the console and signs them in. Where something is wrong, `/setup` says what:
/// `error=link`, `name`, `email`, `short`, `long`, `common`, `own` or `pattern`.
pub(super) async fn set_up(
    State(state): State<AppState>,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
    Form(form): Form<SetUp>,
) -> Response {
    try_set_up(&state, &context, &headers, form).await.unwrap_or_else(Response::from)
}

async fn try_set_up(
    state: &AppState,
    context: &RequestContext,
    headers: &HeaderMap,
    form: SetUp,
) -> Result<Response, Problem> {
    let link_is_dead = || redirect::to("/setup", &[("error", "link")]);
    let Some(digest) = token::digest(&form.token) else { return Ok(link_is_dead()) };
    // Before anything that costs: only who has the link may make us hash.
    if !state.store.setup_token_is_valid(&digest).await? {
        return Ok(link_is_dead());
    }
    let again = |error: &str| Ok(redirect::to("/setup", &[("token", &form.token), ("error", error)]));
    let (name, email) = (form.name.trim(), form.email.trim());
    if !is_plausible(name, 100) {
        return again("name");
    }
    if !is_email(email) {
        return again("email");
    }
    match password::check(&form.password, email, name) {
        Ok(()) => {}
        Err(WeakPassword::TooShort) => return again("short"),
        Err(WeakPassword::TooLong) => return again("long"),
        Err(WeakPassword::Common) => return again("common"),
        Err(WeakPassword::Own) => return again("own"),
        Err(WeakPassword::Pattern) => return again("pattern"),
    }
    let admin = NewUser {
        email: email.to_owned(),
        name: name.to_owned(),
        role: UserRole::Admin,
        password_hash: state.auth.hasher.hash(form.password).await??,
    };
    let Some(user_id) = state.store.setup_complete(&digest, &admin, context.address.as_deref()).await? else {
        return Ok(link_is_dead());
    };
    let actor = Actor { user_id: Some(user_id), name: admin.name, address: context.address.clone() };
    let mut response = redirect::to("/demo", &[]);
    begin_session(state, headers, &actor, user_id, &mut response).await?;
    Ok(response)
}

/// Ends the sign-in the browser had, if any, and begins one under a new id.
async fn begin_session(
    state: &AppState,
    headers: &HeaderMap,
    actor: &Actor,
    user_id: Uuid,
    response: &mut Response,
) -> Result<(), Problem> {
    let fresh = token::random()?;
    let digest = token::digest(&fresh).ok_or_else(|| anyhow::anyhow!("a fresh token has no digest"))?;
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let replaced = gate::sign_in_digest(state, headers);
    let sign_in = NewSignIn {
        digest: &digest,
        user_id,
        life: auth::LIFE,
        user_agent: agent,
        replaces: replaced.as_ref().map(|digest| digest.as_slice()),
    };
    state.store.sign_in_create(&sign_in, actor).await?;
    response.headers_mut().insert(header::SET_COOKIE, cookie::sign_in(&state.config, &fresh));
    Ok(())
}
