//! The deck's event stream: changes of the rows on a page and of the counts above them.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use jobdeck::JobId;
use jobdeck::store::{JobFilter, StateCounts};
use jobdeck_app::model::{JobQuery, JobRow, LiveUpdate, Permission, Role};
use jobdeck_app::ssr::RequestContext;

use super::gate;
use crate::auth;
use crate::live::RowsUpdate;
use crate::state::AppState;

/// More rows than any page has.
const MAX_IDS: usize = 200;
/// How often a stream makes sure that its user is still signed in, and says with an event `beat` that it is alive. Comments that
/// keep the connection open are not shown to scripts. The page's watchdog waits for two and a half of them.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// How long that may take, since updates wait for it.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long a browser waits before it connects again.
const RETRY: Duration = Duration::from_secs(2);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

enum Piece {
    Rows(RowsUpdate),
    Counts(StateCounts),
    Check,
}

/// What goes out.
#[derive(PartialEq)]
enum Told {
    Update(LiveUpdate),
    Beat,
    Nothing,
    SignedOut,
}

/// `GET /live?ids=a,b,c&counts=1&type=…&q=…`. Each connection begins with the present state of all rows, so that there is
/// nothing to resume.
pub(super) async fn stream(
    State(state): State<AppState>,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let (Some(user), Some(digest)) = (context.user, gate::sign_in_digest(&state, &headers)) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    if !Role::from(user.role).allows(Permission::ViewJobs) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let Some(wanted) = Wanted::read(query.as_deref().unwrap_or_default()) else {
        return (StatusCode::BAD_REQUEST, format!("ids: at most {MAX_IDS} job ids, with commas between them\n"))
            .into_response();
    };
    let Some(slot) = state.auth.stream_slot(user.user_id) else {
        let retry = [(http::header::RETRY_AFTER, HeaderValue::from_static("10"))];
        return (StatusCode::TOO_MANY_REQUESTS, retry, "too many open streams\n").into_response();
    };

    let mut sources: Vec<BoxStream<'static, Piece>> = vec![checks()];
    if !wanted.ids.is_empty() {
        sources.push(state.hub.watch(wanted.ids).map(Piece::Rows).boxed());
    }
    if let Some(filter) = wanted.counts {
        sources.push(state.hub.watch_counts(&filter).map(Piece::Counts).boxed());
    }
    let shutdown = state.shutdown.clone();
    let store = state.store.clone();
    let events = stream::select_all(sources)
        .then(move |piece| {
            let store = store.clone();
            async move {
                match piece {
                    Piece::Rows(RowsUpdate { rows, gone }) => Told::Update(LiveUpdate {
                        rows: rows.into_iter().map(JobRow::from).collect(),
                        gone,
                        counts: None,
                    }),
                    Piece::Counts(counts) => {
                        Told::Update(LiveUpdate { counts: Some(counts.into()), ..LiveUpdate::default() })
                    }
                    Piece::Check => {
                        let found = tokio::time::timeout(ANSWER_WITHIN, store.sign_in_find(&digest, auth::IDLE, false));
                        match found.await {
                            Ok(Ok(Some(user))) if Role::from(user.role).allows(Permission::ViewJobs) => Told::Beat,
                            Ok(Ok(_)) => Told::SignedOut,
                            // A database that does not answer has not signed anyone out, but nothing is heard through it either.
                            Ok(Err(_)) | Err(_) => Told::Nothing,
                        }
                    }
                }
            }
        })
        .take_while(|told| std::future::ready(*told != Told::SignedOut))
        .enumerate()
        .filter_map(move |(n, told)| {
            // The slot is taken for as long as the stream lives.
            let _held = &slot;
            std::future::ready(match told {
                Told::Update(update) if update != LiveUpdate::default() => {
                    // Serialising our own plain structs does not fail.
                    let data = serde_json::to_string(&update).unwrap_or_default();
                    Some(Event::default().event("update").id((n + 1).to_string()).data(data))
                }
                Told::Beat => Some(Event::default().event("beat").data("1")),
                Told::Update(_) | Told::Nothing | Told::SignedOut => None,
            })
        });
    let goodbye = stream::once(std::future::ready(Event::default().event("signed-out").data("1")));
    let events = events.chain(goodbye).map(Ok::<_, Infallible>);
    let hello = stream::once(std::future::ready(Ok(Event::default().retry(RETRY))));
    let body = hello.chain(events).take_until(async move { shutdown.requested().await });

    let mut response = Sse::new(body).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn checks() -> BoxStream<'static, Piece> {
    stream::unfold((), |()| async {
        tokio::time::sleep(CHECK_EVERY).await;
        Some((Piece::Check, ()))
    })
    .boxed()
}

/// What a page wants to hear about.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    ids: Vec<JobId>,
    counts: Option<JobFilter>,
}

impl Wanted {
    /// `None` if `ids` makes no sense.
    fn read(query: &str) -> Option<Self> {
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let find = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_ref());
        let ids = find("ids").unwrap_or_default();
        let ids: Vec<JobId> =
            ids.split(',').filter(|id| !id.is_empty()).map(|id| id.parse().ok()).collect::<Option<_>>()?;
        let list = JobQuery::read(pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref())));
        let counts = (find("counts") == Some("1")).then(|| JobFilter { state: None, ..list.filter() });
        (ids.len() <= MAX_IDS).then_some(Self { ids, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_names_rows_and_a_filter() {
        let id = "01a22b0e-9268-773c-b768-db5b8f4d3e27";
        let wanted = Wanted::read(&format!("ids={id},{id}&counts=1&state=failed&type=a&q=b+c")).unwrap();
        assert_eq!(wanted.ids.len(), 2);
        let counts = wanted.counts.unwrap();
        assert_eq!((counts.state, counts.job_type.as_deref(), counts.text.as_deref()), (None, Some("a"), Some("b c")));
        assert_eq!(Wanted::read(""), Some(Wanted { ids: Vec::new(), counts: None }));
    }

    #[test]
    fn nonsense_and_crowds_are_refused() {
        assert_eq!(Wanted::read("ids=x"), None);
        let crowd = vec!["01a22b0e-9268-773c-b768-db5b8f4d3e27"; MAX_IDS + 1].join(",");
        assert_eq!(Wanted::read(&format!("ids={crowd}")), None);
    }
}
