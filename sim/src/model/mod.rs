//! The model of the service: the results that the specification and the manual permit for each request.
//!
//! Each result other than the nominal one needs a cause: a fault of what the node depends on, the documented
//! time after it, or the state of the workspace. The model shares no code with the service, and sees only what
//! clients, operators and the network see, and the calls of the ports.
//!
//! Modules are declared in reading order; each uses only those before it.

mod causes;
mod state;
mod grants;
mod credits;
mod windows;
mod vendors;
mod readiness;
mod results;

pub(crate) use self::grants::Grants;
pub(crate) use self::results::check;
