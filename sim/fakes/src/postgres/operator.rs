//! The changes that operators make.

use super::database::Database;
use super::rows::{EmailHash, Key, Lookup, Person, Spend, Workspace};

impl Database {
    /// Creates a workspace and returns its row id.
    pub fn create_workspace(&mut self, workspace: Workspace) -> i64 {
        self.workspaces.push(workspace);
        self.workspaces.len() as i64
    }

    /// Changes a workspace, and how its keys are found.
    pub fn change_workspace(&mut self, workspace: i64, change: impl FnOnce(&mut Workspace)) {
        change(self.workspace_mut(workspace));
        self.change_keys(|key| key.workspace == workspace, |_| {});
    }

    /// Stores a key.
    pub fn create_key(&mut self, workspace: i64, digest: &[u8], is_test: bool) {
        self.keys.push(Key { digest: digest.to_vec(), workspace, is_test, ..Key::default() });
    }

    /// Returns whether a key is stored.
    pub fn is_stored(&self, digest: &[u8]) -> bool {
        self.keys.iter().any(|key| key.digest == digest)
    }

    /// Returns whether a key is stored that is neither revoked nor expired.
    pub fn has_key(&self, digest: &[u8], now: i64) -> bool {
        self.keys.iter().any(|key| key.digest == digest && key.is_current(now))
    }

    /// Revokes a key.
    pub fn revoke_key(&mut self, digest: &[u8]) {
        self.change_keys(|key| key.digest == digest, |key| key.is_revoked = true);
    }

    /// Disables a key, or enables it.
    pub fn set_key_enabled(&mut self, digest: &[u8], is_enabled: bool) {
        self.change_keys(|key| key.digest == digest, |key| key.is_disabled = !is_enabled);
    }

    /// Sets when a key ends, unless it ends before.
    pub fn end_key(&mut self, digest: &[u8], at: i64) {
        let end = |key: &mut Key| key.expires_at = Some(key.expires_at.map_or(at, |earlier| earlier.min(at)));
        self.change_keys(|key| key.digest == digest, end);
    }

    fn change_keys(&mut self, is_it: impl Fn(&Key) -> bool, change: impl Fn(&mut Key)) {
        self.revision += 1;
        for key in self.keys.iter_mut().filter(|key| is_it(key)) {
            change(key);
            key.revision = self.revision;
        }
    }

    /// Adds a person who has not opted out.
    pub fn add_person(&mut self, hash: EmailHash, person: Person) {
        self.people.insert(hash, person);
    }

    /// Opts a person out. The record remains, as while it is being deleted.
    pub fn opt_out(&mut self, hash: EmailHash) {
        self.opt_outs.insert(hash);
    }

    /// Withdraws an opt-out.
    pub fn withdraw_opt_out(&mut self, hash: &EmailHash) {
        self.opt_outs.remove(hash);
    }

    /// Deletes the record of a person.
    pub fn delete_person(&mut self, hash: &EmailHash) {
        self.people.remove(hash);
    }

    /// Grants credits to a workspace. A negative number is withdrawn.
    pub fn grant(&mut self, workspace: i64, credits: i64) {
        self.workspace_mut(workspace).granted += credits;
    }

    /// Refunds the first spend of a workspace that is not refunded. Its receipt ends. Returns the spend.
    pub fn refund_first(&mut self, workspace: &str) -> Option<(Lookup, i64)> {
        let rowid = self.workspace_rowid(workspace)?;
        let is_due = |(lookup, spend): &(&Lookup, &Spend)| {
            spend.workspace == rowid && !self.refunded.contains(*lookup)
        };
        let (lookup, credits) =
            self.spends.iter().find(is_due).map(|(lookup, spend)| (*lookup, spend.credits))?;
        self.refunded.insert(lookup);
        self.grant(rowid, credits);
        self.receipts.retain(|_, (payer, _)| *payer != lookup);
        Some((lookup, credits))
    }
}
