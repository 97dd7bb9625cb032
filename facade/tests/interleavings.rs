//! The handoff between the housekeeping thread and the program's threads, in every order of its
//! steps.
//!
//! `src/housekeeping/handoff.rs` is compiled here with loom's types. Two claims are tested: an
//! event is either taken, or its signal is raised; and the thread does not sleep after a request to
//! end. A second test of each claim reverses the two steps that it relies on, and expects a
//! failure.

#[allow(dead_code)] // the crate uses the rest
#[path = "../src/housekeeping/handoff.rs"]
mod handoff;

/// Replaces the crate's module of the same name.
mod sync {
    use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};
    use std::collections::VecDeque;
    pub(crate) use std::sync::atomic::Ordering;

    /// A queue in which each call is one atomic step, as crossbeam's queues are for their callers.
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
        pub(crate) fn capacity(&self) -> usize {
            self.capacity
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
    }

    /// An event descriptor: each call of the system is one step, under the lock that the kernel has
    /// for its counter.
    #[derive(Debug)]
    pub(crate) struct Signal(Mutex<bool>);

    impl Signal {
        pub(crate) fn new() -> Self {
            Self(Mutex::new(false))
        }
        pub(crate) fn raise(&self) {
            *self.0.lock().expect("no panic inside") = true;
        }
        pub(crate) fn clear(&self) -> bool {
            std::mem::take(&mut *self.0.lock().expect("no panic inside"))
        }
        pub(crate) fn is_raised(&self) -> bool {
            *self.0.lock().expect("no panic inside")
        }
    }
}

use handoff::Handoff;
use loom::thread;
use std::sync::Arc;
use sync::Signal;

fn new(capacity: usize) -> Arc<Handoff<u32>> {
    Arc::new(Handoff::new(capacity, Signal::new(), Signal::new()))
}

/// One thread adds two events while another takes events once; then the woken thread takes the
/// rest.
fn events_while_taking(take: fn(&Handoff<u32>, &mut Vec<u32>) -> u64) {
    let shared = new(4);
    let putting = Arc::clone(&shared);
    let housekeeper = thread::spawn(move || {
        putting.put(1);
        putting.put(2);
    });
    let mut taken = Vec::new();
    if shared.told().is_raised() {
        take(&shared, &mut taken);
    }
    housekeeper.join().expect("the housekeeping thread");
    if shared.told().is_raised() {
        take(&shared, &mut taken);
    }
    assert_eq!(taken, [1, 2], "an event waits and nothing announces it");
}

#[test]
fn an_event_is_taken_or_announced() {
    loom::model(|| events_while_taking(|shared, into| shared.take(into)));
}

#[test]
#[should_panic(expected = "an event waits and nothing announces it")]
fn lowering_the_signal_after_taking_would_lose_an_event() {
    fn wrong(shared: &Handoff<u32>, into: &mut Vec<u32>) -> u64 {
        let was = shared.take(into);
        shared.told().clear();
        was
    }
    loom::model(|| events_while_taking(wrong));
}

#[test]
fn an_event_without_room_is_counted_once() {
    loom::model(|| {
        let shared = new(1);
        let putting = Arc::clone(&shared);
        let housekeeper = thread::spawn(move || {
            putting.put(1);
            putting.put(2);
        });
        let mut taken = Vec::new();
        let mut dropped = shared.take(&mut taken);
        housekeeper.join().expect("the housekeeping thread");
        dropped += shared.take(&mut taken);
        assert_eq!(taken.len() as u64 + dropped, 2);
    });
}

/// The program takes events while the last one and the end come: then the signal is raised.
#[test]
fn the_end_stays_announced() {
    loom::model(|| {
        let shared = new(4);
        let ending = Arc::clone(&shared);
        let housekeeper = thread::spawn(move || {
            ending.put(1);
            ending.end();
        });
        let mut taken = Vec::new();
        shared.take(&mut taken);
        housekeeper.join().expect("the housekeeping thread");
        for _ in 0..2 {
            assert!(shared.told().is_raised() && shared.is_over());
            shared.take(&mut taken);
        }
        assert_eq!(taken, [1]);
    });
}

/// The thread checks for a request to end, and sleeps if its signal is clear. It must not sleep
/// after the request.
fn ending_while_falling_asleep(is_stopped: fn(&Handoff<u32>) -> bool) {
    let shared = new(1);
    let asking = Arc::clone(&shared);
    let program = thread::spawn(move || asking.stop());
    let ends = is_stopped(&shared);
    program.join().expect("the program");
    let sleeps = !ends && !shared.wake().is_raised();
    assert!(!sleeps, "the thread sleeps over the wish to end");
}

#[test]
fn the_thread_does_not_sleep_over_the_wish_to_end() {
    loom::model(|| ending_while_falling_asleep(Handoff::is_stopped));
}

#[test]
#[should_panic(expected = "the thread sleeps over the wish to end")]
fn lowering_the_wake_signal_after_the_look_would_sleep_over_it() {
    fn wrong(shared: &Handoff<u32>) -> bool {
        let ends = shared.is_stopped();
        shared.wake().clear();
        ends
    }
    loom::model(|| ending_while_falling_asleep(wrong));
}
