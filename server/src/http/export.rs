//! The pages of the person who waits for an export, and the form that starts one.
//!
//! A signed link `/e/<token>` sets a cookie that is bound to `/e/<job id>` and leads there, so that the token stands in no
//! address that is copied by accident. Opening links and pages changes nothing, whoever does it: mail scanners may. What
//! does not exist, is not theirs or is mistyped reads the same to a visitor.

mod form;
mod live;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{TimeDelta, Utc};
use cookie::{Cookie, SameSite};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use jobdeck::store::{Actor, CancelOutcome, RerunOutcome, RetryOutcome};
use jobdeck::{Attempt, JobGlance, JobId, JobState, Store, StoreError};
use jobdeck_app::Locale;
use jobdeck_app::export_page::{self, Banner, ExportFacts, ExportView, Frame, Problem};
use jobdeck_app::ssr::RequestContext;
use serde::Deserialize as _;
use uuid::Uuid;

use super::gate;
use crate::auth;
use crate::job_types::export_markdown::FileResult;
use crate::links::{ExportLink, LinkError};
use crate::state::AppState;

/// Holds the token, below the page of its job only.
const COOKIE: &str = "jobdeck_export";

/// Routes of the recipient, and `POST /demo`.
pub(crate) fn routes() -> Router<AppState> {
    Router::new()
        .route("/demo", post(form::send))
        .route("/e/{link}", get(open))
        .route("/e/{link}/events", get(live::events))
        .route("/e/{link}/file", get(file))
        .route("/e/{link}/cancel", post(cancel))
        .route("/e/{link}/again", post(again))
}

/// `GET /e/<token>` and `GET /e/<job id>`; a token is never a job id.
async fn open(
    State(state): State<AppState>,
    Extension(request): Extension<RequestContext>,
    Path(link): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let visit = Visit { state, request, uri };
    match parse_id(&link) {
        Some(id) => visit.page(id, &headers).await,
        None => visit.enter(&link),
    }
}

/// One request of a recipient.
struct Visit {
    state: AppState,
    request: RequestContext,
    uri: Uri,
}

impl Visit {
    /// Sets the cookie and leads to the clean address.
    fn enter(&self, token: &str) -> Response {
        let link = match self.state.links.verify(token) {
            Ok(link) => link,
            Err(error) => return self.problem(error.into()),
        };
        let path = page_path(link.job_id);
        let cookie = Cookie::build((COOKIE, token))
            .path(path.clone())
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(self.state.config.base_url.is_https())
            .max_age(cookie::time::Duration::seconds((link.expires_at - Utc::now()).num_seconds().max(1)));
        let Ok(cookie) = HeaderValue::from_str(&cookie.build().to_string()) else {
            return self.problem(Problem::LinkInvalid);
        };
        let target = self.with_query(&path, self.query("again").is_some());
        ([(header::SET_COOKIE, cookie)], Redirect::to(&target)).into_response()
    }

    async fn page(&self, id: JobId, headers: &HeaderMap) -> Response {
        let (link, token) = match self.authorise(id, headers) {
            Ok(allowed) => allowed,
            Err(error) => return self.problem(error.into()),
        };
        let experience = Experience::read(&self.state).await;
        let mut known = Known::default();
        match export_view(&self.state, link, token, self.lang(), &experience, &mut known).await {
            // Its file was gone and it was made again: the page of the new job is this one's.
            Ok(Some(Seen::Rerun(by))) => self.to_job(&link, by, self.query("again").is_some()),
            Ok(Some(Seen::Export(export))) => {
                let banner = self.query("again").map(|_| Banner::SameExport);
                self.html(StatusCode::OK, |frame| export_page::render_page(&export, frame, banner))
            }
            Ok(None) => self.problem(Problem::LinkInvalid),
            Err(error) => self.trouble(&error),
        }
    }

