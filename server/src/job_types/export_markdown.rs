//! `export_markdown`: a Markdown text becomes a PDF or an HTML file that can be downloaded.
//!
//! Stages: generating (read and check the text), rendering (make the file), uploading (store it), downloadable.
//!
//! Each execution stores its file under a name of its own, `exports/<job id>/<token>.<ext>`, so a late writer can never
//! replace the file of the execution that won; which file is the job's stands in its result and is written together with
//! its success. An execution that is refused removes its own file, and every execution removes those of earlier tokens:
//! their outcomes are refused for ever, because tokens only grow.

use std::future::Future;
use std::time::Duration;

use jobdeck::{Ctx, FailureClass, JobError, JobId, JobType, Keep, Policy, Retention, code};
use jobdeck_document::{DocumentError, Fonts, MAX_IMAGE_BYTES, Rendered, Source};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::storage::FileStore;

/// The file's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportFormat {
    /// A4, set by Typst.
    Pdf,
    /// One file with everything inside.
    Html,
}

impl ExportFormat {
    /// The word in payloads, forms and file names.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pdf => "pdf",
            Self::Html => "html",
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Pdf => "application/pdf",
            Self::Html => "text/html; charset=utf-8",
        }
    }
}

/// A rehearsal of something that goes wrong in real life, chosen on the demo page. It takes the same path as the real
/// thing from the place where that would show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mishap {
    /// Everything works.
    #[default]
    None,
    /// The first two attempts cannot reach the storage.
    StorageFailsTwice,
    /// The first start is told to come back in 10 s.
    SlowDown,
    /// The first start is refused by the storage; a person's retry works.
    StorageRefusesOnce,
}

impl Mishap {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::StorageFailsTwice => "storage_fails_twice",
            Self::SlowDown => "slow_down",
            Self::StorageRefusesOnce => "storage_refuses_once",
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl std::str::FromStr for Mishap {
    type Err = ();
    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::None, Self::StorageFailsTwice, Self::SlowDown, Self::StorageRefusesOnce]
            .into_iter()
            .find(|mishap| mishap.as_str() == word)
            .ok_or(())
    }
}

/// The payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportMarkdown {
    /// Whose text it is, in the product's own numbers.
    pub project_id: i64,
    /// What to make of it.
    pub export_format: ExportFormat,
    /// Changes with the text. The same project, format and version are the same export.
    pub content_version: i64,
    /// Title and file name. May be empty.
    pub title: String,
    /// The text.
    pub markdown: String,
    /// What to rehearse. Left out when nothing.
    #[serde(default, skip_serializing_if = "Mishap::is_none")]
    pub mishap: Mishap,
}

impl ExportMarkdown {
    /// A version made from the content itself, for texts that have no version of their own: 53 bits of its SHA-256, so
    /// that every JSON reader gets the same number. A rehearsal is another content, so that it is not answered with the
    /// file of an export that went well.
    pub fn version_of(title: &str, markdown: &str, mishap: Mishap) -> i64 {
        let mut hash = Sha256::new();
        hash.update((title.len() as u64).to_be_bytes());
        hash.update(title);
        hash.update(markdown);
        if !mishap.is_none() {
            hash.update([0]);
            hash.update(mishap.as_str());
        }
        let digest = hash.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        // 53 bits always fit.
        (u64::from_be_bytes(first) >> 11) as i64
    }
}

impl JobType for ExportMarkdown {
    const TYPE: &'static str = "export_markdown";

    fn policy() -> Policy {
        // A file is found by its job's row, so rows of files stay.
        let retention = Retention { succeeded: Keep::FOREVER, ..Retention::default() };
        Policy { timeout: Duration::from_secs(10 * 60), retention, ..Policy::in_queue("exports") }
            .keyed_by(&["project_id", "export_format", "content_version"])
            .stage("generating", "Generating", "正在生成")
            .stage("rendering", "Rendering", "正在排版")
            .stage("uploading", "Uploading", "正在上传")
            .stage("downloadable", "Ready to download", "可下载")
    }
}

/// The result: `{"file": {...}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileResult {
    /// The one file.
    pub file: ExportedFile,
}

