//! A gateway's own database.

use std::collections::BTreeMap;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::model::{LookupId, WorkspaceId};
use turmoil::net::TcpStream;

/// A database server with a gateway's own credits. Its data outlives its crashes.
///
/// `balance` and `spends` read the data at once, without the simulated network: the invariants compare them
/// with the calls of the ports.
#[async_trait]
pub trait CreditDatabase: Send + Sync {
    /// Serves one connection until it ends. A crash of the server drops the future.
    async fn serve(&self, stream: TcpStream);

    /// Returns the number of commits so far. Accounts are read only after it has changed.
    fn commits(&self) -> u64;

    /// Returns the credits of a workspace.
    fn balance(&self, workspace: &WorkspaceId) -> Balance;

    /// Returns the credits of each spend.
    fn spends(&self) -> BTreeMap<LookupId, u64>;
}
