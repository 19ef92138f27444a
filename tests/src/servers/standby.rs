//! Standby servers, which follow a PostgreSQL server by streaming replication.

use super::postgres::{PRELOADED, Postgres, new_directory, program};
use crate::eventually;

impl Postgres {
    /// Starts a standby of this server, with its settings. Replication is asynchronous.
    pub fn start_standby(&self) -> Self {
        let dir = new_directory();
        let copied = program("pg_basebackup")
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--username=postgres", "-h"])
            .arg(self.socket().parent().unwrap())
            .args(["-p", &self.port().to_string(), "-D"])
            .arg(dir.path().join("data"))
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        if self.dir.join(PRELOADED).exists() {
            std::fs::copy(self.dir.join(PRELOADED), dir.path().join(PRELOADED)).unwrap();
        }
        Self::serve_in(dir, &self.settings())
    }

    /// Makes replication synchronous: from now on, a commit waits for a standby.
    pub async fn require_standby(&self) {
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        self.sql("postgres", "SELECT pg_reload_conf()").await;
        let select = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        eventually("the standby is synchronous", async || self.numbers("postgres", select).await == [1])
            .await;
    }

    /// Makes a standby a primary. Returns once it accepts writes.
    pub async fn promote(&self) {
        let client = self.client("postgres").await;
        let promoted = client.query_one("SELECT pg_promote(true, 60)", &[]).await.unwrap();
        assert!(promoted.get::<_, bool>(0), "the standby was not promoted");
    }

    /// Waits until a standby has applied all that this server has committed.
    pub async fn wait_for(&self, standby: &Self) {
        let lsn =
            self.client("postgres").await.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap();
        let select = format!("SELECT (pg_last_wal_replay_lsn() >= '{}')::int::bigint", lsn.get::<_, &str>(0));
        eventually("it follows", async || standby.numbers("postgres", &select).await == [1]).await;
    }
}
