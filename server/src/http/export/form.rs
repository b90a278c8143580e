//! `POST /demo`: a text becomes an export. What cannot be exported comes back with a plain sentence and the text in the
//! same form, so that nothing is lost.

use std::borrow::Cow;

use axum::extract::{FromRequest as _, Multipart, Request, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::{Extension, body};
use http::{HeaderValue, StatusCode, header};
use jobdeck::store::{Actor, Enqueued, RerunOutcome, SignInSession};
use jobdeck::{EnqueueOptions, JobId, JobType as _, StoreError};
use jobdeck_app::export_page::{self, RefusedText};
use jobdeck_app::model::{Permission, Role};
use jobdeck_app::ssr::RequestContext;
use jobdeck_app::{Arg, Locale, format};
use jobdeck_document::MAX_MARKDOWN_BYTES;

use super::super::body::NotKept;
use crate::job_types::export_markdown::{ExportFormat, ExportMarkdown, Mishap};
use crate::links::LinkRights;
use crate::state::AppState;

/// Longest title, in characters.
const MAX_TITLE: usize = 200;
/// Room for the largest text with every byte written as `%XX`, and for the other fields.
const MAX_BODY_BYTES: usize = 3 * MAX_MARKDOWN_BYTES + 64 * 1024;
/// Texts from the demo page belong to this project.
const PROJECT: i64 = 1;

/// The fields as sent: not yet known to be text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fields {
    title: Vec<u8>,
    format: Vec<u8>,
    markdown: Vec<u8>,
    mishap: Vec<u8>,
}

/// Why a text was not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Empty,
    Nul { line: usize, column: usize },
    TitleNul,
    Encoding,
    TooLong { bytes: usize },
    BodyTooLarge,
    Busy,
    Format,
    Media,
    Forbidden,
    Trouble,
}

/// `POST /demo`
pub(super) async fn send(
    State(state): State<AppState>,
    Extension(context): Extension<RequestContext>,
    request: Request,
) -> Response {
    let Some(user) = context.user.clone() else {
        return Redirect::to("/sign-in?next=%2Fdemo").into_response();
    };
    if !Role::from(user.role).allows(Permission::EnqueueJobs) {
        if let Err(error) = state.store.audit_refused(&context.actor(), "enqueue_job", Some(ExportMarkdown::TYPE)).await
        {
            return trouble(&state, &context, None, &error);
        }
        return refuse(&state, &context, Refusal::Forbidden, None);
    }
    let fields = match read(request).await {
        Ok(fields) => fields,
        Err(refusal) => return refuse(&state, &context, refusal, None),
    };
    let job = match export(&fields) {
        Ok(job) => job,
        Err(refusal) => return refuse(&state, &context, refusal, Some(&fields)),
    };
    let options = EnqueueOptions {
        created_by: Some(user.name.clone()),
        owner: Some(user.email.clone()),
        ..EnqueueOptions::default()
    };
    match state.store.enqueue(&job, options).await {
        Ok(Enqueued { id, is_new: true, .. }) => to_link(&state, &user, id, LinkRights::ALL, ""),
        Ok(Enqueued { id, .. }) => match landed(&state, &context.actor(), &user, id).await {
            Ok(response) => response,
            Err(error) => trouble(&state, &context, Some(&fields), &error),
        },
        Err(StoreError::PayloadTooLarge { .. }) => {
            refuse(&state, &context, Refusal::TooLong { bytes: job.markdown.len() }, Some(&fields))
        }
        Err(error) => trouble(&state, &context, Some(&fields), &error),
    }
}

fn to_link(state: &AppState, user: &SignInSession, id: JobId, rights: LinkRights, query: &str) -> Response {
    Redirect::to(&format!("{}{query}", state.links.path(id, rights, user.user_id))).into_response()
}

