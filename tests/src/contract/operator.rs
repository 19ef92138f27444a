//! A fixture for the rules about keys, usage and users: one workspace, and an operator's connection.

use std::sync::Arc;
use std::time::Duration;

use enrich_contract::fixture::HOLD_TTL;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::records::NewKey;
use enrich_store::usage::Day;
use enrich_store::users::{Link, LinkPurpose, Role, Session, User, UserEmail, UserId};
use enrich_store::{Accounts, Actor, TokenDigest};

use super::{Administered, START};

pub(super) struct Operator<S> {
    pub(super) store: Arc<S>,
    pub(super) accounts: Accounts,
    pub(super) workspace: WorkspaceId,
    pub(super) lookups: u16,
}

/// The name of the user who makes changes in these tests.
pub(super) const ADMIN: &str = "grace@example.com";

/// The day of [`START`].
pub(super) fn today() -> Day {
    Day::from_timestamp(START)
}

pub(super) fn after_seconds(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

/// Returns a user at [`START`].
pub(super) fn admin() -> Actor<'static> {
    admin_at(START)
}

pub(super) fn admin_at(now: Timestamp) -> Actor<'static> {
    Actor { name: ADMIN, address: Some([192, 0, 2, 7].into()), now, authority: None }
}

/// Returns the key that belongs to `seed`.
pub(super) fn key(seed: u8) -> ApiKey {
    ApiKey::generate(|| seed)
}

pub(super) fn email(name: &str) -> UserEmail {
    format!("{name}@example.com").parse().unwrap()
}

pub(super) fn token(seed: u8) -> TokenDigest {
    TokenDigest::from_token(&[seed; 32])
}

impl<S: Administered> Operator<S> {
    /// Creates a workspace `shop` with 100 credits.
    pub(super) async fn open(store: Arc<S>) -> Self {
        let mut accounts = store.accounts().await;
        let workspace: WorkspaceId = "shop".parse().unwrap();
        accounts.create_workspace(&workspace, Quota::default(), 100, START).await.unwrap();
        store.tick(START).await;
        Self { store, accounts, workspace, lookups: 0 }
    }

    pub(super) async fn create_workspace(&mut self, id: &str) -> WorkspaceId {
        let id: WorkspaceId = id.parse().unwrap();
        self.accounts.create_workspace(&id, Quota::default(), 100, START).await.unwrap();
        self.store.tick(START).await;
        id
    }

    /// Creates a key that is labelled `till`.
    pub(super) async fn create_key(&mut self, key: &ApiKey, expires_at: Option<Timestamp>) -> KeyId {
        let new = NewKey { expires_at, ..NewKey::new(&self.workspace, "till", key) };
        self.accounts.create_key(&new, &admin()).await.unwrap()
    }

    /// Bills a lookup that arrived at `at`. Returns its id, which begins with that time.
    pub(super) async fn bill(&mut self, key: KeyId, credits: u64, at: Timestamp) -> LookupId {
        let hold = self.hold(key, credits, at);
        assert_eq!(self.store.credits().hold(&hold).await.unwrap(), HoldOutcome::Granted);
        self.store.credits().settle(&hold, Settlement::Spend(credits)).await.unwrap();
        hold.lookup_id
    }

    /// Bills this number of lookups concurrently.
    pub(super) async fn bill_many(&mut self, workspace: &WorkspaceId, key: KeyId, lookups: usize) {
        let mut billing = tokio::task::JoinSet::new();
        for _ in 0..lookups {
            let mut hold = self.hold(key, 1, START);
            hold.workspace = workspace.clone();
            let store = self.store.clone();
            billing.spawn(async move {
                assert_eq!(store.credits().hold(&hold).await.unwrap(), HoldOutcome::Granted);
                store.credits().settle(&hold, Settlement::Spend(1)).await.unwrap();
            });
        }
        billing.join_all().await;
    }

    /// Returns the hold of a new lookup that arrives at `at`. Its id begins with that time.
    pub(super) fn hold(&mut self, key: KeyId, credits: u64, at: Timestamp) -> Hold {
        self.lookups += 1;
        let mut random = [0; 10];
        random[8..].copy_from_slice(&self.lookups.to_be_bytes());
        let (lookup_id, workspace) = (LookupId::new(at, random), self.workspace.clone());
        let mut hold = Hold::new(lookup_id, workspace, credits);
        hold.key = key;
        hold.ttl = HOLD_TTL;
        hold
    }

    /// Invites a user and uses the link. Returns the new user.
    pub(super) async fn join(&mut self, name: &str, workspace: &WorkspaceId, role: Role) -> UserId {
        let token = TokenDigest::from_token(format!("{name} joins {workspace}").as_bytes());
        self.accounts.create_link(&join(token, workspace, role, name), &admin()).await.unwrap();
        self.accounts.use_link(&token, "$hash", &admin()).await.unwrap().unwrap()
    }

    /// Begins a session with the token of `seed`.
    pub(super) async fn sign_in(&mut self, user: UserId, seed: u8) -> TokenDigest {
        let (session, user) = (session(user, seed), self.user(user).await);
        let begun = self.accounts.begin_session(&session, &user, Timestamp::from_unix_ms(0), &admin()).await;
        assert!(begun.unwrap());
        session.digest
    }

    pub(super) async fn user(&mut self, id: UserId) -> User {
        self.accounts.user(id).await.unwrap().unwrap()
    }
}

/// Returns an invitation that expires after an hour.
pub(super) fn join(digest: TokenDigest, workspace: &WorkspaceId, role: Role, name: &str) -> Link {
    Link {
        digest,
        workspace: workspace.clone(),
        purpose: LinkPurpose::Join(role),
        email: email(name),
        created_by: ADMIN.to_owned(),
        created_at: START,
        expires_at: after_seconds(3_600),
    }
}

/// Returns a link that sets a new password, and expires after an hour.
pub(super) fn reset(digest: TokenDigest, workspace: &WorkspaceId, name: &str) -> Link {
    Link { purpose: LinkPurpose::Reset, ..join(digest, workspace, Role::Member, name) }
}

pub(super) fn session(user: UserId, seed: u8) -> Session {
    Session {
        digest: token(seed),
        user,
        created_at: START,
        authenticated_at: START,
        last_seen_at: START,
        address: Some([192, 0, 2, 7].into()),
        user_agent: "Firefox 140".to_owned(),
    }
}
