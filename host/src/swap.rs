//! Values that a configuration reload replaces while the server runs.

use std::fmt;
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

impl<T> fmt::Debug for Swap<T> {
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
    use enrich_lib::model::{LookupId, ProfileUrl};
    use tokio::sync::Notify;

    /// A resolver that finds nothing, after it has been notified.
    struct Waiting(Notify);

    #[async_trait]
    impl Resolver for Waiting {
        async fn find(&self, _: &Query) -> Result<Answer, PortError> {
            self.0.notified().await;
            Ok(Answer::default())
        }
    }

    #[tokio::test]
    async fn lookup_finishes_with_the_resolver_it_started_with() {
        let email = Email::parse("ada.marlowe@gmail.com").unwrap();
        let query = Query::new(LookupId::from_bytes([7; 16]), "demo".parse().unwrap(), email);
        let old = Arc::new(Waiting(Notify::new()));
        let old_weak = Arc::downgrade(&old);
        let new = Directory::default();
        new.insert(&query.email, ProfileUrl::from_name("ada-marlowe").unwrap());

        let swap = Swap::<Arc<dyn Resolver>>::new(old.clone());
        let mut lookup = swap.find(&query);
        let is_pending = std::future::poll_fn(|cx| Poll::Ready(lookup.as_mut().poll(cx).is_pending()));
        assert!(is_pending.await);
        swap.store(Arc::new(new));
        assert!(swap.find(&query).await.unwrap().profile.is_some());
        old.0.notify_one();
        drop(old);
        assert!(lookup.await.unwrap().profile.is_none());
        assert!(old_weak.upgrade().is_none(), "the old resolver is not dropped after its last lookup");
    }
}
