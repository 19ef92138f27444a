//! One lookup, as a resolver receives it.

use std::sync::Arc;

use crate::context::{RequestContext, TraceContext};
use crate::email::Email;
use crate::model::{LookupId, WorkspaceId};

/// The email to find, and the lookup and workspace that it belongs to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Query {
    /// Identifies the lookup in log lines.
    pub lookup_id: LookupId,
    /// The workspace that pays. Resolvers share scarce capacity fairly between workspaces.
    pub workspace: WorkspaceId,
    /// The email to find. A vendor receives only this field and the [trace](Self::trace).
    pub email: Email,
    /// The context of the request, if there is any.
    pub context: Option<Arc<RequestContext>>,
}

impl Query {
    /// Creates a query without a context.
    pub fn new(lookup_id: LookupId, workspace: WorkspaceId, email: Email) -> Self {
        Self { lookup_id, workspace, email, context: None }
    }

    /// Returns the trace that the request is part of. A resolver continues it in its own requests.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.context.as_ref()?.trace.as_ref()
    }
}
