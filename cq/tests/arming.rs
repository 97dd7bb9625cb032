//! Arms a completion queue and polls it once more, in every order that the memory model allows.
//!
//! This test compiles `src/arming.rs` with loom's fence. The claim: a completion that the device
//! writes meanwhile is seen by the poll, or the device sees the queue armed and gives an event. A
//! second test shows that the claim can fail: without the fence both can miss it.

#[allow(dead_code)]
#[path = "../src/arming.rs"]
mod arming;

/// Replaces the crate's own fence.
mod sync {
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::Ordering;

    thread_local! {
        /// loom runs all threads of a model on one thread of the operating system.
        static NO_FENCE: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn leave_the_fence_out() {
        NO_FENCE.set(true);
    }

    pub(crate) fn fence(order: Ordering) {
        if !NO_FENCE.get() {
            loom::sync::atomic::fence(order);
        }
    }
}

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, fence};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

fn completing_while_arming() {
    let completed = Arc::new(AtomicBool::new(false));
    let armed = Arc::new(AtomicBool::new(false));
    let device = {
        let (completed, armed) = (Arc::clone(&completed), Arc::clone(&armed));
        loom::thread::spawn(move || {
            completed.store(true, Release);
            fence(SeqCst);
            armed.load(Acquire)
        })
    };
    // The device reads the arming when the doorbell rings.
    let is_stored = || assert!(armed.load(Relaxed), "rung before it is armed");
    arming::arm(|| armed.store(true, Release), is_stored);
    let polled = completed.load(Relaxed);
    let event = device.join().expect("the device");
    assert!(polled || event, "a completion without poll or event");
}

#[test]
fn a_completion_while_the_queue_is_armed_is_polled_or_gives_an_event() {
    loom::model(completing_while_arming);
}

#[test]
#[should_panic(expected = "a completion without poll or event")]
fn without_the_fence_a_completion_could_be_missed_by_both() {
    sync::leave_the_fence_out();
    loom::model(completing_while_arming);
}
