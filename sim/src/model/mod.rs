//! The model of the service: the results that the specification and the manual permit for each request.
//!
//! Each result other than the nominal one needs a cause: a fault of what the node depends on, the documented
//! time after it, or the state of the workspace. The model shares no code with the service, and sees only what
//! clients, operators and the network see, and the calls of the ports.
//!
//! Each module uses only those before it: `causes` faults · `state` what operators have changed · `grants` and
//! `credits` what a workspace can have had available · `windows` how often it can have been counted · `vendors`
//! how many lookups can have called them · `readiness` when nodes are ready · `results` the check.

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
