//! What the live stream sends.

use jobdeck::JobId;
use serde::{Deserialize, Serialize};

use super::{JobRow, StateCountsView};

/// One event of `/live`: what changed since the last one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveUpdate {
    /// Jobs per state under the list's filter, if asked for and changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<StateCountsView>,
    /// Watched rows that changed, as they are now.
    #[serde(default)]
    pub rows: Vec<JobRow>,
    /// Watched rows that are no longer there.
    #[serde(default)]
    pub gone: Vec<JobId>,
}
