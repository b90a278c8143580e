//! The event stream of one export: its card whenever something changed, a sign of life, and an end.
//!
//! `event: card`: the card's HTML, at most twice a second, the first one at once. `event: beat`: nothing new, every 15 s
//! (a comment would not reach the script, which counts silence). `event: end`: it is over; `event: gone`: it was removed. The stream closes after either.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use jobdeck_app::Locale;
use jobdeck_app::export_page;
use jobdeck_app::ssr::RequestContext;
use tokio::time::{Instant, sleep_until};

use super::{Experience, Known, Seen, Visit, export_view, parse_id};
use crate::auth::StreamSlot;
use crate::links::{ExportLink, LinkError};
use crate::live::RowsUpdate;
use crate::state::AppState;

/// Shortest time between two cards.
const CARD_EVERY: Duration = Duration::from_millis(500);
/// How often places in line and estimates are looked at, which change while the job's row does not.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often a link is checked again.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// How often it is asked how long exports take and how many can run.
const EXPERIENCE_EVERY: Duration = Duration::from_secs(10);
const BEAT_EVERY: Duration = Duration::from_secs(15);
/// How long a browser waits before it connects again.
const RETRY: Duration = Duration::from_secs(2);

/// `GET /e/<job id>/events`. Each connection begins with the present card, so there is nothing to resume.
pub(super) async fn events(
    State(state): State<AppState>,
    Extension(request): Extension<RequestContext>,
    Path(link): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let visit = Visit { state, request, uri };
    let allowed = parse_id(&link).ok_or(LinkError::Invalid).and_then(|id| visit.authorise(id, &headers));
    let (link, token) = match allowed {
        Ok(allowed) => allowed,
        Err(error) => return visit.problem(error.into()),
    };
    // Counted per export, like a user's: whoever comes later looks every 15 s.
    let Some(slot) = visit.state.auth.stream_slot(link.job_id.0) else {
        let retry = [(header::RETRY_AFTER, HeaderValue::from_static("15"))];
        return (StatusCode::TOO_MANY_REQUESTS, retry, "too many open streams\n").into_response();
    };
    let shutdown = visit.state.shutdown.clone();
    let now = Instant::now();
    let stream = Live {
        changes: visit.state.hub.watch(vec![link.job_id]).boxed(),
        locale: visit.request.locale,
        lang: visit.lang(),
        token: token.to_owned(),
        link,
        experience: Experience::default(),
        experience_due: now,
        known: Known::default(),
        sent: None,
        sent_at: None,
        is_stale: true,
        is_sure: true,
        look_at: now,
        check_at: now + CHECK_EVERY,
        beat_at: now + BEAT_EVERY,
        stage: Stage::Open,
        state: visit.state,
        _slot: slot,
    };
    let hello = stream::once(std::future::ready(Ok::<_, Infallible>(Event::default().retry(RETRY))));
    let events = stream::unfold(stream, |mut live| async move { Some((Ok(live.next().await?), live)) });
    let body = hello.chain(events).take_until(async move { shutdown.requested().await });
    let mut response = Sse::new(body).into_response();
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[derive(PartialEq, Eq)]
enum Stage {
    Open,
    /// The last card is sent, the end is not.
    Ending,
    Ended,
}

struct Live {
    state: AppState,
    changes: BoxStream<'static, RowsUpdate>,
    locale: Locale,
    lang: Option<Locale>,
    token: String,
    link: ExportLink,
    experience: Experience,
    experience_due: Instant,
    known: Known,
    /// What the last card was made from, its clock aside.
    sent: Option<export_page::Fingerprint>,
    sent_at: Option<Instant>,
    /// Whether the row may have changed since.
    is_stale: bool,
    /// Whether the link was found to work when it was last checked.
    is_sure: bool,
    look_at: Instant,
    check_at: Instant,
    beat_at: Instant,
    stage: Stage,
    /// Taken for as long as the stream lives.
    _slot: StreamSlot,
}

impl Live {
    /// The next event; `None` closes the stream.
    async fn next(&mut self) -> Option<Event> {
        match self.stage {
            Stage::Ended => return None,
            Stage::Ending => {
                self.stage = Stage::Ended;
                return Some(Event::default().event("end").data("end"));
            }
            Stage::Open => {}
        }
        loop {
            let now = Instant::now();
            if now >= self.check_at {
                self.check_at = now + CHECK_EVERY;
                self.is_sure = match self.state.links.verify(&self.token) {
                    Ok(_) => true,
                    // Nothing more is shown until it is known whether the link still works.
                    Err(LinkError::Unsure) => false,
                    Err(LinkError::Invalid | LinkError::Expired) => return None,
                };
            }
            if self.is_sure
                && (self.is_stale || now >= self.look_at)
                && self.sent_at.is_none_or(|at| now >= at + CARD_EVERY)
            {
                match self.card(now).await {
                    Look::New(card) => return Some(card),
                    Look::Same => {}
                    Look::Gone => {
                        self.stage = Stage::Ended;
                        return Some(Event::default().event("gone").data("gone"));
                    }
                }
            }
            if now >= self.beat_at {
                self.beat_at = now + BEAT_EVERY;
                return Some(Event::default().event("beat").data("beat"));
            }
            let mut wake = self.check_at.min(self.beat_at);
            if self.is_sure {
                wake = wake.min(self.look_at);
            }
            if self.is_sure && self.is_stale {
                wake = wake.min(self.sent_at.map_or(now, |at| at + CARD_EVERY));
            }
            tokio::select! {
                change = self.changes.next() => {
                    change?;
                    self.is_stale = true;
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// The present card, if it differs from the one that was sent.
    async fn card(&mut self, now: Instant) -> Look {
        self.is_stale = false;
        self.look_at = now + LOOK_EVERY;
        if now >= self.experience_due {
            self.experience_due = now + EXPERIENCE_EVERY;
            self.experience = Experience::read(&self.state).await;
        }
        let seen = export_view(&self.state, self.link, &self.token, self.lang, &self.experience, &mut self.known).await;
        let export = match seen {
            Ok(Some(Seen::Export(export))) => export,
            // The page is read anew, and leads to the other job's.
            Ok(Some(Seen::Rerun(_))) => return Look::Gone,
            Ok(None) => return Look::Gone,
            // Looked at again in a moment; the page keeps what it shows and says when it has heard nothing for long.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an export's page could not be brought up to date"
                );
                return Look::Same;
            }
        };
        let fingerprint = export.fingerprint();
        if self.sent.as_ref() == Some(&fingerprint) {
            return Look::Same;
        }
        self.sent = Some(fingerprint);
        self.sent_at = Some(now);
        self.beat_at = now + BEAT_EVERY;
        if export.is_final() {
            self.stage = Stage::Ending;
        }
        Look::New(Event::default().event("card").data(export_page::render_card(&export, self.locale)))
    }
}

enum Look {
    New(Event),
    Same,
    Gone,
}