/// Where a duplicate leads: to the export that is there. What can be done with it stays with whoever had it made: others see it and
/// fetch its file. If the file is gone, asking for it has it made again, for the one who asks.
async fn landed(state: &AppState, actor: &Actor, user: &SignInSession, id: JobId) -> Result<Response, StoreError> {
    let Some(job) = state.store.job_glance(id, &[]).await? else {
        return Ok(to_link(state, user, id, LinkRights::SEE_ONLY, "?again=1"));
    };
    let gone = super::file_is_gone(state, &job).await.unwrap_or_else(|error| {
        // Its page is of use all the same, and tells of the trouble if there is still some.
        tracing::error!(job_id = %id, error = &error as &dyn std::error::Error, "a file could not be looked for");
        false
    });
    let of_others = |by: JobId| to_link(state, user, by, LinkRights::SEE_ONLY, "?again=1");
    if gone {
        match state.store.job_rerun(id, Some(&user.email), actor).await? {
            RerunOutcome::Queued { id } => return Ok(to_link(state, user, id, LinkRights::ALL, "")),
            RerunOutcome::KeyHeld { by } => return Ok(of_others(by)),
            RerunOutcome::NotRerunnable(_) | RerunOutcome::NotFound => {}
        }
    }
    Ok(if job.owner.as_deref() == Some(user.email.as_str()) {
        to_link(state, user, id, LinkRights::ALL, "?again=1")
    } else {
        of_others(id)
    })
}

/// The job a form asks for.
fn export(fields: &Fields) -> Result<ExportMarkdown, Refusal> {
    let markdown = std::str::from_utf8(&fields.markdown).map_err(|_| Refusal::Encoding)?;
    let title = std::str::from_utf8(&fields.title).map_err(|_| Refusal::Encoding)?;
    if let Some(at) = markdown.find('\0') {
        let line_start = markdown[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = markdown[..at].matches('\n').count() + 1;
        return Err(Refusal::Nul { line, column: markdown[line_start..at].chars().count() + 1 });
    }
    if title.contains('\0') {
        return Err(Refusal::TitleNul);
    }
    // Browsers end lines with CR LF, files often do not: the same text must be the same export.
    let markdown = markdown.replace("\r\n", "\n");
    if markdown.trim().is_empty() {
        return Err(Refusal::Empty);
    }
    if markdown.len() > MAX_MARKDOWN_BYTES {
        return Err(Refusal::TooLong { bytes: markdown.len() });
    }
    let export_format = match fields.format.as_slice() {
        b"pdf" => ExportFormat::Pdf,
        b"html" => ExportFormat::Html,
        _ => return Err(Refusal::Format),
    };
    let mishap = std::str::from_utf8(&fields.mishap).ok().and_then(|word| word.parse().ok()).unwrap_or(Mishap::None);
    let title = match clean_title(title) {
        title if title.is_empty() => first_heading(&markdown),
        title => title,
    };
    let content_version = ExportMarkdown::version_of(&title, &markdown, mishap);
    Ok(ExportMarkdown { project_id: PROJECT, export_format, content_version, title, markdown, mishap })
}

/// One line without control characters, at most [`MAX_TITLE`] characters.
fn clean_title(title: &str) -> String {
    let one_line = title.replace(char::is_control, " ");
    one_line
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(MAX_TITLE)
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// The heading a text opens with; empty if it opens with something else.
fn first_heading(markdown: &str) -> String {
    let first = markdown.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let heading = first.trim_start().strip_prefix("# ").unwrap_or_default();
    clean_title(&heading.replace(['*', '`', '_'], ""))
}

/// The fields of a form, sent either way a browser can.
async fn read(request: Request) -> Result<Fields, Refusal> {
    match request.extensions().get() {
        Some(NotKept::TooLarge) => return Err(Refusal::BodyTooLarge),
        Some(NotKept::NoRoom) => return Err(Refusal::Busy),
        Some(NotKept::Forbidden) => return Err(Refusal::Forbidden),
        None => {}
    }
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "application/x-www-form-urlencoded" => {
            let body = body::to_bytes(request.into_body(), MAX_BODY_BYTES).await.map_err(|_| Refusal::BodyTooLarge)?;
            Ok(Fields::from_urlencoded(&body))
        }
        "multipart/form-data" => Fields::from_multipart(request).await,
        _ => Err(Refusal::Media),
    }
}

impl Fields {
    fn slot(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        match name {
            "title" => Some(&mut self.title),
            "format" => Some(&mut self.format),
            "markdown" => Some(&mut self.markdown),
            "mishap" => Some(&mut self.mishap),
            _ => None,
        }
    }

    /// The usual form encoding, by bytes: a decoder that yields text would hide that it was none.
    fn from_urlencoded(body: &[u8]) -> Self {
        let mut fields = Self::default();
        for pair in body.split(|byte| *byte == b'&') {
            let mut parts = pair.splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let Ok(name) = String::from_utf8(decode(name)) else { continue };
            if let Some(slot) = fields.slot(&name) {
                *slot = decode(value);
            }
        }
        fields
    }

    async fn from_multipart(request: Request) -> Result<Self, Refusal> {
        let unreadable = |status: StatusCode| match status {
            StatusCode::PAYLOAD_TOO_LARGE => Refusal::BodyTooLarge,
            _ => Refusal::Media,
        };
        let mut fields = Self::default();
        let mut form = Multipart::from_request(request, &()).await.map_err(|error| unreadable(error.status()))?;
        while let Some(field) = form.next_field().await.map_err(|error| unreadable(error.status()))? {
            let name = field.name().unwrap_or_default().to_owned();
            let value = field.bytes().await.map_err(|error| unreadable(error.status()))?;
            if value.len() > MAX_BODY_BYTES {
                return Err(Refusal::BodyTooLarge);
            }
            if let Some(slot) = fields.slot(&name) {
                *slot = value.into();
            }
        }
        Ok(fields)
    }
}

/// Undoes the form encoding. A `%` that starts no code stands for itself.
fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => match (digit(text.get(at)), digit(text.get(at + 1))) {
                (Some(high), Some(low)) => {
                    bytes.push(high * 16 + low);
                    at += 2;
                }
                _ => bytes.push(b'%'),
            },
            other => bytes.push(*other),
        }
    }
    bytes
}

