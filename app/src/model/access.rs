//! Who may do what: one table, used by the server to decide and by pages to leave out what would be refused.

use serde::{Deserialize, Serialize};

/// What a user is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Also retries and enqueues.
    Operator,
    /// Also cancels.
    Admin,
}

/// What a page or a server function needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Permission {
    /// See jobs, their payloads and errors.
    ViewJobs,
    /// Send failed and canceled jobs back to the start.
    RetryJobs,
    /// Put new jobs into the queue.
    EnqueueJobs,
    /// Stop jobs that have not ended.
    CancelJobs,
}

impl Role {
    /// Every role, the narrowest first.
    pub const ALL: [Role; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// The word used on the wire and in message keys.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Whether this role may do what needs `permission`.
    pub const fn allows(self, permission: Permission) -> bool {
        match permission {
            Permission::ViewJobs => true,
            Permission::RetryJobs | Permission::EnqueueJobs => matches!(self, Self::Operator | Self::Admin),
            Permission::CancelJobs => matches!(self, Self::Admin),
        }
    }
}

/// Whether `role` may do what needs `permission`.
pub const fn allows(role: Role, permission: Permission) -> bool {
    role.allows(permission)
}

#[cfg(feature = "ssr")]
impl From<jobdeck::store::UserRole> for Role {
    fn from(role: jobdeck::store::UserRole) -> Self {
        use jobdeck::store::UserRole;
        match role {
            UserRole::Viewer => Self::Viewer,
            UserRole::Operator => Self::Operator,
            UserRole::Admin => Self::Admin,
        }
    }
}
