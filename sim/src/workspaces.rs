//! The workspaces of a run and their keys.

use enrich_lib::key::ApiKey;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::{Quota, Workspace};

use crate::plan::Plan;

const PROBER_CREDITS: u64 = 10;

/// A workspace with its key and its initial credits.
pub(crate) struct InitialWorkspace {
    pub(crate) workspace: Workspace,
    pub(crate) key: ApiKey,
    pub(crate) credits: u64,
}

/// Returns all workspaces of a run.
pub(crate) fn initial_workspaces(plan: &Plan) -> [InitialWorkspace; 3] {
    [
        InitialWorkspace {
            workspace: Workspace { id: client_workspace(), quota: plan.quota },
            key: client_key(),
            credits: plan.credits,
        },
        InitialWorkspace {
            workspace: Workspace { id: second_workspace(), quota: plan.quota },
            key: second_key(),
            credits: plan.credits,
        },
        InitialWorkspace {
            workspace: Workspace { id: prober_workspace(), quota: Quota::default() },
            key: prober_key(),
            credits: PROBER_CREDITS,
        },
    ]
}

/// Returns the ids of all workspaces.
pub(crate) fn workspace_ids() -> [WorkspaceId; 3] {
    [client_workspace(), second_workspace(), prober_workspace()]
}

/// Returns the workspace of every second client, in runs with two workspaces.
fn second_workspace() -> WorkspaceId {
    "second".parse().expect("a valid id")
}

/// Returns the workspace of the clients. All faults occur while it is in use.
///
/// The id determines when its rate-limit windows end. Another id would change the run of every seed.
pub(crate) fn client_workspace() -> WorkspaceId {
    "tenant".parse().expect("a valid id")
}

/// Returns the workspace that sends requests after healing. Its limits are high enough never to refuse a request.
pub(crate) fn prober_workspace() -> WorkspaceId {
    "prober".parse().expect("a valid id")
}

/// Returns the key of the clients' workspace.
pub(crate) fn client_key() -> ApiKey {
    ApiKey::generate(|| 1)
}

/// Returns the key of the second workspace. No operator revokes it.
pub(crate) fn second_key() -> ApiKey {
    ApiKey::generate(|| 4)
}

/// Returns the key of the prober's workspace.
pub(crate) fn prober_key() -> ApiKey {
    ApiKey::generate(|| 2)
}

/// Returns a well-formed key that no workspace has.
pub(crate) fn unknown_key() -> ApiKey {
    ApiKey::generate(|| 3)
}