fn trouble(state: &AppState, context: &RequestContext, fields: Option<&Fields>, error: &StoreError) -> Response {
    tracing::error!(error = error as &dyn std::error::Error, "an export could not be enqueued");
    refuse(state, context, Refusal::Trouble, fields)
}

/// The answer to a text that was not exported.
fn refuse(state: &AppState, context: &RequestContext, refusal: Refusal, fields: Option<&Fields>) -> Response {
    let lossy = |bytes: fn(&Fields) -> &Vec<u8>| {
        fields.map_or(Cow::Borrowed(""), |fields| String::from_utf8_lossy(bytes(fields)))
    };
    let (title, format) = (lossy(|fields| &fields.title), lossy(|fields| &fields.format));
    let (markdown, mishap) = (lossy(|fields| &fields.markdown), lossy(|fields| &fields.mishap));
    let refused = RefusedText {
        reason: refusal.sentence(context.locale),
        title: &title,
        markdown: fields.map(|_| markdown.as_ref()),
        format: &format,
        mishap: &mishap,
    };
    let mut response =
        super::html(state, context, refusal.status(), |frame| export_page::render_refused_text(&refused, frame));
    if refusal == Refusal::Busy {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
    }
    response
}

impl Refusal {
    fn status(self) -> StatusCode {
        match self {
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Media => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Busy | Self::Trouble => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    fn sentence(self, locale: Locale) -> String {
        let limit = || Arg::from(format::bytes(MAX_MARKDOWN_BYTES as u64));
        match self {
            Self::Empty => locale.text("export-demo-empty"),
            // Places are no quantities: no comma.
            Self::Nul { line, column } => locale
                .format("export-demo-nul", &[("line", line.to_string().into()), ("column", column.to_string().into())]),
            Self::TitleNul => locale.text("export-demo-title-nul"),
            Self::Encoding => locale.text("export-demo-encoding"),
            Self::TooLong { bytes } => locale
                .format("export-demo-too-long", &[("size", format::bytes(bytes as u64).into()), ("limit", limit())]),
            Self::BodyTooLarge => locale.format("export-demo-body-too-large", &[("limit", limit())]),
            Self::Busy => locale.text("export-demo-busy"),
            Self::Format => locale.text("export-demo-format"),
            Self::Media => locale.text("export-demo-media"),
            Self::Forbidden => locale.text("export-demo-forbidden"),
            Self::Trouble => locale.text("export-demo-trouble"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(markdown: &[u8]) -> Fields {
        Fields { title: b"Notes".into(), format: b"pdf".into(), markdown: markdown.into(), mishap: Vec::new() }
    }

    #[test]
    fn form_encoding_is_undone_by_bytes() {
        let fields =
            Fields::from_urlencoded(b"title=a+b%26c&markdown=%E4%B8%AD%ff%0D%0A100%25+%zz%&other=x&format=pdf");
        assert_eq!(fields.title, b"a b&c");
        assert_eq!(fields.markdown, b"\xe4\xb8\xad\xff\r\n100% %zz%");
        assert_eq!(fields.format, b"pdf");
        assert_eq!(Fields::from_urlencoded(b""), Fields::default());
    }

    #[test]
    fn texts_that_are_none_are_refused() {
        assert_eq!(export(&form(b" \r\n\t")), Err(Refusal::Empty));
        assert_eq!(export(&form(b"a\xff")), Err(Refusal::Encoding));
        assert_eq!(export(&form("第一\n第二\0".as_bytes())), Err(Refusal::Nul { line: 2, column: 3 }));
        assert_eq!(export(&Fields { title: b"a\0".into(), ..form(b"x") }), Err(Refusal::TitleNul));
        assert_eq!(export(&Fields { format: b"exe".into(), ..form(b"x") }), Err(Refusal::Format));
        let long = vec![b'x'; MAX_MARKDOWN_BYTES + 1];
        assert_eq!(export(&form(&long)), Err(Refusal::TooLong { bytes: MAX_MARKDOWN_BYTES + 1 }));
    }

    #[test]
    fn same_text_is_the_same_export_however_its_lines_end() {
        let unix = export(&form(b"# A\n\nb\n")).unwrap();
        assert_eq!(export(&form(b"# A\r\n\r\nb\r\n")).unwrap(), unix);
        let other = export(&Fields { title: b"Other".into(), ..form(b"# A\n\nb\n") }).unwrap();
        assert_ne!(other.content_version, unix.content_version);
    }

    #[test]
    fn title_falls_back_to_the_first_heading() {
        let title = |markdown: &[u8]| export(&Fields { title: b" ".into(), ..form(markdown) }).unwrap().title;
        assert_eq!(title(b"\n# The *big* `x`\n\ntext"), "The big x");
        assert_eq!(title(b"text\n# Later"), "");
        assert_eq!(clean_title(" a\r\n\tb  c "), "a b c");
        assert_eq!(clean_title(&"x".repeat(500)).len(), MAX_TITLE);
    }

    #[test]
    fn rehearsals_are_read_and_unknown_ones_ignored() {
        let mishap = |word: &[u8]| export(&Fields { mishap: word.into(), ..form(b"x") }).unwrap().mishap;
        assert_eq!(mishap(b"slow_down"), Mishap::SlowDown);
        assert_eq!(mishap(b""), Mishap::None);
        assert_eq!(mishap(b"what"), Mishap::None);
    }

    #[test]
    fn every_refusal_has_a_sentence_in_both_languages() {
        let all = [
            Refusal::Empty,
            Refusal::Nul { line: 1234, column: 2 },
            Refusal::TitleNul,
            Refusal::Encoding,
            Refusal::TooLong { bytes: 5_000_000 },
            Refusal::BodyTooLarge,
            Refusal::Busy,
            Refusal::Format,
            Refusal::Media,
            Refusal::Forbidden,
            Refusal::Trouble,
        ];
        for refusal in all {
            for locale in Locale::ALL {
                let sentence = refusal.sentence(locale);
                assert!(!sentence.contains("export-") && !sentence.contains('{'), "{sentence}");
            }
        }
        assert!(Refusal::Nul { line: 1234, column: 2 }.sentence(Locale::En).contains("Line 1234, column 2"));
    }
}
