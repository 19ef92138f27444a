//! Work that takes a core for long, on other threads.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Runs a few pieces of work at a time.
pub(crate) struct Blocking(Arc<Semaphore>);

impl Blocking {
    pub(crate) fn new(concurrent_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(concurrent_max)))
    }

    /// Runs `work` on another thread. The permit belongs to the work, which continues when the client has reset
    /// its request.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        let work = move || {
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.expect("the work does not panic")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn work_of_a_reset_request_keeps_its_permit_until_it_ends() {
        let one = Blocking::new(1);
        let (end, hanging) = channel::<()>();
        timeout(Duration::ZERO, one.run(move || hanging.recv())).await.unwrap_err();
        assert_eq!(one.0.available_permits(), 0);
        end.send(()).unwrap();
        timeout(Duration::from_secs(20), one.run(|| ())).await.unwrap();
    }
}
