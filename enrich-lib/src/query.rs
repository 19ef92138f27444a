//! One lookup, as a resolver receives it.

use crate::email::Email;
use crate::model::{LookupId, WorkspaceId};

/// The email to find, and the lookup and workspace that it belongs to.
#[derive(Clone, Debug)]
pub struct Query {
    /// Identifies the lookup in log lines.
    pub lookup_id: LookupId,
    /// The workspace that pays. Resolvers share scarce capacity fairly between workspaces.
    pub workspace: WorkspaceId,
    /// The email to find. A vendor receives no other field.
    pub email: Email,
}
