//! The guide, in four chapters.
//!
//! 1. [Embed the library](embed): the layer, a server without tower, keys of your own.
//! 2. [Write a port](port): your own store of keys, windows or credits.
//! 3. [Write a vendor](vendor): your own source of people.
//! 4. [Test your gateway](mod@test): the contract, the transcripts, the simulation.
//!
//! `examples/own-gateway` is a gateway that was written from these pages, with keys `sk_live_…`, and keys and
//! credits in its own PostgreSQL tables.

#[cfg_attr(not(doctest), doc = include_str!("embed.md"))]
///
/// [`Service`]: crate::drive::Service
/// [`lookup`]: crate::lookup
/// [`KeyFormat`]: crate::key::KeyFormat
/// [`Keys`]: crate::ports::Keys
/// [`Workspace`]: crate::window::Workspace
/// [`KeyId`]: crate::key::KeyId
/// [`wire::request_with`]: crate::wire::request_with
/// [`Service::for_workspace`]: crate::drive::Service::for_workspace
/// [`Request::authenticated`]: crate::lookup::Request::authenticated
/// [`Observer`]: crate::observe::Observer
/// [`client_gone`]: crate::observe::Observer::client_gone
pub mod embed {}

#[cfg_attr(not(doctest), doc = include_str!("port.md"))]
///
/// [`ports`]: crate::ports
/// [`async_trait`]: macro@crate::ports::async_trait
/// [`PortError`]: crate::refusal::PortError
/// [`memory`]: crate::memory
/// [`Credits::settle`]: crate::ports::Credits::settle
/// [`Hold::placed_at`]: crate::credit::Hold::placed_at
/// [`Keys::find`]: crate::ports::Keys::find
/// [`Workspace::is_test`]: crate::window::Workspace::is_test
pub mod port {}

#[cfg_attr(not(doctest), doc = include_str!("vendor.md"))]
///
/// [`Resolver`]: crate::ports::Resolver
/// [`Price::not_found`]: crate::credit::Price
/// [`VendorError`]: crate::resolver::VendorError
/// [`Policy::hold_ttl`]: crate::lookup::Policy::hold_ttl
/// [`Query::trace`]: crate::query::Query::trace
pub mod vendor {}

#[cfg_attr(not(doctest), doc = include_str!("test.md"))]
///
/// [the chapter on ports]: crate::guide::port
pub mod test {}
