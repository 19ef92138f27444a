//! A workspace of a test.

use enrich_lib::key::ApiKey;
use enrich_lib::model::WorkspaceId;

/// A workspace and one of its API keys.
#[derive(Clone, Debug)]
pub struct TestWorkspace {
    pub id: WorkspaceId,
    pub key: String,
}

/// Generates a key that no store contains.
pub(super) fn new_key() -> ApiKey {
    ApiKey::generate(rand::random)
}
