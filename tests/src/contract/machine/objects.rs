//! A store with its model, and the objects that steps name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use enrich_contract::{Durable, START};
use enrich_lib::credit::Balance;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{Renewal, User, UserId};
use enrich_store::{Accounts, TokenDigest};

use super::model::Model;
use super::rows::Lines;
use super::steps::{Author, By, WORKSPACES};
use crate::contract::Administered;

/// A store and its model.
pub(super) struct Machine<S> {
    pub(super) store: Arc<S>,
    pub(super) accounts: Accounts,
    pub(super) model: Model,
    pub(super) workspaces: Vec<WorkspaceId>,
    /// All that were created. They may have ended.
    pub(super) users: Vec<UserId>,
    pub(super) sessions: Vec<TokenDigest>,
    pub(super) links: Vec<TokenDigest>,
    /// Each user before the last change of its row.
    pub(super) earlier: BTreeMap<UserId, User>,
    /// The balance and the rows of each workspace by the model, when they were compared last.
    pub(super) expected: [(Option<Balance>, Lines); WORKSPACES.len()],
    /// Which workspace is compared although the last step has not changed it.
    pub(super) turn: usize,
    /// Makes each key, token and lookup another one.
    pub(super) seed: u16,
}

impl<S: Administered + Durable> Machine<S> {
    pub(super) async fn new(store: Arc<S>) -> Self {
        Self {
            accounts: store.accounts().await,
            store,
            model: Model { now: START, ..Model::default() },
            workspaces: WORKSPACES.iter().map(|id| id.parse().unwrap()).collect(),
            users: Vec::new(),
            sessions: Vec::new(),
            links: Vec::new(),
            earlier: BTreeMap::new(),
            expected: Default::default(),
            turn: 0,
            seed: 0,
        }
    }

    pub(super) async fn tick(&self) {
        self.store.tick(self.model.now).await;
    }

    pub(super) fn node(&self, n: usize) -> &S {
        let nodes = self.store.nodes();
        nodes[n % nodes.len()]
    }

    pub(super) fn next(&mut self) -> u16 {
        self.seed += 1;
        self.seed
    }

    pub(super) fn new_token(&mut self) -> TokenDigest {
        TokenDigest::from_token(&self.next().to_be_bytes())
    }

    /// Every second key is a test key.
    pub(super) fn new_key(&mut self) -> ApiKey {
        let digest = self.new_token();
        let mut bytes = digest.as_bytes().iter().copied().cycle();
        let key = ApiKey::generate(|| bytes.next().unwrap());
        if self.seed.is_multiple_of(2) { key.into_test() } else { key }
    }

    pub(super) fn after(&self, seconds: u64) -> Timestamp {
        self.model.now + Duration::from_secs(seconds)
    }

    /// Returns a key that was created, or one that does not exist.
    pub(super) fn key(&self, n: usize) -> KeyId {
        let keys = &self.model.keys;
        keys.get(n % (keys.len() + 1)).map_or(KeyId::from_number(1), |key| key.row.id)
    }

    pub(super) fn user(&self, n: usize) -> UserId {
        self.users.get(n % (self.users.len() + 1)).copied().unwrap_or(UserId(999))
    }

    pub(super) fn session(&self, n: usize) -> TokenDigest {
        self.sessions.get(n % (self.sessions.len() + 1)).copied().unwrap_or(TokenDigest::from_token(b"none"))
    }

    pub(super) fn link(&self, n: usize) -> TokenDigest {
        self.links.get(n % (self.links.len() + 1)).copied().unwrap_or(TokenDigest::from_token(b"none"))
    }

    /// Returns a user as it is, or as it was read before the last change.
    pub(super) fn read(&self, n: usize, is_stale: bool) -> Option<User> {
        let id = self.user(n);
        let earlier = self.earlier.get(&id).filter(|_| is_stale);
        earlier.or_else(|| self.model.user(id)).cloned()
    }

    pub(super) fn by(&self, author: Author) -> By {
        let address = Some([192, 0, 2, 7].into());
        match author {
            Author::Operator => By { name: "operator".to_owned(), address: None, session: None },
            Author::Link => By { name: "grace@example.com".to_owned(), address, session: None },
            Author::Session(n, is_admin) => {
                let digest = self.session(n);
                let session = self.model.sessions.iter().find(|session| session.digest == digest);
                let user = session.and_then(|session| self.model.user(session.user));
                let name = user.map_or("gone@example.com", |user| user.email.as_str()).to_owned();
                By { name, address, session: Some((digest, is_admin)) }
            }
        }
    }

    /// Returns a new token for the author's session, if it is one of this user.
    pub(super) fn renewal(&mut self, user: UserId, by: &By) -> Option<Renewal> {
        let (old, _) = by.session?;
        self.model.sessions.iter().find(|session| session.digest == old && session.user == user)?;
        let new = self.new_token();
        self.sessions.push(new);
        Some(Renewal { old, new })
    }
}
