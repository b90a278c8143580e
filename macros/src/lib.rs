//! The derive of `jobdeck::JobType`. Use it from there: `use jobdeck::JobType`.

mod duration;
mod expand;
mod fields;
mod job_attribute;

/// Implements `JobType` for a payload: its name and its policy, declared in one place.
///
/// ```
/// use jobdeck::{Backoff, DuplicateBehaviour, Keep, JobType};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, JobType)]
/// #[job(type = "export_markdown", queue = "exports", key(project_id, author.id), on_duplicate = "return_existing",
///       keep = "30d", stages(("typesetting", "Typesetting", "正在排版"), "uploading", "downloadable"), redact("author.email"))]
/// struct ExportMarkdown { project_id: i64, author: Author }
///
/// #[derive(Serialize, Deserialize)]
/// struct Author { id: i64, email: String }
///
/// let policy = ExportMarkdown::policy();
/// assert_eq!(policy.key.unwrap().fields, ["project_id", "author.id"]);
/// let job = ExportMarkdown { project_id: 7, author: Author { id: 9, email: "ana@example.com".to_owned() } };
/// assert_eq!(job.idempotency_key().unwrap().as_str(), "7:9");
/// ```
///
/// The payload is a struct with named fields, or an enum that serialises to an object (its paths are not checked). All attributes
/// stand in `#[job(...)]`; all but `type` may be left out and then have the default of `Policy`.
///
/// | attribute | value |
/// |---|---|
/// | `type = "..."` | the name in column `type`; 1 to 100 of `A-Z a-z 0-9 _ . : -` |
/// | `queue = "..."` | likewise |
/// | `priority = 5` | −32768 to 32767, higher runs first |
/// | `attempts = 3` | at least 1, the first start included |
/// | `backoff = ...` | `"fixed 5s"`, `"exponential 10s x2 10m"` (first, factor, cap), or the path of a constant of type `Backoff` |
/// | `jitter = 0.2` | 0 to 1 |
/// | `timeout = "1h"` | a duration above zero |
/// | `max_stalled = 3` | at least 0 |
/// | `key(a, b.c)` | payload paths; the first segment is a field that is always there |
/// | `on_duplicate = "..."` | `"return_existing"` or `"ignore"`; with `key` |
/// | `keep = "30d"` | how long the key blocks after success: a duration or `"forever"`; with `key` |
/// | `stages("a", ("b", "English", "中文"))` | in order; a name alone is shown with the words many types share, or as it is |
/// | `redact("author.email", token)` | payload paths |
/// | `retain(succeeded = "500", failed = "2000, 30d", canceled = "forever")` | how many, for how long, or both |
/// | `provider = "..."` | whose cool-down stops it |
/// | `concurrency = 8`, `key_concurrency = 1` | limits of the queue, at least 1 |
/// | `limit_key = "customer_id"` | the payload path that gives the limit key |
///
/// A duration is a sum of whole numbers with units: `500ms`, `90s`, `10m`, `1h30m`, `30d`, `2w`. The first segment of a path may be
/// the Rust name of a field or its name in the JSON; `#[serde(rename)]` and `rename_all` are followed. Further segments are names
/// in the JSON.
///
/// What makes no sense does not compile:
///
/// ```compile_fail
/// # use {jobdeck::JobType, serde::{Deserialize, Serialize}};
/// #[derive(Serialize, Deserialize, JobType)]
/// #[job(type = "charge", key(provider_event_di))] // no such field
/// struct Charge { provider_event_id: String }
/// ```
///
/// ```compile_fail
/// # use {jobdeck::JobType, serde::{Deserialize, Serialize}};
/// #[derive(Serialize, Deserialize, JobType)]
/// #[job(type = "charge", timeout = "ten minutes")] // no duration
/// struct Charge {}
/// ```
///
/// ```compile_fail
/// # use {jobdeck::JobType, serde::{Deserialize, Serialize}};
/// #[derive(Serialize, Deserialize, JobType)]
/// #[job(type = "charge", atempts = 3)] // no such attribute
/// struct Charge {}
/// ```
#[proc_macro_derive(JobType, attributes(job))]
pub fn derive_job_type(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let expanded = syn::parse(input).and_then(|input| expand::expand(&input));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