/// A stored file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedFile {
    /// Its name in the object store.
    pub object: String,
    /// Its name for people.
    pub name: String,
    /// As sent with the download.
    pub content_type: String,
    /// Its size.
    pub bytes: u64,
    /// Pages of a PDF.
    pub pages: Option<u32>,
}

/// The handler, with the store it keeps files in.
pub(crate) fn handler(
    files: FileStore,
) -> impl Fn(Ctx, ExportMarkdown) -> std::pin::Pin<Box<dyn Future<Output = Result<FileResult, JobError>> + Send>> {
    move |ctx, job| Box::pin(export(files.clone(), ctx, job))
}

async fn export(files: FileStore, ctx: Ctx, job: ExportMarkdown) -> Result<FileResult, JobError> {
    let ExportMarkdown { export_format: format, title, markdown, mishap, .. } = job;
    let name = file_name(&title, format);

    ctx.stage("generating").await?;
    if mishap == Mishap::SlowDown && ctx.starts() == 1 {
        return Err(JobError::rate_limited(Duration::from_secs(10), "rehearsal: a provider asked to wait 10 s"));
    }
    let parse = ctx.blocking(move || {
        let source = Source { title: &title, markdown: &markdown, lang: None };
        jobdeck_document::parse(&source).map_err(document_error)
    });
    let document = unless_stopped(&ctx, parse).await?;

    ctx.stage("rendering").await?;
    let render = ctx.blocking(move || match format {
        ExportFormat::Pdf => document.to_pdf(Fonts::shared()).map_err(document_error),
        ExportFormat::Html => Ok(document.to_html()),
    });
    let rendered = unless_stopped(&ctx, render).await?;

    ctx.stage("uploading").await?;
    let file = ExportedFile {
        object: object_name(ctx.job_id(), ctx.token(), format),
        name,
        content_type: format.content_type().to_owned(),
        bytes: rendered.bytes.len() as u64,
        pages: rendered.pages,
    };
    let stored = store_and_complete(&files, &ctx, mishap, rendered, file.clone()).await;
    match stored {
        Ok(()) => {
            remove_earlier(&files, ctx.job_id(), ctx.token()).await;
            Ok(FileResult { file })
        }
        // When the database did not answer, the success may have been recorded all the same.
        Err(NotCompleted::Unknown(error)) => Err(error),
        Err(NotCompleted::Refused(error)) => {
            if let Err(leftover) = files.delete(&file.object).await {
                tracing::warn!(object = file.object, error = %leftover, "a file nobody refers to could not be removed");
            }
            Err(error)
        }
    }
}

/// Why the job was not completed.
enum NotCompleted {
    /// It does not refer to the file, for certain.
    Refused(JobError),
    /// It may.
    Unknown(JobError),
}

impl From<JobError> for NotCompleted {
    fn from(error: JobError) -> Self {
        Self::Refused(error)
    }
}

async fn store_and_complete(
    files: &FileStore,
    ctx: &Ctx,
    mishap: Mishap,
    rendered: Rendered,
    file: ExportedFile,
) -> Result<(), NotCompleted> {
    ctx.progress(0).await?;
    rehearse(mishap, ctx.attempt(), ctx.starts(), &file.object)?;
    unless_stopped(ctx, upload(files, ctx, &file.object, rendered.bytes)).await?;
    let tx = ctx.store().begin().await.map_err(JobError::from)?;
    // Not cut short by a request to stop: whether it was committed would then be unknown.
    ctx.complete_in(tx, &FileResult { file }).await.map_err(|error| match error.code.as_str() {
        code::LEASE_LOST => NotCompleted::Refused(error),
        _ => NotCompleted::Unknown(error),
    })
}

/// Runs `work` until it ends or the handler must stop, whichever is first.
async fn unless_stopped<T>(ctx: &Ctx, work: impl Future<Output = Result<T, JobError>>) -> Result<T, JobError> {
    tokio::select! {
        biased;
        result = work => result,
        () = ctx.canceled() => Err(JobError::retryable("stopped", "the handler was asked to stop")),
    }
}

