//! The stores of a run: what outlives the crashes of its nodes.

use std::collections::BTreeMap;
use std::num::NonZeroI64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use enrich_fakes::postgres::{Database, Postgres};
use enrich_lib::email::Email;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, ProfileUrl, Timestamp};
use enrich_lib::window::Workspace;
use enrich_node::{Database as Location, RateLimits, Stores as NodeStores};
use enrich_sqlite::{DataDir, People, SqliteError, accounts, complete};
use enrich_store::records::NewKey;
use enrich_store::usage::Day;
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Accounts, Actor, RemovalLimit, StoreError};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::account_auditor::{AccountAuditor, Accounts as SharedAccounts};
use crate::disk::Disk;
use crate::event::Event;
use crate::keys::KeyOf;
use crate::operator::Operation;
use crate::own_database::CreditDatabase;
use crate::plan::Plan;
use crate::servers::Servers;
use crate::shared_operations::{self, Effect};
use crate::topology::{Server, StoreKind};
use crate::trace::Trace;
use crate::workspaces::{InitialWorkspace, client_workspace, initial_workspaces, workspace_ids};

/// The stores of a run.
pub(crate) struct Stores {
    kind: Kind,
    dir: DataDir,
    trace: Trace,
    /// The credits of the spends that operators removed.
    removed: Mutex<BTreeMap<LookupId, i64>>,
    is_deleted: AtomicBool,
    _temp: TempDir,
}

enum Kind {
    /// In `dir`, which is on this disk of the only node.
    Sqlite(Arc<Disk>),
    Servers {
        servers: Arc<Servers>,
        auditor: AccountAuditor,
        node_starts: AtomicUsize,
    },
}

