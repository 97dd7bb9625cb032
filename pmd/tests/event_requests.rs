//! A thread that polls and sleeps, and the thread that takes the device's events and wakes it, in
//! every order of their steps.
//!
//! `src/rdma/event_request.rs` is read here with loom's atomics. The claim: a thread that has armed
//! its completion queue and found it empty is woken by the next completion. It is shown able to
//! fail: if the taker wakes the thread before it ends the request, or the thread does not poll
//! again after it has armed, a completion waits and no event comes.

#[allow(dead_code, unreachable_pub)] // the crate uses the rest
#[path = "../src/rdma/event_request.rs"]
mod event_request;

/// In place of the crate's own.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
    pub(super) use std::sync::Arc;
}

use event_request::{EventRequest, Notify};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

/// The device: each of its steps is one step for the host.
#[derive(Default)]
struct Device {
    /// written, and not polled
    completions: u32,
    /// the next completion gives an event
    is_armed: bool,
    /// events that were not taken
    events: u32,
}

#[derive(Default)]
struct Queue {
    device: Mutex<Device>,
    request: EventRequest,
    /// the polling thread's descriptor is readable
    is_woken: Mutex<bool>,
}

impl Queue {
    fn device<T>(&self, step: impl FnOnce(&mut Device) -> T) -> T {
        step(&mut self.device.lock().expect("no panic inside"))
    }

    /// The device writes a completion.
    fn complete(&self) {
        self.device(|device| {
            device.completions += 1;
            device.events += u32::from(std::mem::take(&mut device.is_armed));
        });
    }

    fn arm(&self, notify: Notify) {
        if self.request.add(notify) {
            self.device(|device| device.is_armed = true);
        }
    }

    fn poll(&self) -> u32 {
        self.device(|device| std::mem::take(&mut device.completions))
    }

    fn wake(&self) {
        *self.is_woken.lock().expect("no panic inside") = true;
    }

    fn clear(&self) -> bool {
        std::mem::take(&mut *self.is_woken.lock().expect("no panic inside"))
    }

    /// Takes an event, if there is one; false if there is none.
    fn take_event(&self) -> bool {
        self.device(|device| {
            let is_there = device.events > 0;
            device.events -= u32::from(is_there);
            is_there
        })
    }
}

/// Takes an event as
/// [`Device::poll_completion_events`](ringside_pmd::Device::poll_completion_events) and its caller
/// do.
fn serve(queue: &Queue) {
    if queue.take_event() {
        queue.request.end();
        queue.wake();
    }
}

fn serve_in_the_wrong_order(queue: &Queue) {
    if queue.take_event() {
        queue.wake();
        queue.request.end();
    }
}

/// Arms and polls again. Returns the completions, and true if the thread sleeps now.
fn before_sleep(queue: &Queue) -> (u32, bool) {
    queue.arm(Notify::Next);
    let found = queue.poll();
    (found, found == 0)
}

fn before_sleep_without_a_second_look(queue: &Queue) -> (u32, bool) {
    queue.arm(Notify::Next);
    (0, true)
}

/// The device writes two completions, one thread takes events, another one polls and sleeps twice.
fn two_completions(serve: fn(&Queue), before_sleep: fn(&Queue) -> (u32, bool)) {
    let queue = Arc::new(Queue::default());
    let device = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            queue.complete();
            queue.complete();
        })
    };
    let taker = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            serve(&queue);
            serve(&queue);
        })
    };
    let (mut taken, mut sleeps) = (0, false);
    for _ in 0..2 {
        if sleeps && !queue.clear() {
            break;
        }
        taken += queue.poll();
        let (found, now) = before_sleep(&queue);
        (taken, sleeps) = (taken + found, now);
    }
    device.join().expect("the device");
    taker.join().expect("the taker");
    // What is left is served; then the thread looks once more if it was woken.
    serve(&queue);
    serve(&queue);
    if !sleeps || queue.clear() {
        taken += queue.poll();
    }
    assert_eq!(taken, 2, "it sleeps on a completion");
}

#[test]
fn a_thread_that_armed_and_found_nothing_is_woken() {
    loom::model(|| two_completions(serve, before_sleep));
}

#[test]
#[should_panic(expected = "it sleeps on a completion")]
fn a_request_that_ends_after_the_thread_is_woken_would_lose_the_next_event() {
    loom::model(|| two_completions(serve_in_the_wrong_order, before_sleep));
}

#[test]
#[should_panic(expected = "it sleeps on a completion")]
fn without_a_second_poll_a_completion_before_the_request_would_be_slept_on() {
    loom::model(|| two_completions(serve, before_sleep_without_a_second_look));
}

#[test]
fn an_event_that_is_still_to_come_serves_requests_for_no_more_than_it() {
    loom::model(|| {
        let request = EventRequest::default();
        assert!(request.add(Notify::Solicited));
        assert!(!request.add(Notify::Solicited));
        assert!(request.add(Notify::Next), "more completions than before");
        assert!(!request.add(Notify::Next));
        assert!(!request.add(Notify::Solicited));
        request.clone().end();
        assert!(request.add(Notify::Solicited));
    });
}
