use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::thread;

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
fn each_caller_receives_its_own_reply() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let server = thread::spawn(move || {
        let mut jobs = Vec::new();
        while block_on(receiver.take(&mut jobs, 7)) {
            let mut replies = Replies::default();
            for job in jobs.drain(..) {
                let reply = job.item * 10;
                replies.add(job, reply);
            }
            replies.send();
        }
    });
    let sender = Arc::new(sender);
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let sender = sender.clone();
            thread::spawn(move || {
                for n in 0..200 {
                    let item = caller * 1_000 + n;
                    assert_eq!(block_on(sender.send(item)), Some(item * 10));
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    drop(sender);
    server.join().unwrap();
}

#[test]
fn reply_wakes_only_its_caller_and_depends_on_no_other() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let (mut slow, slow_wakes) = (sender.send(1), Wakes::new());
    let (mut fast, fast_wakes) = (sender.send(2), Wakes::new());
    assert!(poll(&mut slow, &slow_wakes).is_pending());
    assert!(poll(&mut fast, &fast_wakes).is_pending());
    let mut jobs = take(&mut receiver, 9);
    let (fast_job, slow_job) = (jobs.pop().unwrap(), jobs.pop().unwrap());
    fast_job.reply(20);
    assert_eq!((slow_wakes.count(), fast_wakes.count()), (0, 1));
    assert_eq!(poll(&mut fast, &fast_wakes), Poll::Ready(Some(20)), "the other is not polled");
    slow_job.reply(10);
    assert_eq!(slow_wakes.count(), 1);
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
fn dropped_job_replies_with_none() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let (mut taken, wakes) = (sender.send(1), Wakes::new());
    assert!(poll(&mut taken, &wakes).is_pending());
    drop(take(&mut receiver, 1));
    assert_eq!(wakes.count(), 1);
    assert_eq!(poll(&mut taken, &wakes), Poll::Ready(None));
    let queued = sender.send(2);
    assert!(!sender.is_closed());
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(block_on(queued), None);
    assert_eq!(block_on(sender.send(3)), None, "the receiver has ended");
}

#[test]
fn dropped_reply_leaves_the_item_in_the_queue() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    drop(sender.send(1));
    let mut jobs = take(&mut receiver, 9);
    assert!(jobs[0].is_abandoned());
    jobs.pop().unwrap().reply(1);
    let reply = sender.send(2);
    assert!(!take(&mut receiver, 9)[0].is_abandoned());
    drop(reply);
}

#[test]
fn closed_queue_is_emptied_first() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let reply = sender.send(1);
    sender.close();
    assert_eq!(block_on(sender.send(2)), None);
    take(&mut receiver, 9).pop().unwrap().reply(10);
    assert_eq!(block_on(reply), Some(10));
    assert!(!block_on(receiver.take(&mut Vec::new(), 9)));
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

#[test]
fn begun_item_leaves_its_caller_waiting_when_dropped() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let (mut reply, wakes) = (sender.send(1), Wakes::new());
    let (item, mut unknown) = take(&mut receiver, 1).pop().unwrap().into_parts();
    unknown.begin();
    drop(unknown);
    assert_eq!((item, wakes.count()), (1, 0));
    assert!(poll(&mut reply, &wakes).is_pending());
}

#[test]
fn removed_items_are_not_taken() {
    let (sender, mut receiver) = batch_queue::<u32, u32>();
    let mut replies: Vec<_> = (0..5).map(|n| sender.send(n)).collect();
    let removed = sender.remove(|n| n % 2 == 1);
    assert_eq!(items(&removed), [1, 3]);
    removed.into_iter().for_each(|job| job.reply(10));
    assert_eq!(block_on(replies.swap_remove(3)), Some(10));
    assert_eq!(items(&take(&mut receiver, 9)), [0, 2, 4]);
}