impl Stores {
    pub(crate) fn new(
        plan: &Plan,
        database: Option<Arc<dyn CreditDatabase>>,
        trace: &Trace,
        now: Timestamp,
    ) -> turmoil::Result<Self> {
        // In memory if possible. With SQLite, only the files without databases are in it.
        let memory = Path::new("/dev/shm");
        let temp = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        let dir = DataDir::create(temp.path().join("data"))?;
        let emails = plan.opt_outs().map(|email| Email::parse(&email)).collect::<Result<Vec<_>, _>>()?;
        let kind = match plan.stores {
            StoreKind::Sqlite if database.is_some() => {
                return Err("nodes with a database of their own need a plan on servers".into());
            }
            StoreKind::Sqlite => {
                let disk = Disk::mount(dir.path(), plan.seed);
                create_accounts(&dir, plan, now)?;
                open_people(&dir)?.opt_out(&emails, now)?;
                Kind::Sqlite(Arc::new(disk))
            }
            StoreKind::Servers(_) => {
                let servers = Arc::new(Servers::new(plan, &emails, database.clone())?);
                let accounts = database
                    .map_or_else(|| SharedAccounts::Postgres(servers.postgres.clone()), SharedAccounts::Own);
                let auditor = AccountAuditor::new(accounts, trace.clone());
                Kind::Servers { servers, auditor, node_starts: AtomicUsize::new(0) }
            }
        };
        for InitialWorkspace { workspace, credits, .. } in initial_workspaces(plan) {
            let Workspace { id, quota, .. } = workspace;
            trace.record_at(Duration::ZERO, Event::WorkspaceCreated(id.clone(), quota));
            trace.record_at(Duration::ZERO, Event::CreditsGranted(id, credits.cast_signed()));
        }
        for (email, profile) in plan.imported_people() {
            trace.record_at(Duration::ZERO, Event::PersonImported(email, profile.name().to_owned()));
        }
        let (removed, is_deleted) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { kind, dir, trace: trace.clone(), removed, is_deleted, _temp: temp })
    }

    /// Returns the stores of a starting node.
    pub(crate) fn of_node(&self) -> turmoil::Result<NodeStores> {
        let (windows, database) = match &self.kind {
            Kind::Sqlite(_) => {
                let people = Arc::new(open_people(&self.dir)?);
                (RateLimits::Memory(Arc::default()), Location::Dir(self.dir.clone(), people))
            }
            Kind::Servers { servers, node_starts, .. } => {
                let start = node_starts.fetch_add(1, Ordering::Relaxed);
                (RateLimits::Redis(Arc::new(Servers::windows(start as u64))), servers.database()?)
            }
        };
        Ok(NodeStores { windows, database })
    }

    /// Returns whether holds and windows are in the memory of the only node.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.kind, Kind::Sqlite(_))
    }

    /// Records the changes of shared accounts.
    pub(crate) fn audit(&self, at: Duration) {
        if let Kind::Servers { auditor, .. } = &self.kind {
            auditor.audit(at);
        }
    }

    /// Records the committed spends, the usage and the state of the database at the end of the run.
    pub(crate) async fn close(&self, at: Duration) -> turmoil::Result {
        if let Kind::Servers { auditor, .. } = &self.kind {
            auditor.close(at);
            return Ok(());
        }
        let mut admin = accounts(&self.dir)?;
        let mut spends = spends(&mut admin).await?;
        spends.append(&mut self.removed.lock());
        for workspace in workspace_ids() {
            let rows = admin.usage(&workspace, Day::from_number(0), Day::from_number(u32::MAX)).await?;
            let mut usage = BTreeMap::new();
            for row in rows {
                *usage.entry((row.key.number(), row.outcome)).or_default() += row.lookups;
            }
            self.trace.record_at(at, Event::Usage(workspace, usage));
        }
        self.trace.record_at(at, Event::CommittedSpends(spends));
        let audit = complete(admin.audit())?;
        let rows = audit.workspaces.iter().filter(|row| !row.reconciles());
        let errors = rows.map(|row| format!("{row:?}")).chain(audit.errors.clone()).collect();
        self.trace.record_at(at, Event::DatabaseChecked(errors));
        Ok(())
    }

    /// Returns the disk of the only node on SQLite.
    pub(crate) fn disk(&self) -> Option<&Arc<Disk>> {
        if let Kind::Sqlite(disk) = &self.kind { Some(disk) } else { None }
    }

    /// Returns the servers that host the stores.
    pub(crate) fn servers(&self) -> &'static [Server] {
        if self.is_alone() { &[] } else { &Server::ALL }
    }

    /// Runs a server until it crashes.
    pub(crate) async fn serve(self: Arc<Self>, server: Server) -> turmoil::Result {
        match &self.kind {
            Kind::Servers { servers, .. } => servers.clone().serve(server).await,
            Kind::Sqlite(_) => Ok(()),
        }
    }

    /// Drops the data that `server` loses in a crash.
    pub(crate) fn drop_volatile_data(&self, server: Server, at: Duration) {
        let Kind::Servers { servers, .. } = &self.kind else { return };
        match server {
            Server::Redis => {
                servers.redis.clear();
                self.trace.record_at(at, Event::RedisDataLost);
            }
            Server::Postgres => servers.postgres.crash(),
        }
    }

    /// Returns PostgreSQL, if the stores are on servers.
    pub(crate) fn postgres(&self) -> Option<&Postgres> {
        if let Kind::Servers { servers, .. } = &self.kind { Some(&servers.postgres) } else { None }
    }

    /// Promotes the synchronous standby of PostgreSQL.
    pub(crate) fn promote_standby(&self, at: Duration) {
        for lookup in self.postgres().into_iter().flat_map(Postgres::promote_standby) {
            self.trace.record_at(at, Event::SpendLost(LookupId::from_bytes(lookup)));
        }
    }

    /// Locks the clients' workspace in PostgreSQL.
    pub(crate) fn lock_workspace(&self) {
        if let Some(postgres) = self.postgres() {
            postgres.with(|database| {
                if let Some(rowid) = database.workspace_rowid(client_workspace().as_str()) {
                    database.lock_workspace(rowid);
                }
            });
        }
    }

    /// Unlocks it.
    pub(crate) fn unlock_workspace(&self) {
        if let Some(postgres) = self.postgres() {
            postgres.with(Database::unlock_workspaces);
        }
    }

    /// Makes a change of an operator, and records it if it had an effect.
    pub(crate) async fn operate(
        &self,
        operation: &Operation,
        at: Duration,
        now: Timestamp,
    ) -> turmoil::Result {
        let effect = match &self.kind {
            Kind::Servers { servers, .. } => {
                let postgres = &servers.postgres;
                let of_credits =
                    matches!(operation, Operation::Grant(_) | Operation::Withdraw(_) | Operation::Refund);
                // The commit of a command waits for the standby, and none changes a gateway's own database.
                if postgres.is_standby_away() || of_credits && servers.database.is_some() {
                    return Ok(());
                }
                let now = now.unix_ms().cast_signed();
                postgres.with(|database| shared_operations::operate(database, operation, now))
            }
            Kind::Sqlite(_) => self.operate_on_sqlite(operation, now).await?,
        };
        let Some(Effect { granted, refunded }) = effect else { return Ok(()) };
        if let Some(lookup) = refunded {
            self.trace.record_at(at, Event::SpendRefunded(lookup));
        }
        if granted != 0 {
            self.trace.record_at(at, Event::CreditsGranted(client_workspace(), granted));
        }
        self.trace.record_at(at, Event::Operated(operation.clone()));
        Ok(())
    }

    /// Makes a change by the operations of the commands. Returns `None` if it has no effect.
    async fn operate_on_sqlite(
        &self,
        operation: &Operation,
        now: Timestamp,
    ) -> turmoil::Result<Option<Effect>> {
        let workspace = client_workspace();
        let of_people = matches!(operation, Operation::Import { .. } | Operation::SetOptedOut(..));
        if self.is_deleted.load(Ordering::Relaxed) && !of_people {
            return Ok(None);
        }
        let mut accounts = enrich_sqlite::accounts(&self.dir)?;
        let actor = Actor::operator(now);
        let mut effect = Effect::default();
        match operation {
            Operation::Grant(credits) => {
                accounts.grant(&workspace, *credits, now).await?;
                effect.granted = credits.cast_signed();
            }
            Operation::Withdraw(credits) => {
                effect.granted = -credits.cast_signed();
                let credits = NonZeroI64::new(effect.granted).ok_or("a withdrawal of no credits")?;
                match accounts.adjust(&workspace, credits, "simulated", &actor).await {
                    Err(StoreError::Overdrawn { .. }) => return Ok(None),
                    adjusted => drop(adjusted?),
                }
            }
            Operation::Refund => {
                let all = LookupId::from_bytes([0; 16])..LookupId::from_bytes([u8::MAX; 16]);
                let spends = accounts.spends(&workspace, all.start, all.end).await?;
                let spend = spends.rows.iter().find(|spend| spend.refunded_at.is_none());
                let Some(spend) = spend else { return Ok(None) };
                let refunded = accounts.refund(spend.lookup_id, "simulated", &actor).await?;
                effect = Effect { granted: refunded.credits.cast_signed(), refunded: Some(spend.lookup_id) };
            }
            Operation::SetLimit(limit) => {
                let change = WorkspaceChange::Quota { limit: Some(*limit), window_seconds: None };
                accounts.change_workspace(&workspace, &[change], &actor).await?;
            }
            Operation::CreateKey(of) => {
                if accounts.key(&workspace, id(*of), Day::from_timestamp(now)).await.is_ok() {
                    return Ok(None);
                }
                accounts.create_key(&NewKey::new(&workspace, "simulated", &of.api_key()), &actor).await?;
            }
            Operation::SetKeyEnabled(of, is_enabled) => {
                match accounts.set_key_enabled(id(*of), *is_enabled, &actor).await {
                    Err(StoreError::KeyEnded(_) | StoreError::UnknownKey(_)) => return Ok(None),
                    changed => changed?,
                }
            }
            Operation::RotateKey(of, grace) => {
                let new = of.replacement();
                if accounts.key(&workspace, id(new), Day::from_timestamp(now)).await.is_ok() {
                    return Ok(None);
                }
                let ends_at = Timestamp::from_unix_ms(now.unix_ms() + grace.as_millis() as u64);
                // The replacement of a test key becomes a test key.
                let key = ApiKey::generate(|| new as u8);
                match accounts.rotate_key(id(*of), &key, None, ends_at, &actor).await {
                    Err(StoreError::KeyEnded(_) | StoreError::UnknownKey(_)) => return Ok(None),
                    rotated => drop(rotated?),
                }
            }
            Operation::RevokeKey(of) => match accounts.revoke_key(id(*of), &actor).await {
                Err(StoreError::UnknownKey(_)) => return Ok(None),
                revoked => revoked?,
            },
            Operation::Import { email, profile, replaces } => {
                let people = open_people(&self.dir)?;
                let mut import =
                    if *replaces { people.replace(RemovalLimit::Percent(100))? } else { people.import()? };
                import.add(&Email::parse(email)?, &ProfileUrl::from_name(profile)?, 1.0)?;
                import.finish()?;
            }
            Operation::SetSuspended(is_suspended) => {
                let change = WorkspaceChange::Suspended(*is_suspended);
                accounts.change_workspace(&workspace, &[change], &actor).await?;
            }
            Operation::Delete => {
                accounts.change_workspace(&workspace, &[WorkspaceChange::Deleted], &actor).await?;
                self.is_deleted.store(true, Ordering::Relaxed);
            }
            Operation::RemoveSpends => {
                let mut removed = spends(&mut accounts).await?;
                accounts.remove_spends(Day::from_number(u32::MAX)).await?;
                let left = spends(&mut accounts).await?;
                removed.retain(|lookup, _| !left.contains_key(lookup));
                self.removed.lock().append(&mut removed);
            }
            Operation::SetOptedOut(email, is_opted_out) => {
                let (people, email) = (open_people(&self.dir)?, [Email::parse(email)?]);
                let change = if *is_opted_out { People::opt_out } else { People::withdraw };
                change(&people, &email, now)?;
            }
        }
        Ok(Some(effect))
    }
}