    /// What the cookie allows on this job.
    fn authorise<'h>(&self, id: JobId, headers: &'h HeaderMap) -> Result<(ExportLink, &'h str), LinkError> {
        let token = crate::auth::cookie::find(headers, COOKIE).ok_or(LinkError::Invalid)?;
        let link = self.state.links.verify(token)?;
        if link.job_id == id { Ok((link, token)) } else { Err(LinkError::Invalid) }
    }

    /// The language, if the address names one.
    fn lang(&self) -> Option<Locale> {
        self.query("lang").as_deref().and_then(Locale::from_tag)
    }

    fn query(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.uri.query()?.as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }

    /// `path` with the language the address names, and whether it is the same export again.
    fn with_query(&self, path: &str, again: bool) -> String {
        let mut query = Vec::new();
        if let Some(lang) = self.lang() {
            query.push(format!("lang={}", lang.tag()));
        }
        if again {
            query.push("again=1".to_owned());
        }
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }

    fn back(&self, id: JobId, again: bool) -> Response {
        Redirect::to(&self.with_query(&page_path(id), again)).into_response()
    }

    /// To the page of another job, with the rights of `link` and for no longer.
    fn to_job(&self, link: &ExportLink, id: JobId, again: bool) -> Response {
        let token = self.state.links.sign(id, link.expires_at, link.rights, link.issued_by);
        Redirect::to(&self.with_query(&format!("/e/{token}"), again)).into_response()
    }

    /// Who acts: the user who is signed in; of anyone else what is known is whose link it was.
    async fn actor(&self, link: &ExportLink, headers: &HeaderMap) -> Result<Actor, StoreError> {
        let address = self.request.address.clone();
        if let Some(digest) = gate::sign_in_digest(&self.state, headers)
            && let Some(user) = self.state.store.sign_in_find(&digest, auth::IDLE, true).await?
        {
            return Ok(Actor { user_id: Some(user.user_id), name: user.name, address });
        }
        let name = match self.state.store.user_name(link.issued_by).await? {
            Some(issuer) => format!("recipient, link by {issuer}"),
            None => "recipient".to_owned(),
        };
        Ok(Actor { user_id: None, name, address })
    }

    fn html(&self, status: StatusCode, render: impl FnOnce(&Frame<'_>) -> String) -> Response {
        html(&self.state, &self.request, status, render)
    }

    fn problem(&self, problem: Problem) -> Response {
        let status = match problem {
            Problem::LinkInvalid | Problem::FileGone { .. } => StatusCode::NOT_FOUND,
            Problem::LinkExpired => StatusCode::GONE,
            Problem::NotReady(_) => StatusCode::CONFLICT,
            Problem::Trouble => StatusCode::SERVICE_UNAVAILABLE,
        };
        self.html(status, |frame| export_page::render_problem(problem, frame, readable(self.uri.path())))
    }

    fn trouble(&self, error: &StoreError) -> Response {
        tracing::error!(error = error as &dyn std::error::Error, "the database did not answer a recipient's page");
        self.problem(Problem::Trouble)
    }
}

impl From<LinkError> for Problem {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Invalid => Self::LinkInvalid,
            LinkError::Expired => Self::LinkExpired,
            LinkError::Unsure => Self::Trouble,
        }
    }
}

/// `GET /e/<job id>/file`
async fn file(
    State(state): State<AppState>,
    Extension(request): Extension<RequestContext>,
    Path(link): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let visit = Visit { state, request, uri };
    let (link, job) = match visit.job(&link, &headers).await {
        Ok(allowed) => allowed,
        Err(answer) => return *answer,
    };
    let id = job.id;
    let Some(result) = file_of(&job) else { return visit.problem(Problem::NotReady(id)) };
    let stored = match visit.state.storage.get(&result.file.object).await {
        Ok(stored) => stored,
        Err(object_store::Error::NotFound { .. }) => {
            return visit.problem(Problem::FileGone { id, can_again: link.rights.again });
        }
        Err(error) => {
            tracing::error!(job_id = %id, error = &error as &dyn std::error::Error, "a file could not be read");
            return visit.problem(Problem::Trouble);
        }
    };
    let disposition = content_disposition(&result.file.name);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_str(&result.file.content_type)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_str(&disposition)),
        (header::CONTENT_LENGTH, HeaderValue::from_str(&stored.bytes.to_string())),
        (header::X_CONTENT_TYPE_OPTIONS, Ok(HeaderValue::from_static("nosniff"))),
        // Opened from the address bar, an HTML export still runs nothing and has no origin.
        (
            header::CONTENT_SECURITY_POLICY,
            Ok(HeaderValue::from_static("sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:")),
        ),
    ];
    let mut response = Body::from_stream(stored.content).into_response();
    for (name, value) in headers {
        match value {
            Ok(value) => response.headers_mut().insert(name, value),
            // Our own types and encoded names are plain ASCII.
            Err(_) => return visit.problem(Problem::Trouble),
        };
    }
    response
}

/// `POST /e/<job id>/cancel`
async fn cancel(
    State(state): State<AppState>,
    Extension(request): Extension<RequestContext>,
    Path(link): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let visit = Visit { state, request, uri };
    let (link, job) = match visit.job(&link, &headers).await {
        Ok(allowed) => allowed,
        Err(answer) => return *answer,
    };
    if !link.rights.cancel {
        return visit.problem(Problem::LinkInvalid);
    }
    let actor = match visit.actor(&link, &headers).await {
        Ok(actor) => actor,
        Err(error) => return visit.trouble(&error),
    };
    match visit.state.store.job_cancel(job.id, &actor).await {
        Ok(CancelOutcome::NotFound) => visit.problem(Problem::LinkInvalid),
        // What became of it is what the page says.
        Ok(_) => visit.back(job.id, false),
        Err(error) => visit.trouble(&error),
    }
}

