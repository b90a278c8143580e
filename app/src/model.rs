//! What crosses the wire between server and browser.

pub mod access;
pub mod job;
pub mod live;
pub mod notice;
pub mod page;
pub mod query;

pub use access::{Permission, Role};
pub use job::{
    AttemptView, AuditView, JobListView, JobRow, JobView, JsonText, StageView, StateCountsView, TypeView, WaitView,
};
pub use live::LiveUpdate;
pub use notice::{Notice, Refusal};
pub use page::{PageFacts, Theme, Viewer};
pub use query::JobQuery;
