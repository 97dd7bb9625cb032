//! A worker that takes mail and falls asleep while others send, in every order of their steps.
//!
//! `src/worker/flags.rs` is read here with loom's atomics. The claim: what was sent is taken in the
//! next round, or the worker is awake, or its alarm is set. It is shown able to fail: a worker that
//! looks whether there is mail and then says that it sleeps, in two steps, sleeps on a request.

#[allow(dead_code, unreachable_pub)] // the crate uses the rest
#[path = "../src/worker/flags.rs"]
mod flags;

/// In place of the crate's own.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
}

use flags::Flags;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};

#[derive(Default)]
struct Worker {
    flags: Flags,
    /// requests that wait
    inbox: Mutex<u32>,
    alarm: AtomicBool,
}

impl Worker {
    fn send(&self) {
        *self.inbox.lock().expect("no panic inside") += 1;
        if self.flags.mark_mail().asleep {
            self.alarm.store(true, Ordering::SeqCst);
        }
    }

    fn serve(&self) {
        if self.flags.any() {
            self.flags.take_mail();
            *self.inbox.lock().expect("no panic inside") = 0;
        }
    }

    /// Falls asleep unless there is something to do.
    fn sleeps(&self) -> bool {
        let asleep = self.flags.fall_asleep();
        if !asleep {
            self.flags.wake();
        }
        asleep
    }

    /// The same in two steps.
    fn sleeps_carelessly(&self) -> bool {
        if self.flags.any() {
            return false;
        }
        self.flags.fall_asleep();
        true
    }
}

fn sending_to_one_that_falls_asleep(sleeps: fn(&Worker) -> bool) {
    let worker = Arc::new(Worker::default());
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let worker = Arc::clone(&worker);
            loom::thread::spawn(move || worker.send())
        })
        .collect();
    worker.serve();
    let asleep = sleeps(&worker);
    for sender in senders {
        sender.join().expect("a sender");
    }
    let alarmed = worker.alarm.load(Ordering::SeqCst);
    if !asleep {
        worker.serve();
    }
    let left = *worker.inbox.lock().expect("no panic inside");
    assert!(left == 0 || alarmed, "it sleeps on {left} requests");
}

#[test]
fn a_worker_that_sleeps_has_no_mail_or_is_woken() {
    loom::model(|| sending_to_one_that_falls_asleep(Worker::sleeps));
}

#[test]
#[should_panic(expected = "it sleeps on")]
fn a_worker_that_looked_before_it_said_that_it_sleeps_would_sleep_on_mail() {
    loom::model(|| sending_to_one_that_falls_asleep(Worker::sleeps_carelessly));
}