/// `POST /e/<job id>/again`
async fn again(
    State(state): State<AppState>,
    Extension(request): Extension<RequestContext>,
    Path(link): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let visit = Visit { state, request, uri };
    let (link, job) = match visit.job(&link, &headers).await {
        Ok(allowed) => allowed,
        Err(answer) => return *answer,
    };
    if !link.rights.again {
        return visit.problem(Problem::LinkInvalid);
    }
    let actor = match visit.actor(&link, &headers).await {
        Ok(actor) => actor,
        Err(error) => return visit.trouble(&error),
    };
    match file_is_gone(&visit.state, &job).await {
        Ok(false) => {}
        Ok(true) => {
            return match visit.state.store.job_rerun(job.id, None, &actor).await {
                Ok(RerunOutcome::Queued { id }) => visit.to_job(&link, id, false),
                Ok(RerunOutcome::KeyHeld { by }) => visit.to_job(&link, by, true),
                Ok(RerunOutcome::NotRerunnable(_)) => visit.back(job.id, true),
                Ok(RerunOutcome::NotFound) => visit.problem(Problem::LinkInvalid),
                Err(error) => visit.trouble(&error),
            };
        }
        Err(error) => {
            tracing::error!(job_id = %job.id, error = &error as &dyn std::error::Error, "a file could not be looked for");
            return visit.problem(Problem::Trouble);
        }
    }
    match visit.state.store.job_retry(job.id, &actor).await {
        Ok(RetryOutcome::Queued) => visit.back(job.id, false),
        // It waits, runs or is there: this very export is what they get.
        Ok(RetryOutcome::NotRetryable(_)) => visit.back(job.id, true),
        // The same text was exported anew meanwhile: lead there with the same rights, for no longer.
        Ok(RetryOutcome::KeyHeld { by }) => visit.to_job(&link, by, true),
        Ok(RetryOutcome::NotFound) => visit.problem(Problem::LinkInvalid),
        Err(error) => visit.trouble(&error),
    }
}

impl Visit {
    /// The job a path and a cookie agree on; else the answer to give.
    async fn job(&self, link: &str, headers: &HeaderMap) -> Result<(ExportLink, JobGlance), Box<Response>> {
        let id = parse_id(link).ok_or_else(|| Box::new(self.problem(Problem::LinkInvalid)))?;
        let (link, _) = self.authorise(id, headers).map_err(|error| Box::new(self.problem(error.into())))?;
        match self.state.store.job_glance(id, &[]).await {
            Ok(Some(job)) => Ok((link, job)),
            Ok(None) => Err(Box::new(self.problem(Problem::LinkInvalid))),
            Err(error) => Err(Box::new(self.trouble(&error))),
        }
    }
}