/// Stores the file and reports how far it is.
async fn upload(files: &FileStore, ctx: &Ctx, object: &str, content: Vec<u8>) -> Result<(), JobError> {
    let total = content.len().max(1);
    let mut sent = 0;
    let mut upload = files.begin(object).await.map_err(storage_error)?;
    for part in FileStore::parts(content.into()) {
        sent += part.len();
        upload.put(part).await.map_err(storage_error)?;
        ctx.progress((sent * 100 / total).min(100) as u8).await?;
    }
    upload.finish().await.map_err(storage_error)
}

/// `exports/<job id>/<token>.<ext>`: nothing in it comes from the user.
fn object_name(job_id: JobId, token: i64, format: ExportFormat) -> String {
    format!("{}/{token}.{}", folder(job_id), format.as_str())
}

fn folder(job_id: JobId) -> String {
    format!("exports/{job_id}")
}

/// Removes the files of executions before `token`. Failing to is no reason to fail the job: the next one tries again.
async fn remove_earlier(files: &FileStore, job_id: JobId, token: i64) {
    let removed = async {
        for object in files.list(&folder(job_id)).await? {
            let writer =
                object.rsplit('/').next().and_then(|name| name.split('.').next()).and_then(|id| id.parse().ok());
            if writer.is_some_and(|writer: i64| writer < token) {
                files.delete(&object).await?;
            }
        }
        Ok::<_, object_store::Error>(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(job_id = %job_id, %error, "files of earlier attempts could not be removed");
    }
}

fn rehearse(mishap: Mishap, attempt: i32, starts: i32, object: &str) -> Result<(), JobError> {
    let path = object.to_owned();
    match mishap {
        Mishap::StorageFailsTwice if attempt <= 2 => {
            let refused =
                std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "rehearsal: storage does not answer");
            let error = storage_error(object_store::Error::Generic { store: "rehearsal", source: refused.into() });
            // Short, so that people see both tries.
            Err(JobError { retry_after: Some(Duration::from_secs(2)), ..error })
        }
        Mishap::StorageRefusesOnce if starts == 1 => {
            let source = "rehearsal: storage refuses this once".into();
            Err(storage_error(object_store::Error::PermissionDenied { path, source }))
        }
        _ => Ok(()),
    }
}

/// Sorts what an object store says into classes. The user's sentence speaks of the storage.
fn storage_error(error: object_store::Error) -> JobError {
    use object_store::Error as E;
    let detail = error.to_string();
    let (class, error_code) = match &error {
        E::NotFound { .. } => (FailureClass::Unrecoverable, code::NOT_FOUND),
        E::PermissionDenied { .. } => (FailureClass::Unrecoverable, code::PERMISSION),
        E::Unauthenticated { .. } => (FailureClass::Unrecoverable, code::INVALID_CREDENTIALS),
        E::Generic { source, .. } => match io_kind(source.as_ref()) {
            Some(std::io::ErrorKind::PermissionDenied) => (FailureClass::Unrecoverable, code::PERMISSION),
            Some(std::io::ErrorKind::TimedOut) => (FailureClass::Retryable, code::TIMEOUT),
            // A full disk may have room again before the attempts are used up, like other trouble with a folder.
            Some(
                std::io::ErrorKind::ConnectionRefused
                | std::io::ErrorKind::ConnectionReset
                | std::io::ErrorKind::ConnectionAborted
                | std::io::ErrorKind::BrokenPipe,
            ) => (FailureClass::Retryable, code::CONNECTION),
            Some(_) => (FailureClass::Retryable, code::IO),
            None => (FailureClass::Retryable, code::CONNECTION),
        },
        _ => (FailureClass::Retryable, code::IO),
    };
    match class {
        FailureClass::Unrecoverable => JobError::unrecoverable(error_code, detail),
        _ => JobError::retryable(error_code, detail),
    }
    .with("reason", "storage")
}

/// The kind of the first I/O error among an error and its causes.
fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        next = error.source();
    }
    None
}

