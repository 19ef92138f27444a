//! Keys such as `sk_live_…`, and the port `Keys` on the gateway's own table.

use std::sync::Arc;

use enrich_lib::key::{KeyDigest, KeyFormat};
use enrich_lib::model::WorkspaceId;
use enrich_lib::ports::{Keys, async_trait};
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Quota, Workspace};
use tokio_postgres::Client;

use crate::database::{Argument, Database, Failure, bytea, text};

/// The format of the gateway's keys.
#[derive(Debug)]
pub struct LiveKeys;

impl KeyFormat for LiveKeys {
    fn digest(&self, token: &[u8]) -> Option<KeyDigest> {
        token.starts_with(b"sk_live_").then(|| KeyDigest::from_token(token))
    }
}

/// Finds keys without a cache, so that a revoked key is invalid at once.
#[derive(Debug)]
pub struct ApiKeys(pub Arc<Database>);

#[async_trait]
impl Keys for ApiKeys {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        let digest = &key.as_bytes()[..];
        let sql = "SELECT workspace, requests, window_seconds FROM api_key JOIN account USING (workspace) WHERE digest = $1";
        let find = async |client: &Client| Ok(client.query_typed_opt(sql, &[bytea(&digest)]).await?);
        let found = self.0.transaction(find).await.map_err(PortError::new)?;
        let Some(row) = found else { return Ok(None) };
        let number = |column| u32::try_from(row.get::<_, i64>(column)).map_err(PortError::new);
        let quota = Quota::new(number(1)?, number(2)?).map_err(PortError::new)?;
        let id = row.get::<_, &str>(0).parse().map_err(PortError::new)?;
        Ok(Some(Workspace::new(id, quota)))
    }
}

impl ApiKeys {
    /// Stores a key.
    pub async fn create(&self, key: &KeyDigest, workspace: &WorkspaceId) -> Result<(), Failure> {
        let (digest, workspace) = (&key.as_bytes()[..], workspace.as_str());
        self.execute("INSERT INTO api_key VALUES ($1, $2)", &[bytea(&digest), text(&workspace)]).await
    }

    /// Revokes a key.
    pub async fn revoke(&self, key: &KeyDigest) -> Result<(), Failure> {
        self.execute("DELETE FROM api_key WHERE digest = $1", &[bytea(&&key.as_bytes()[..])]).await
    }

    async fn execute(&self, sql: &str, arguments: &[Argument<'_>]) -> Result<(), Failure> {
        self.0.transaction(async |client| Ok(client.execute_typed(sql, arguments).await.map(drop)?)).await
    }
}
