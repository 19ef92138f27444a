//! Values that can be replaced while the server runs. Users of the previous value keep it until they finish.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// A shared value that can be replaced at any time.
///
/// A `Swap` of a resolver is a [`Resolver`]. A `Swap` of a certificate selects the certificate of TLS handshakes.
pub struct Swap<T: ?Sized>(RwLock<Arc<T>>);

impl<T: ?Sized> Swap<T> {
    /// Creates a swap with the value `first`.
    pub const fn new(first: Arc<T>) -> Self {
        Self(RwLock::new(first))
    }

    /// Returns the current value.
    pub fn current(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value. The previous value is dropped with its last reference.
    pub fn swap(&self, next: Arc<T>) {
        let old = std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), next);
        // Dropped outside the lock, because dropping a large value takes time.
        drop(old);
    }
}

#[async_trait]
impl Resolver for Swap<dyn Resolver> {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        self.current().find(query).await
    }
}

impl ResolvesServerCert for Swap<CertifiedKey> {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl<T: ?Sized> fmt::Debug for Swap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swap").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use enrich_lib::email::Email;
    use enrich_lib::memory::Directory;
    use enrich_lib::model::LookupId;
    use tokio::sync::Notify;

    /// A resolver that finds nothing, after it has been notified.
    struct Waiting(Notify);

    #[async_trait]
    impl Resolver for Waiting {
        async fn find(&self, _: &Query) -> Result<Option<ProfileUrl>, PortError> {
            self.0.notified().await;
            Ok(None)
        }
    }

    #[tokio::test]
    async fn a_lookup_ends_with_the_resolver_that_it_began_with() {
        let ada = Query {
            lookup_id: LookupId::from_bytes([7; 16]),
            workspace: "demo".parse().unwrap(),
            email: Email::parse("ada.marlowe@gmail.com").unwrap(),
        };
        let old = Arc::new(Waiting(Notify::new()));
        let gone = Arc::downgrade(&old);
        let new = Directory::default();
        new.insert(&ada.email, ProfileUrl::from_name("ada-marlowe").unwrap());

        let swap: Swap<dyn Resolver> = Swap::new(old.clone());
        let mut begun = swap.find(&ada);
        let is_waiting = std::future::poll_fn(|cx| Poll::Ready(begun.as_mut().poll(cx).is_pending()));
        assert!(is_waiting.await);
        swap.swap(Arc::new(new));
        assert!(swap.find(&ada).await.unwrap().is_some());
        old.0.notify_one();
        drop(old);
        assert!(begun.await.unwrap().is_none());
        assert!(gone.upgrade().is_none(), "the old one is dropped with its last lookup");
    }
}