/// Returns what each spend has cost.
async fn spends(accounts: &mut Accounts) -> Result<BTreeMap<LookupId, i64>, StoreError> {
    let (first, end) = (LookupId::from_bytes([0; 16]), LookupId::from_bytes([u8::MAX; 16]));
    let mut spends = BTreeMap::new();
    for workspace in workspace_ids() {
        let mut next = Some(first);
        while let Some(from) = next {
            let page = accounts.spends(&workspace, from, end).await?;
            spends.extend(page.rows.into_iter().map(|row| (row.lookup_id, row.credits as i64)));
            next = page.next;
        }
    }
    Ok(spends)
}

/// Returns the id of a key of the clients' workspace.
fn id(of: KeyOf) -> KeyId {
    of.api_key().digest().key_id()
}

fn open_people(dir: &DataDir) -> Result<People, SqliteError> {
    People::open(dir, People::CONFIDENCE_MIN, [7; 16])
}

fn create_accounts(dir: &DataDir, plan: &Plan, now: Timestamp) -> turmoil::Result {
    let mut admin = accounts(dir)?;
    for InitialWorkspace { workspace, keys, credits } in initial_workspaces(plan) {
        complete(admin.create_workspace(&workspace.id, workspace.quota, credits, now))?;
        for key in keys {
            let new = NewKey::new(&workspace.id, "simulated", &key);
            complete(admin.create_key(&new, &Actor::operator(now)))?;
        }
    }
    Ok(())
}
