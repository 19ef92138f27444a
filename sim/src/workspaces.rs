//! The workspaces of a run and their keys.

use std::sync::Arc;

use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::model::WorkspaceId;
use enrich_lib::ports::{Keys, async_trait};
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Quota, Workspace};

use crate::keys::KeyOf;
use crate::plan::Plan;

const PROBER_CREDITS: u64 = 30;

/// A workspace with its keys and its initial credits.
pub(crate) struct InitialWorkspace {
    pub(crate) workspace: Workspace,
    pub(crate) keys: Vec<ApiKey>,
    pub(crate) credits: u64,
}

/// Returns all workspaces of a run.
pub(crate) fn initial_workspaces(plan: &Plan) -> [InitialWorkspace; 3] {
    [
        InitialWorkspace {
            workspace: Workspace::new(client_workspace(), plan.quota),
            keys: KeyOf::INITIAL.map(KeyOf::api_key).into(),
            credits: plan.credits,
        },
        InitialWorkspace {
            workspace: Workspace::new(second_workspace(), plan.quota),
            keys: vec![KeyOf::Second.api_key()],
            credits: plan.credits,
        },
        InitialWorkspace {
            workspace: Workspace::new(prober_workspace(), Quota::default()),
            keys: vec![KeyOf::Prober.api_key()],
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

/// Returns the workspace that sends requests after healing. Its limits are high enough never to refuse a
/// request.
pub(crate) fn prober_workspace() -> WorkspaceId {
    "prober".parse().expect("a valid id")
}

/// Returns the workspace of a key.
pub(crate) fn workspace_of(key: KeyOf) -> WorkspaceId {
    match key {
        KeyOf::Second => second_workspace(),
        KeyOf::Prober => prober_workspace(),
        _ => client_workspace(),
    }
}

/// The keys that clients send: those of this project, or those of a gateway.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeyTexts(Option<fn(u8) -> String>);

impl KeyTexts {
    pub(crate) fn of_gateway(text: fn(u8) -> String) -> Self {
        Self(Some(text))
    }

    pub(crate) fn text(self, of: KeyOf) -> String {
        self.0.map_or_else(|| of.api_key().reveal().to_owned(), |text| text(of as u8))
    }

    pub(crate) fn digest(self, of: KeyOf) -> KeyDigest {
        KeyDigest::from_token(self.text(of).as_bytes())
    }

    /// Returns a port that finds the workspaces of these keys in a store of this project's keys.
    pub(crate) fn port(self, store: Arc<dyn Keys>) -> Arc<dyn Keys> {
        if self.0.is_none() {
            return store;
        }
        let digests = KeyOf::ALL.into_iter().map(|of| (self.digest(of), of.api_key().digest())).collect();
        Arc::new(TranslatedKeys { store, digests })
    }
}

/// Replaces the digests of a gateway's keys by those of the keys in the store.
struct TranslatedKeys {
    store: Arc<dyn Keys>,
    digests: Vec<(KeyDigest, KeyDigest)>,
}

#[async_trait]
impl Keys for TranslatedKeys {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        let stored = self.digests.iter().find(|(text, _)| text == key).map(|(_, stored)| stored);
        self.store.find(stored.unwrap_or(key)).await
    }
}
