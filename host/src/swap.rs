//! Values that a configuration reload replaces while the server runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// A shared value that can be replaced at any time. A lookup or handshake in progress keeps the value that it
/// started with.
///
/// `Swap<Arc<dyn Resolver>>` is a [`Resolver`]. `Swap<Arc<CertifiedKey>>` selects the certificate of TLS
/// handshakes.
#[derive(derive_more::Debug)]
#[debug("Swap {{ .. }}")]
pub struct Swap<T>(ArcSwap<T>);

impl<T: Clone> Swap<T> {
    /// Creates a swap with an initial value.
    pub fn new(value: T) -> Self {
        Self(ArcSwap::from_pointee(value))
    }

    /// Returns the current value.
    pub fn load(&self) -> T {
        T::clone(&self.0.load())
    }

    /// Replaces the value. The previous value is dropped with its last reference.
    pub fn store(&self, value: T) {
        self.0.store(Arc::new(value));
    }
}

#[async_trait]
impl Resolver for Swap<Arc<dyn Resolver>> {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        self.load().find(query).await
    }
}

impl ResolvesServerCert for Swap<Arc<CertifiedKey>> {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.load())
    }
}
