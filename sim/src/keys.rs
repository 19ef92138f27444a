//! The API keys of a run.

use enrich_lib::key::ApiKey;

/// A key, by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KeyOf {
    /// The clients' workspace.
    Clients = 1,
    /// The prober's workspace.
    Prober = 2,
    /// No workspace, although the key is well-formed.
    Nobody = 3,
    /// The second workspace. No operator changes this key.
    Second = 4,
    /// The clients' workspace, which has two keys at first.
    ClientsOther = 5,
    /// The clients' workspace, after an operator has created this key or has replaced `Clients` by it.
    ClientsNew = 6,
    /// The clients' workspace, after an operator has created this test key.
    Test = 7,
    /// The clients' workspace, after an operator has replaced `Test` by this test key.
    TestNew = 8,
}

impl KeyOf {
    /// The keys that the clients' workspace has at first.
    pub(crate) const INITIAL: [Self; 2] = [Self::Clients, Self::ClientsOther];

    /// All keys that it can have.
    pub(crate) const CLIENTS: [Self; 5] =
        [Self::Clients, Self::ClientsOther, Self::ClientsNew, Self::Test, Self::TestNew];

    /// The keys that a workspace has at some time.
    pub(crate) const ALL: [Self; 7] = [
        Self::Clients,
        Self::ClientsOther,
        Self::ClientsNew,
        Self::Test,
        Self::TestNew,
        Self::Second,
        Self::Prober,
    ];

    pub(crate) fn is_of_clients(self) -> bool {
        Self::CLIENTS.contains(&self)
    }

    pub(crate) fn is_test(self) -> bool {
        matches!(self, Self::Test | Self::TestNew)
    }

    /// Returns the key by which an operator replaces this one.
    pub(crate) fn replacement(self) -> Self {
        if self.is_test() { Self::TestNew } else { Self::ClientsNew }
    }

    pub(crate) fn api_key(self) -> ApiKey {
        let key = ApiKey::generate(|| self as u8);
        if self.is_test() { key.into_test() } else { key }
    }
}
