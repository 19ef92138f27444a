//! The pages. Each module has the handlers and the templates of one area.

pub(crate) mod account;
pub(crate) mod audit_log;
pub(crate) mod code;
pub(crate) mod confirm;
pub(crate) mod keys;
pub(crate) mod links;
pub(crate) mod members;
pub(crate) mod new_key;
pub(crate) mod quick_start;
pub(crate) mod reference;
pub(crate) mod sign_in;
pub(crate) mod two_factor;
pub(crate) mod usage;
