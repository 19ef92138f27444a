//! The kinds of measured servers.

use strum::{IntoStaticStr, VariantArray};

use crate::dataset::Case;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum ServerKind {
    /// HTTP only.
    Bare,
    /// The service with in-memory stores.
    Memory,
    /// The service with credits in SQLite, durable before the reply, and windows in memory.
    Sqlite,
    /// The service with credits in PostgreSQL and windows in Redis.
    Postgres,
    /// The same on two nodes that share the requests evenly.
    PostgresTwoNodes,
}

impl ServerKind {
    /// Returns whether the server logs lookups by default.
    pub const fn logs_lookups(self) -> bool {
        !matches!(self, Self::Bare)
    }

    /// Returns whether requests for `case` are for a path that the server does not serve.
    pub(crate) fn has_other_path(self, case: Case) -> bool {
        self == Self::Bare && case != Case::Found
    }

    /// Returns the label in the table.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bare => "bare hyper",
            Self::Memory => "enrich, in memory",
            Self::Sqlite => "enrich, SQLite",
            Self::Postgres => "enrich, PostgreSQL and Redis",
            Self::PostgresTwoNodes => "enrich, PostgreSQL and Redis, two nodes",
        }
    }
}