/// A page with its content policy: only our own style sheet and the one script.
fn html(
    state: &AppState,
    request: &RequestContext,
    status: StatusCode,
    render: impl FnOnce(&Frame<'_>) -> String,
) -> Response {
    let mut random = [0; 16];
    // Without randomness the policy forbids the script, and the page works as without one.
    let nonce = getrandom::fill(&mut random).map(|()| STANDARD.encode(random)).unwrap_or_default();
    let script = if nonce.is_empty() { "'none'".to_owned() } else { format!("'nonce-{nonce}'") };
    let policy = format!(
        "default-src 'none'; script-src {script}; style-src 'self'; img-src 'self' data:; font-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    );
    let frame = Frame { locale: request.locale, theme: request.theme, assets: &state.app.assets, nonce: &nonce };
    let mut response = (status, axum::response::Html(render(&frame))).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-language, cookie"));
    response
}

/// What estimates rest on. Missing facts leave out a number on the page, so trouble in reading them is only logged.
#[derive(Clone, Copy, Debug, Default)]
struct Experience {
    /// Seconds exports usually run.
    run_seconds: Option<(f64, f64)>,
    /// How many run at the same time.
    slots: i64,
}

impl Experience {
    async fn read(state: &AppState) -> Self {
        use crate::job_types::export_markdown::ExportMarkdown;
        use jobdeck::JobType as _;
        match Self::query(&state.store, ExportMarkdown::TYPE).await {
            Ok(experience) => experience,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no estimate for an export's page");
                Self::default()
            }
        }
    }

    async fn query(store: &Store, job_type: &str) -> Result<Self, StoreError> {
        let alive_since = store.now().await? - TimeDelta::seconds(30);
        let workers = store.worker_list().await?;
        let able = workers.iter().filter(|worker| {
            worker.heartbeat_at > alive_since
                && worker.stopping_at.is_none()
                && worker.types.iter().any(|known| known == job_type)
        });
        let slots = able.map(|worker| i64::from(worker.slots)).sum();
        Ok(Self { run_seconds: store.job_type_run_seconds(job_type).await?, slots })
    }
}

/// The file that `job` made, if it has.
fn file_of(job: &JobGlance) -> Option<FileResult> {
    job.result.as_ref().and_then(|result| FileResult::deserialize(result).ok())
}

/// Whether `job` made a file that is no longer there.
async fn file_is_gone(state: &AppState, job: &JobGlance) -> object_store::Result<bool> {
    match file_of(job) {
        Some(made) => Ok(!state.storage.exists(&made.file.object).await?),
        None => Ok(false),
    }
}

/// What a page that looks again and again need not read again.
#[derive(Debug, Default)]
struct Known {
    /// What the page shows of the payload, which never changes.
    payload: Option<serde_json::Value>,
    /// The attempts as of a version of the job.
    attempts: Option<(i64, Vec<Attempt>)>,
}

/// What there is to see of an export.
enum Seen {
    Export(Box<ExportView>),
    /// Another job has taken its place.
    Rerun(JobId),
}

/// What the page says; `None` if the job is gone.
async fn export_view(
    state: &AppState,
    link: ExportLink,
    token: &str,
    lang: Option<Locale>,
    experience: &Experience,
    known: &mut Known,
) -> Result<Option<Seen>, StoreError> {
    let store = &state.store;
    let fields: &[&str] = if known.payload.is_none() { &export_page::PAYLOAD_FIELDS } else { &[] };
    let Some(mut job) = store.job_glance(link.job_id, fields).await? else { return Ok(None) };
    if let Some(by) = job.rerun {
        return Ok(Some(Seen::Rerun(by)));
    }
    match &known.payload {
        Some(payload) => job.fields.clone_from(payload),
        None => known.payload = Some(job.fields.clone()),
    }
    let ahead = if job.state.is_waiting() { store.job_count_ahead(job.id).await? } else { None };
    let attempts = match &mut known.attempts {
        Some((version, attempts)) if *version == job.version => attempts,
        present => {
            let has_any = job.starts > 1 || job.state != JobState::Pending;
            let attempts = if has_any { store.attempt_list(job.id).await? } else { Vec::new() };
            &mut present.insert((job.version, attempts)).1
        }
    };
    let facts = ExportFacts {
        ahead,
        run_seconds: experience.run_seconds,
        slots: experience.slots,
        link: format!("/e/{token}"),
        link_expires_at: link.expires_at,
        can_cancel: link.rights.cancel,
        can_again: link.rights.again,
        now: job.now,
        lang,
    };
    Ok(Some(Seen::Export(Box::new(ExportView::new(&job, attempts, facts)))))
}

/// A job id in its one spelling.
fn parse_id(text: &str) -> Option<JobId> {
    let id: Uuid = text.parse().ok()?;
    (id.hyphenated().to_string() == text).then_some(JobId(id))
}

/// What can be asked for again of a path below `/e/`: that of an action leads to its page.
fn readable(path: &str) -> &str {
    ["/cancel", "/again", "/events"].into_iter().find_map(|action| path.strip_suffix(action)).unwrap_or(path)
}

fn page_path(id: JobId) -> String {
    format!("/e/{id}")
}

/// RFC 6266: a plain name for old programs, the real one in UTF-8 for the rest.
fn content_disposition(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|character| match character {
            '"' | '\\' | '%' => '_',
            ' '..='~' => character,
            _ => '_',
        })
        .collect();
    let mut encoded = String::with_capacity(name.len() * 3);
    for byte in name.bytes() {
        // The characters RFC 8187 lets stand.
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disposition_has_both_names() {
        assert_eq!(
            content_disposition("Q3 notes.pdf"),
            "attachment; filename=\"Q3 notes.pdf\"; filename*=UTF-8''Q3%20notes.pdf"
        );
        assert_eq!(
            content_disposition("笔记 \"1\".pdf"),
            "attachment; filename=\"__ _1_.pdf\"; filename*=UTF-8''%E7%AC%94%E8%AE%B0%20%221%22.pdf"
        );
        let hostile = content_disposition("a\r\nSet-Cookie: x=1\\.pdf");
        assert!(HeaderValue::from_str(&hostile).is_ok());
        assert!(!hostile.contains('\n'));
    }

    #[test]
    fn job_ids_have_one_spelling() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(parse_id(id).unwrap().to_string(), id);
        for other in [&id.to_uppercase(), &id.replace('-', ""), &format!("{{{id}}}"), &format!("urn:uuid:{id}"), ""] {
            assert_eq!(parse_id(other), None, "{other}");
        }
    }
}
