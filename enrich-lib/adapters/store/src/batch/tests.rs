use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use tokio::runtime::Builder;

use super::*;

/// Counts its wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<F: Future + Unpin>(future: &mut F, wakes: &Arc<Wakes>) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&wakes.clone().into()))
}

fn block_on<F: Future>(future: F) -> F::Output {
    Builder::new_current_thread().build().unwrap().block_on(future)
}

fn take<T, R>(receiver: &mut BatchReceiver<T, R>, count_max: usize) -> Vec<Job<T, R>> {
    let mut jobs = Vec::new();
    block_on(receiver.take(&mut jobs, count_max));
    jobs
}

fn items<R>(jobs: &[Job<u32, R>]) -> Vec<u32> {
    jobs.iter().map(|job| job.item).collect()
}

#[test]
fn takes_items_in_order_and_at_most_as_many_as_asked() {
    let (sender, mut receiver) = batch_queue::<u32, ()>();
    let _replies: Vec<_> = (0..5).map(|n| sender.send(n)).collect();
    assert_eq!(items(&take(&mut receiver, 3)), [0, 1, 2]);
    assert_eq!(sender.len(), 2);
    let mut jobs = take(&mut receiver, 1);
    let _reply = sender.send(5);
    receiver.take_queued(&mut jobs, 2);
    assert_eq!(items(&jobs), [3, 4]);
    receiver.take_queued(&mut jobs, 9);
    assert_eq!(items(&jobs), [3, 4, 5]);
    assert!(sender.is_empty());
}

#[test]
fn replies_are_set_before_the_first_caller_is_woken() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let wakes = Wakes::new();
    let mut waiting: Vec<_> = (0..3).map(|n| sender.send(n)).collect();
    assert!(waiting.iter_mut().all(|reply| poll(reply, &wakes).is_pending()));
    let mut replies = Replies::default();
    for job in take(&mut receiver, 9) {
        let reply = job.item;
        replies.add(job, reply);
        assert_eq!(wakes.count(), 0);
    }
    replies.send();
    assert_eq!(wakes.count(), 3);
    let received: Vec<_> = waiting.iter_mut().map(|reply| poll(reply, &wakes)).collect();
    assert_eq!(received, [0, 1, 2].map(|n| Poll::Ready(Some(n))));
}

#[test]
fn dropped_take_loses_no_item() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let (mut jobs, wakes) = (Vec::new(), Wakes::new());
    {
        let mut taking = pin!(receiver.take(&mut jobs, 9));
        let waker = wakes.clone().into();
        assert!(taking.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let _reply = sender.send(1);
    assert_eq!(wakes.count(), 1);
    assert!(jobs.is_empty());
    assert_eq!(items(&take(&mut receiver, 9)), [1]);
}

#[test]
fn reply_wakes_the_last_waker() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let (first, last) = (Wakes::new(), Wakes::new());
    let mut reply = sender.send(1);
    assert!(poll(&mut reply, &first).is_pending());
    assert!(poll(&mut reply, &last).is_pending());
    take(&mut receiver, 1).pop().unwrap().reply(10);
    assert_eq!((first.count(), last.count()), (0, 1));
    assert_eq!(block_on(poll_fn(|cx| Pin::new(&mut reply).poll(cx))), Some(10));
}
