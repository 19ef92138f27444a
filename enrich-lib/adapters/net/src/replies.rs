//! Results that one task sends to many others, whose runtimes may be on other threads.
//!
//! Waking a task of another runtime takes a system call. [`Replies`] therefore takes one for all results of a
//! runtime, whose number can be hundreds: it spawns a task there, which sends them.

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Creates a channel for one result, which the current task waits for. Requires a tokio runtime.
pub fn reply_channel<T>() -> (ReplySender<T>, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (ReplySender { sender, runtime: Handle::current() }, receiver)
}

/// The sending end of a [`reply_channel`].
#[derive(Debug)]
pub struct ReplySender<T> {
    sender: oneshot::Sender<T>,
    /// The runtime of the receiver.
    runtime: Handle,
}

impl<T> ReplySender<T> {
    /// Returns whether the receiver was dropped.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends the result at once. Nothing happens if the receiver was dropped.
    pub fn send(self, result: T) {
        let _ = self.sender.send(result);
    }
}

/// Results to send together.
#[derive(Debug)]
pub struct Replies<T>(Vec<(Handle, Results<T>)>);

/// The results for the tasks of one runtime.
type Results<T> = Vec<(oneshot::Sender<T>, T)>;

impl<T: Send + 'static> Replies<T> {
    /// Adds a result.
    pub fn add(&mut self, reply: ReplySender<T>, result: T) {
        let ReplySender { sender, runtime } = reply;
        match self.0.iter_mut().find(|(other, _)| other.id() == runtime.id()) {
            Some((_, results)) => results.push((sender, result)),
            None => self.0.push((runtime, vec![(sender, result)])),
        }
    }

    /// Sends all results. Requires a tokio runtime.
    pub fn send(self) {
        let current = Handle::current().id();
        for (runtime, results) in self.0 {
            let send_all = move || {
                for (sender, result) in results {
                    let _ = sender.send(result);
                }
            };
            if runtime.id() == current {
                send_all();
            } else {
                runtime.spawn(async move { send_all() });
            }
        }
    }
}

impl<T> Default for Replies<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn sends_results_to_the_tasks_of_each_thread() {
        let (requests, receiver) = std::sync::mpsc::channel();
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let requests = requests.clone();
                thread::spawn(move || {
                    Builder::new_current_thread().build().unwrap().block_on(async {
                        for number in 0..3 {
                            let (sender, result) = reply_channel();
                            requests.send((10 * thread + number, sender)).unwrap();
                            assert_eq!(result.await, Ok(10 * thread + number));
                        }
                    });
                })
            })
            .collect();
        drop(requests);
        Builder::new_current_thread().build().unwrap().block_on(async {
            let mut replies = Replies::default();
            let (own, result) = reply_channel();
            replies.add(own, 99);
            let (closed, _) = reply_channel();
            assert!(closed.is_closed());
            replies.add(closed, 100);
            replies.send();
            assert_eq!(result.await, Ok(99));
            while let Ok(first) = receiver.recv() {
                let mut replies = Replies::default();
                for (number, sender) in std::iter::once(first).chain(receiver.try_iter()) {
                    replies.add(sender, number);
                }
                replies.send();
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
