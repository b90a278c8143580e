//! What the server provides to pages and server functions, and the one gate of the latter.

use std::sync::Arc;

use jobdeck::store::{Actor, SignInSession};
use jobdeck::{JobId, Store};
use leptos::prelude::{provide_context, use_context};
use leptos_axum::ResponseOptions;
use uuid::Uuid;

use crate::error::AppError;
use crate::i18n::Locale;
use crate::model::{Notice, PageFacts, Permission, Role, Theme, Viewer};

/// Addresses of the files a page loads. Empty where a file was not built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assets {
    /// The module that starts the browser half.
    pub js: Arc<str>,
    /// The browser half.
    pub wasm: Arc<str>,
    /// The style sheet.
    pub css: Arc<str>,
    /// The small script of the export page.
    pub progress_js: Arc<str>,
    /// The SVG icon of the tab.
    pub icon: Arc<str>,
}

/// What does not change between requests.
#[derive(Clone)]
pub struct AppContext {
    /// The queue.
    pub store: Store,
    /// Files a page loads.
    pub assets: Assets,
    /// Label beside the brand, such as `local`; may be empty.
    pub environment: Arc<str>,
    /// Makes a signed path `/e/<token>`.
    pub export_link: Arc<dyn Fn(LinkRequest) -> String + Send + Sync>,
}

/// A link to the page of an export, to be signed. Whoever has it may see that export and fetch its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRequest {
    /// The one job it is about.
    pub job_id: JobId,
    /// The user who gives it; stands in the audit log with what is done through it.
    pub issued_by: Uuid,
    /// Whether it allows to stop the export.
    pub can_cancel: bool,
    /// Whether it allows to have it made again.
    pub can_again: bool,
}

/// What the server found out about one request.
#[derive(Clone, Debug, Default)]
pub struct RequestContext {
    /// Who is signed in.
    pub user: Option<SignInSession>,
    /// The reader's language.
    pub locale: Locale,
    /// The forced colour scheme, from the cookie `theme`.
    pub theme: Option<Theme>,
    /// Where the request came from, for the audit log.
    pub address: Option<String>,
    /// On `/setup`: whether the token in the address still works.
    pub can_set_up: bool,
}

impl RequestContext {
    /// Who acts, for the audit log.
    pub fn actor(&self) -> Actor {
        Actor {
            user_id: self.user.as_ref().map(|user| user.user_id),
            name: self.user.as_ref().map_or_else(String::new, |user| user.name.clone()),
            address: self.address.clone(),
        }
    }
}

/// Makes both contexts known to the page or server function that runs next.
pub fn provide(app: AppContext, request: RequestContext) {
    provide_context(app);
    provide_context(request);
}

/// Who may go on, and with what.
pub(crate) struct Caller {
    pub(crate) app: AppContext,
    pub(crate) actor: Actor,
    pub(crate) user_id: Uuid,
    pub(crate) role: Role,
}

/// The gate every server function passes first: someone is signed in, and their role allows it. A refusal is written
/// to the audit log as `action` on `target`.
pub(crate) async fn require(permission: Permission, action: &str, target: Option<&str>) -> Result<Caller, AppError> {
    let app = use_context::<AppContext>().ok_or(AppError::BadRequest).map_err(answer)?;
    let request = use_context::<RequestContext>().unwrap_or_default();
    let Some(user) = &request.user else { return Err(answer(AppError::SignedOut)) };
    let actor = request.actor();
    let (user_id, role) = (user.user_id, Role::from(user.role));
    if !role.allows(permission) {
        app.store.audit_refused(&actor, action, target).await.map_err(|error| answer(error.into()))?;
        return Err(answer(AppError::Forbidden));
    }
    Ok(Caller { app, actor, user_id, role })
}

/// Sets the HTTP status of an error on its way out of a server function.
pub(crate) fn answer(error: AppError) -> AppError {
    set_status(error.status());
    error
}

/// Sets the HTTP status of the answer.
pub(crate) fn set_status(status: http::StatusCode) {
    if let Some(response) = use_context::<ResponseOptions>() {
        response.set_status(status);
    }
}

/// Sends a plain form back to the page it came from, with what became of it. Does nothing for a call by script, which
/// gets the answer itself.
pub(crate) fn return_to_page(back: &str, notice: Notice) {
    let wants_html = use_context::<http::request::Parts>().is_some_and(|parts| {
        let accept = parts.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        accept.is_some_and(|accept| accept.contains("text/html"))
    });
    if wants_html {
        leptos_axum::redirect(&with_notice(back, notice));
    }
}

/// `back` with the notice as its last parameter; the jobs list if `back` is not a path of this site.
fn with_notice(back: &str, notice: Notice) -> String {
    let back = local_path(back).unwrap_or("/jobs");
    let (path, parameters) = back.split_once('?').unwrap_or((back, ""));
    let kept = parameters.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("notice="));
    let parameters: Vec<&str> = kept.collect();
    let sep = if parameters.is_empty() { "" } else { "&" };
    format!("{path}?{}{sep}notice={}", parameters.join("&"), notice.print())
}

/// `path` if it leads to a page of this site: it starts with one slash and has nothing a browser would read otherwise.
pub fn local_path(path: &str) -> Option<&str> {
    let is_local = path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#' | b'"' | b'<' | b'>'));
    is_local.then_some(path)
}

/// Facts of the page being drawn.
pub(crate) fn page_facts() -> PageFacts {
    let request = use_context::<RequestContext>().unwrap_or_default();
    PageFacts {
        locale: request.locale,
        theme: request.theme,
        viewer: request.user.map(|user| Viewer { name: user.name, email: user.email, role: user.role.into() }),
        environment: use_context::<AppContext>().map_or_else(String::new, |app| app.environment.to_string()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        can_set_up: request.can_set_up,
        now: chrono::Utc::now(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_this_site_are_returned_to() {
        for good in ["/", "/jobs?state=failed&q=a%20b", "/jobs/01a22b0e-9268-773c-b768-db5b8f4d3e27"] {
            assert_eq!(local_path(good), Some(good));
        }
        for bad in
            ["", "jobs", "//evil.test", "/\\evil.test", "https://evil.test/", "/a\r\nb", "/a b", "/\u{e9}", "/a#b"]
        {
            assert_eq!(local_path(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_notice_comes_last_and_once() {
        assert_eq!(with_notice("/jobs", Notice::Retried), "/jobs?notice=retried");
        assert_eq!(
            with_notice("/jobs?state=failed&notice=gone&n=25", Notice::Forbidden),
            "/jobs?state=failed&n=25&notice=forbidden"
        );
        assert_eq!(with_notice("//evil.test", Notice::Canceled), "/jobs?notice=canceled");
    }
}
