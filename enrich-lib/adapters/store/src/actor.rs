//! The author of an administrative change.

use std::net::IpAddr;

use enrich_lib::model::Timestamp;

use crate::token::TokenDigest;

/// The author of a change: a name, an address and a time. The store records them in the audit log, in the
/// transaction of the change. `Debug` hides the name and the address.
#[derive(Clone, Copy, derive_more::Debug, PartialEq, Eq)]
pub struct Actor<'a> {
    /// The email of a signed-in user, or [`Actor::OPERATOR`].
    #[debug(skip)]
    pub name: &'a str,
    /// The address of the user's client. `None` for the operator.
    #[debug(skip)]
    pub address: Option<IpAddr>,
    /// The time of the change.
    pub now: Timestamp,
    /// The role and session that the change requires when it is committed. `None` for the operator and for
    /// changes by a link.
    pub authority: Option<Authority<'a>>,
}

/// The session and the role that a change requires. The store checks both in the transaction of the change,
/// because they may end while a request is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The session of a user of the changed workspace.
    pub session: &'a TokenDigest,
    /// Whether that user must be an admin.
    pub is_admin: bool,
}

impl Actor<'static> {
    /// The name of the operator, who uses the command line.
    pub const OPERATOR: &'static str = "operator";

    /// Creates the operator at `now`.
    pub const fn operator(now: Timestamp) -> Self {
        Self { name: Self::OPERATOR, address: None, now, authority: None }
    }
}

impl Actor<'_> {
    /// Returns whether the author is the operator.
    pub fn is_operator(&self) -> bool {
        self.name == Actor::OPERATOR
    }
}
