//! The shared receive queues whose queue pairs report to one completion queue.

use super::SharedObject;
use super::lending::Message;
use crate::device::Port;
use ringside_pmd::rdma::{Completion, CompletionQueue};
use std::collections::{BTreeMap, VecDeque};

/// One of them.
struct Feed {
    /// the address of its [`SharedObject`]
    shared: usize,
    queue_pairs: usize,
    /// messages for which no receive was posted yet
    held: VecDeque<Message>,
}

impl Feed {
    /// # Safety
    /// The shared receive queue is not destroyed while the result is used: it outlives the queue
    /// pairs that it feeds, and a feed has some.
    unsafe fn shared<'a>(&self) -> &'a SharedObject {
        // SAFETY: the caller's promise.
        unsafe { SharedObject::of(self.shared as *mut _) }
    }
}

/// The shared receive queues of a completion queue, and which queue pairs each of them feeds.
#[derive(Default)]
pub(crate) struct Feeds {
    list: Vec<Feed>,
    /// the address of the shared receive queue, by number of a queue pair
    of: BTreeMap<u32, usize>,
}

impl Feeds {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// A queue pair that `shared` feeds reports to this completion queue from now on.
    pub(crate) fn add(&mut self, shared: usize, number: u32) {
        self.of.insert(number, shared);
        match self.list.iter_mut().find(|feed| feed.shared == shared) {
            Some(feed) => feed.queue_pairs += 1,
            None => self.list.push(Feed {
                shared,
                queue_pairs: 1,
                held: VecDeque::new(),
            }),
        }
    }

    /// The queue pair is gone. True if it was the last one that `shared` feeds.
    pub(crate) fn remove(&mut self, shared: usize, number: u32) -> bool {
        if self.of.remove(&number).is_none() {
            return false;
        }
        let Some(feed) = self.list.iter_mut().find(|feed| feed.shared == shared) else {
            return false;
        };
        feed.queue_pairs -= 1;
        let is_last = feed.queue_pairs == 0;
        self.list.retain(|feed| feed.queue_pairs > 0);
        is_last
    }

    /// Messages for which no receive was posted yet.
    pub(crate) fn waiting(&self) -> usize {
        self.list.iter().map(|feed| feed.held.len()).sum()
    }

    /// Messages that waited and that a poll of the completion queue with the address `owner` takes
    /// now. It is told of further receives if there are too few.
    pub(crate) fn ready(&self, owner: usize) -> usize {
        let held = self.list.iter().filter(|feed| !feed.held.is_empty());
        let ready = held.map(|feed| {
            // SAFETY: it feeds a queue pair.
            let mut receives = unsafe { feed.shared() }.queue.hold();
            let left = receives.queue.left() as usize;
            if left < feed.held.len() {
                receives.set_waiting(owner, true, true);
            }
            left.min(feed.held.len())
        });
        ready.sum()
    }

    /// True if polls report receives of shared queues as flushed: the device has failed.
    pub(crate) fn owe_flushed(&self) -> bool {
        // SAFETY: it feeds a queue pair.
        let receives = |feed: &Feed| unsafe { feed.shared() }.queue.hold();
        self.list
            .iter()
            .any(|feed| receives(feed).queue.owes_flushed())
    }

    /// Polls the completion queue with the address `owner`; returns the number of completions.
    pub(crate) fn poll(
        &mut self,
        port: &Port,
        queue: &mut CompletionQueue,
        owner: usize,
        batch: &mut [Completion],
    ) -> usize {
        match self.list.as_mut_slice() {
            [feed] => {
                // SAFETY: it feeds a queue pair.
                let shared = unsafe { feed.shared() };
                let mut receives = shared.queue.hold();
                let had_waited = !feed.held.is_empty();
                let count = receives.poll(port, queue, &mut feed.held, batch);
                receives.set_waiting(owner, had_waited, !feed.held.is_empty());
                shared.report_limit(&mut receives.queue);
                count
            }
            _ => self.poll_several(port, queue, owner, batch),
        }
    }

    #[cold]
    fn poll_several(
        &mut self,
        port: &Port,
        queue: &mut CompletionQueue,
        owner: usize,
        batch: &mut [Completion],
    ) -> usize {
        let mut count = 0;
        while let Some(room) = batch.get_mut(count) {
            match self.next(port, queue, owner) {
                Some(done) => *room = done,
                None => break,
            }
            count += 1;
        }
        count
    }

    /// The next completion of a queue with several feeds.
    fn next(
        &mut self,
        port: &Port,
        queue: &mut CompletionQueue,
        owner: usize,
    ) -> Option<Completion> {
        for feed in self.list.iter_mut().filter(|feed| !feed.held.is_empty()) {
            // SAFETY: it feeds a queue pair.
            let shared = unsafe { feed.shared() };
            let mut receives = shared.queue.hold();
            let done = receives.take_held(port, &mut feed.held);
            receives.set_waiting(owner, true, !feed.held.is_empty());
            shared.report_limit(&mut receives.queue);
            if done.is_some() {
                return done;
            }
        }
        let mut done = Completion::EMPTY;
        while queue.poll_one(&mut done) {
            let shared = self.of.get(&done.queue_pair());
            let feed =
                shared.and_then(|shared| self.list.iter_mut().find(|feed| feed.shared == *shared));
            let Some(feed) = feed else {
                return Some(done);
            };
            // SAFETY: it feeds a queue pair.
            let shared = unsafe { feed.shared() };
            let mut receives = shared.queue.hold();
            let had_waited = !feed.held.is_empty();
            let accepted = receives.accept(port, queue, done, &mut feed.held);
            receives.set_waiting(owner, had_waited, !feed.held.is_empty());
            shared.report_limit(&mut receives.queue);
            if accepted.is_some() {
                return accepted;
            }
        }
        self.list.iter().find_map(|feed| {
            // SAFETY: it feeds a queue pair.
            unsafe { feed.shared() }.queue.hold().queue.take_flushed()
        })
    }
}