/// A fault of the text fails the job at once, with the facts for a sentence in the user's language. A fault of Typst is
/// ours.
fn document_error(error: DocumentError) -> JobError {
    let detail = error.to_string();
    let job_error = match &error {
        DocumentError::Typeset { .. } => return JobError::unrecoverable("typeset", detail),
        other => JobError::unrecoverable(code::INVALID_CONTENT, detail).with("reason", other.code()),
    };
    let job_error = match error.line() {
        Some(line) => job_error.with("line", line),
        None => job_error,
    };
    match error {
        DocumentError::BrokenImage { reason, .. } => {
            job_error.with("fault", reason.code()).with("limit_mb", MAX_IMAGE_BYTES / (1024 * 1024))
        }
        DocumentError::MissingGlyph { character, code_point, .. } => {
            job_error.with("character", character.to_string()).with("code_point", format!("U+{code_point:04X}"))
        }
        DocumentError::ContainsNul { column, .. } => job_error.with("column", column),
        DocumentError::TooLarge { bytes, limit } => {
            job_error.with("bytes", bytes).with("limit_mb", limit / (1024 * 1024))
        }
        DocumentError::TooSlow { seconds } => job_error.with("seconds", seconds),
        _ => job_error,
    }
}

/// A file name that every system takes: no separators, control or direction characters, no dots in front, at most 100
/// characters and 200 bytes.
fn file_name(title: &str, format: ExportFormat) -> String {
    let mut name = String::new();
    for character in title.chars().take(100) {
        let shown = match character {
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => '-',
            // Marks that reorder or hide text, so that what ends in ".html" also looks like it.
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => continue,
            other if other.is_control() => ' ',
            other => other,
        };
        if name.len() + shown.len_utf8() > 200 {
            break;
        }
        name.push(shown);
    }
    let stem = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let stem = stem.trim_matches(['.', ' ']);
    // Windows keeps these names for devices.
    let lower = stem.to_ascii_lowercase();
    let numbered = |device| lower.strip_prefix(device).is_some_and(|rest| matches!(rest.as_bytes(), [b'0'..=b'9']));
    let device = ["con", "prn", "aux", "nul"].contains(&lower.as_str()) || numbered("com") || numbered("lpt");
    let stem = if stem.is_empty() || device { "export" } else { stem };
    format!("{stem}.{}", format.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_is_valid_and_the_key_names_project_format_and_version() {
        ExportMarkdown::policy().check(ExportMarkdown::TYPE).unwrap();
        let job = ExportMarkdown {
            project_id: 7,
            export_format: ExportFormat::Html,
            content_version: 3,
            title: "Notes".into(),
            markdown: "x".into(),
            mishap: Mishap::None,
        };
        assert_eq!(job.idempotency_key().unwrap().as_str(), "7:html:3");
        let payload = serde_json::to_value(&job).unwrap();
        assert_eq!(payload["export_format"], "html");
        assert!(payload.get("mishap").is_none());
        assert_eq!(serde_json::from_value::<ExportMarkdown>(payload).unwrap(), job);
    }

    #[test]
    fn version_changes_with_title_text_and_rehearsal_and_fits_53_bits() {
        let version = |title, text, mishap| ExportMarkdown::version_of(title, text, mishap);
        let versions = [
            version("a", "bc", Mishap::None),
            version("ab", "c", Mishap::None),
            version("a", "bc ", Mishap::None),
            version("a", "bc", Mishap::SlowDown),
            version("a", "bc", Mishap::StorageFailsTwice),
        ];
        for (place, one) in versions.iter().enumerate() {
            assert!((0..1 << 53).contains(one));
            assert!(!versions[..place].contains(one));
        }
        assert_eq!(versions[0], version("a", "bc", Mishap::None));
    }

    #[test]
    fn faults_of_the_text_are_unrecoverable_and_say_where() {
        let error =
            document_error(DocumentError::BrokenImage { line: 12, reason: jobdeck_document::ImageFault::Damaged });
        assert_eq!((error.class, error.code.as_str()), (FailureClass::Unrecoverable, code::INVALID_CONTENT));
        assert_eq!(error.params["reason"], "broken_image");
        assert_eq!(error.params["fault"], "damaged");
        assert_eq!(error.params["line"], 12);
        let error =
            document_error(DocumentError::MissingGlyph { character: '🧿', code_point: 0x1F9FF, line: Some(118) });
        assert_eq!(error.params["code_point"], "U+1F9FF");
        assert!(error.detail.contains("U+1F9FF"), "{}", error.detail);
    }

    #[test]
    fn storage_errors_are_sorted_into_classes() {
        use object_store::Error as E;
        let path = || "exports/1.pdf".to_owned();
        let io = |kind| E::Generic { store: "x", source: std::io::Error::new(kind, "y").into() };
        let cases = [
            (E::NotFound { path: path(), source: "x".into() }, FailureClass::Unrecoverable, code::NOT_FOUND),
            (E::PermissionDenied { path: path(), source: "x".into() }, FailureClass::Unrecoverable, code::PERMISSION),
            (io(std::io::ErrorKind::PermissionDenied), FailureClass::Unrecoverable, code::PERMISSION),
            (io(std::io::ErrorKind::ConnectionRefused), FailureClass::Retryable, code::CONNECTION),
            (io(std::io::ErrorKind::TimedOut), FailureClass::Retryable, code::TIMEOUT),
            (io(std::io::ErrorKind::StorageFull), FailureClass::Retryable, code::IO),
            (E::Generic { store: "x", source: "y".into() }, FailureClass::Retryable, code::CONNECTION),
        ];
        for (error, class, error_code) in cases {
            let text = error.to_string();
            let mapped = storage_error(error);
            assert_eq!((mapped.class, mapped.code.as_str()), (class, error_code), "{text}");
            assert_eq!(mapped.params["reason"], "storage");
        }
    }

    #[test]
    fn rehearsals_end_by_themselves() {
        let at = |mishap, attempt, starts| rehearse(mishap, attempt, starts, "x").err();
        assert_eq!(at(Mishap::StorageFailsTwice, 1, 1).unwrap().retry_after, Some(Duration::from_secs(2)));
        assert_eq!(at(Mishap::StorageFailsTwice, 2, 2).unwrap().code, code::CONNECTION);
        assert!(at(Mishap::StorageFailsTwice, 3, 3).is_none());
        assert_eq!(at(Mishap::StorageRefusesOnce, 1, 1).unwrap().class, FailureClass::Unrecoverable);
        // A person's retry starts again at attempt 1.
        assert!(at(Mishap::StorageRefusesOnce, 1, 2).is_none());
        assert!(at(Mishap::None, 1, 1).is_none());
    }

    #[test]
    fn file_names_are_safe_everywhere() {
        let pdf = |title: &str| file_name(title, ExportFormat::Pdf);
        assert_eq!(pdf("Q3 research notes"), "Q3 research notes.pdf");
        assert_eq!(pdf("第三季度研究笔记"), "第三季度研究笔记.pdf");
        assert_eq!(pdf("../../etc/passwd"), "-..-etc-passwd.pdf");
        assert_eq!(pdf("a\r\nSet-Cookie: x"), "a Set-Cookie- x.pdf");
        assert_eq!(pdf("fdp.\u{202e}exe"), "fdp.exe.pdf");
        assert_eq!(pdf(" \t. "), "export.pdf");
        assert_eq!(pdf("CON"), "export.pdf");
        assert_eq!(pdf("COM1"), "export.pdf");
        assert_eq!(pdf("Cond"), "Cond.pdf");
        assert!(pdf(&"長".repeat(500)).len() <= 204);
        assert_eq!(file_name("", ExportFormat::Html), "export.html");
    }

    #[tokio::test]
    async fn only_files_of_earlier_executions_are_removed() {
        let folder = std::env::temp_dir().join(format!("jobdeck-exports-{}", uuid::Uuid::now_v7()));
        let files = FileStore::in_folder(&folder).unwrap();
        let (job, other) = (JobId(uuid::Uuid::now_v7()), JobId(uuid::Uuid::now_v7()));
        for (id, token) in [(job, 1), (job, 9), (job, 10), (job, 11), (other, 1)] {
            let mut upload = files.begin(&object_name(id, token, ExportFormat::Pdf)).await.unwrap();
            upload.put(vec![1].into()).await.unwrap();
            upload.finish().await.unwrap();
        }
        remove_earlier(&files, job, 10).await;
        let mut left = files.list("exports").await.unwrap();
        left.sort();
        let mut expected =
            [(job, 10), (job, 11), (other, 1)].map(|(id, token)| object_name(id, token, ExportFormat::Pdf));
        expected.sort();
        assert_eq!(left, expected);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
