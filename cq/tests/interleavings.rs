//! The inbox by which other cores reach a completion queue that is being polled, in every order of
//! its steps.
//!
//! `src/inbox.rs` is read here with loom's primitives. The claim: a request that was accepted is taken
//! by the poll that follows it, whatever poll was under way. It is shown able to fail: a poll that
//! looks into the inbox before it takes the mark away loses a request.

#[allow(dead_code, unreachable_pub)] // the crate has another face, and uses the rest
#[path = "../src/inbox.rs"]
mod inbox;

/// In place of the crate's own.
mod table {
    pub(crate) use ringside_cq::{AttachError, Sides};
}

/// In place of the crate's own.
mod sync {
    use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::AtomicBool;
    use std::collections::VecDeque;
    pub(crate) use std::sync::atomic::Ordering;

    /// A queue of which each call is one step, as crossbeam's are for their callers.
    #[derive(Debug)]
    pub(crate) struct ArrayQueue<T> {
        items: Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> ArrayQueue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            Self {
                items: Mutex::new(VecDeque::new()),
                capacity,
            }
        }
        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            let mut items = self.items.lock().expect("no panic inside");
            if items.len() == self.capacity {
                return Err(item);
            }
            items.push_back(item);
            Ok(())
        }
        pub(crate) fn pop(&self) -> Option<T> {
            self.items.lock().expect("no panic inside").pop_front()
        }
        pub(crate) fn len(&self) -> usize {
            self.items.lock().expect("no panic inside").len()
        }
    }
}

use inbox::{CompletionQueueHandle, Inbox, Request};
use ringside_qp::CompletionContext;
use std::sync::Arc;

/// One poll, as `CompletionQueue::read_inbox` does it: how many requests it took.
fn poll(inbox: &Inbox) -> u32 {
    if !inbox.is_waiting() {
        return 0;
    }
    inbox.seen();
    take_all(inbox)
}

/// The same in the wrong order.
fn poll_marking_last(inbox: &Inbox) -> u32 {
    if !inbox.is_waiting() {
        return 0;
    }
    let taken = take_all(inbox);
    inbox.seen();
    taken
}

fn take_all(inbox: &Inbox) -> u32 {
    let mut taken = 0;
    while let Some(request) = inbox.take() {
        assert!(matches!(request, Request::Detach(_)), "{request:?}");
        taken += 1;
    }
    taken
}

/// Two other cores send while one polls; then one last poll.
fn sending_while_polling(poll: fn(&Inbox) -> u32) {
    let inbox = Arc::new(Inbox::new(4));
    let senders: Vec<_> = (1..3)
        .map(|slot| {
            let handle = CompletionQueueHandle {
                inbox: Arc::clone(&inbox),
                slots: 8,
            };
            loom::thread::spawn(move || {
                handle
                    .detach(CompletionContext::new(slot, 1))
                    .expect("room for both");
            })
        })
        .collect();
    let mut taken = poll(&inbox);
    for sender in senders {
        sender.join().expect("a sender");
    }
    taken += poll(&inbox);
    assert_eq!(taken, 2, "a request was lost");
}

#[test]
fn no_request_to_a_polled_queue_is_lost() {
    loom::model(|| sending_while_polling(poll));
}

#[test]
#[should_panic(expected = "a request was lost")]
fn a_poll_that_takes_the_mark_away_last_would_lose_one() {
    loom::model(|| sending_while_polling(poll_marking_last));
}
