//! The inbox by which other cores reach a completion queue that is being polled, in every order of
//! its steps.
//!
//! This test compiles `src/inbox.rs` with loom's primitives. The claim: an accepted request is
//! taken by the poll that follows it, even if another poll is in progress. A second test shows that
//! the claim can fail: a polling core that does not check for requests after it has set the
//! expected header loses one.

#[allow(dead_code, unreachable_pub)] // the crate has another face, and uses the rest
#[path = "../src/inbox.rs"]
mod inbox;

/// Replaces the crate's own module.
mod table {
    pub(crate) use ringside_cq::{AttachError, Sides};
}

/// Replaces the crate's own primitives.
mod sync {
    use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::AtomicU64;
    use std::cell::Cell;
    use std::collections::VecDeque;
    pub(crate) use std::sync::atomic::Ordering;

    thread_local! {
        /// loom runs all threads of a model on one thread of the operating system.
        static LOOKS_EMPTY: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn look_for_requests_no_more() {
        LOOKS_EMPTY.set(true);
    }

    /// A queue in which each call is one step, as in crossbeam's queues.
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
        pub(crate) fn is_empty(&self) -> bool {
            LOOKS_EMPTY.get() || self.len() == 0
        }
        pub(crate) fn len(&self) -> usize {
            self.items.lock().expect("no panic inside").len()
        }
    }
}

use inbox::{CompletionQueueHandle, Inbox, NOTHING_IS_PLAIN, Request};
use ringside_qp::CompletionContext;
use std::sync::Arc;

/// The headers of plain successes in two passes of the ring: any values except
/// [`NOTHING_IS_PLAIN`].
const PLAIN: [u64; 2] = [0, 1 << 63];

/// One poll, in the order of `CompletionQueue::poll`, in which a pass of the ring ends. Returns the
/// number of requests taken.
fn poll(inbox: &Inbox) -> u32 {
    inbox.expect(PLAIN[1]);
    if inbox.expected() != NOTHING_IS_PLAIN {
        return 0;
    }
    let taken = take_all(inbox);
    inbox.expect(PLAIN[0]);
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

/// Two other cores send requests while one core polls; then one last poll.
fn sending_while_polling() {
    let inbox = Arc::new(Inbox::new(4, PLAIN[0]));
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
    loom::model(sending_while_polling);
}

#[test]
#[should_panic(expected = "a request was lost")]
fn without_a_second_look_for_requests_one_would_be_lost() {
    sync::look_for_requests_no_more();
    loom::model(sending_while_polling);
}
