//! The state that the posting and the retiring side of a queue pair share, in every order that the
//! memory model allows.
//!
//! This test compiles `src/state.rs` with loom's atomics. Each claim is shown to be able to fail:
//! the same code with every release and acquire made relaxed violates it.
//!
//! The claims: a request that is found is complete (its number, kind and place were written before
//! it could be found) and outstanding; a place is written again only after it was freed; a third
//! core finds the last request posted while others are retired.

#[allow(dead_code, unreachable_pub)] // the crate has another face, and uses the rest
#[path = "../src/state.rs"]
mod state;

/// Replaces the crate's own atomics with loom's, whose orders can be disabled.
mod sync {
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::Ordering;

    thread_local! {
        /// loom runs all threads of a model on one thread of the operating system.
        static ALL_RELAXED: Cell<bool> = const { Cell::new(false) };
    }

    /// Disables the order of all accesses that follow.
    pub(crate) fn relax_everything() {
        ALL_RELAXED.set(true);
    }

    fn as_strong_as(order: Ordering) -> Ordering {
        if ALL_RELAXED.get() {
            Ordering::Relaxed
        } else {
            order
        }
    }

    pub(crate) use std::sync::atomic::AtomicBool;

    #[derive(Debug)]
    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }
        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.0.load(as_strong_as(order))
        }
        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, as_strong_as(order));
        }
    }

    #[derive(Debug)]
    pub(crate) struct Records<const N: usize>(Box<[[AtomicU64; N]]>);

    impl<const N: usize> Records<N> {
        pub(crate) fn new(count: usize, value: u64) -> Self {
            let record = |_| std::array::from_fn(|_| AtomicU64::new(value));
            Self((0..count.max(1).next_power_of_two()).map(record).collect())
        }

        pub(crate) fn at(&self, index: usize) -> &[AtomicU64; N] {
            &self.0[index % self.0.len()]
        }

        pub(crate) fn count(&self) -> usize {
            self.0.len()
        }
    }
}

use loom::sync::Arc;
use loom::thread;
use state::{CompletionContext, INDEX_SHIFT, Outstanding, SendRecordInfo, Tracker};
use std::sync::atomic::Ordering;
use sync::AtomicU64;

fn tracker(places: u32) -> Arc<Tracker> {
    Arc::new(Tracker::new(CompletionContext::new(0, 1), places, 0, 0))
}

fn info(position: u64) -> SendRecordInfo {
    SendRecordInfo::ZERO
        .with_length_bytes(position + 40)
        .with_quanta(1)
}

fn post(tracker: &Tracker, position: u64) {
    let record = tracker.records().at(position as usize);
    Tracker::note(record, position + 100, info(position));
}

fn is_whole(request: &Outstanding) {
    assert_eq!(request.id, request.position + 100, "{request:?}");
    assert_eq!(request.info, info(request.position), "{request:?}");
}

/// A device completes arbitrary indexes while requests are posted.
fn finding_while_posting() {
    let tracker = tracker(2);
    let poster = {
        let tracker = Arc::clone(&tracker);
        thread::spawn(move || {
            post(&tracker, 0);
            post(&tracker, 1);
        })
    };
    for index in [1, 0] {
        if let Some(request) = tracker.find(index) {
            assert_eq!(request.position, index);
            is_whole(&request);
        }
    }
    // a flush goes from one to the next
    let mut position = 0;
    while let Some(request) = tracker.next_from(position) {
        assert_eq!(request.position, position);
        is_whole(&request);
        position = request.end();
    }
    poster.join().expect("the poster");
    assert_eq!(tracker.head(), 2);
}

/// A ring of one place: each post needs the place that was freed before it.
fn posting_into_freed_places() {
    let tracker = tracker(1);
    post(&tracker, 0);
    let poster = {
        let tracker = Arc::clone(&tracker);
        thread::spawn(move || {
            if tracker.tail() == 1 {
                post(&tracker, 1);
            }
        })
    };
    let request = tracker.find(0).expect("it was posted");
    is_whole(&request);
    assert_eq!(request.position, 0);
    tracker.retire_to(1);
    if let Some(request) = tracker.find(0) {
        assert_eq!(request.position, 1, "the retired one is not found again");
        is_whole(&request);
    }
    poster.join().expect("the poster");
}

/// The same device, and requests are taken as they come.
fn taking_while_posting() {
    let tracker = tracker(2);
    let poster = {
        let tracker = Arc::clone(&tracker);
        thread::spawn(move || {
            post(&tracker, 0);
            post(&tracker, 1);
        })
    };
    for index in [0_u64, 1] {
        if let Some((id, said)) = tracker.take_next(index << INDEX_SHIFT, 0) {
            let request = Outstanding {
                id,
                position: index,
                info: said,
            };
            is_whole(&request);
            assert_eq!(
                tracker.take_next(index << INDEX_SHIFT, 0),
                None,
                "taken twice"
            );
            let again = tracker.find(index);
            assert_eq!(again, None, "found although it was taken");
        }
    }
    poster.join().expect("the poster");
}

/// Three requests are posted, and the device can see them. While one core retires two of them,
/// another one asks for the position after the last.
fn asking_while_retiring(ask: impl Fn(&Tracker) -> u64) {
    let tracker = tracker(4);
    for position in 0..3 {
        post(&tracker, position);
    }
    let retirer = {
        let tracker = Arc::clone(&tracker);
        thread::spawn(move || tracker.retire_to(2))
    };
    assert_eq!(ask(&tracker), 3, "posted requests are missed");
    retirer.join().expect("the retirer");
}

/// A ring of one place, in which a request of the next pass replaces the one that was retired.
fn asking_while_the_ring_turns() {
    let tracker = tracker(1);
    let passes = Arc::new(AtomicU64::new(0));
    post(&tracker, 0);
    passes.store(1, Ordering::Release);
    let poster = {
        let (tracker, passes) = (Arc::clone(&tracker), Arc::clone(&passes));
        thread::spawn(move || {
            tracker.retire_to(1);
            post(&tracker, 1);
            passes.store(2, Ordering::Release);
        })
    };
    // The valid bit shows the parity of the pass only.
    let is_posted = |position: u64| passes.load(Ordering::Acquire) % 2 == (position + 1) % 2;
    let posted = tracker.posted_while(is_posted);
    assert!((1..=2).contains(&posted), "posted requests: {posted}");
    poster.join().expect("the poster");
}

#[test]
fn the_last_request_is_found_while_others_are_retired() {
    loom::model(|| asking_while_retiring(|tracker| tracker.posted_while(|at| at < 3)));
}

#[test]
#[should_panic(expected = "posted requests are missed")]
fn by_records_the_last_request_would_be_missed_while_others_are_retired() {
    loom::model(|| asking_while_retiring(Tracker::head));
}

#[test]
fn the_last_request_is_found_while_the_ring_turns() {
    loom::model(asking_while_the_ring_turns);
}

#[test]
#[should_panic(expected = "posted requests: 0")]
fn without_release_and_acquire_a_turn_of_the_ring_would_hide_the_last_request() {
    sync::relax_everything();
    loom::model(asking_while_the_ring_turns);
}

#[test]
fn a_request_that_is_taken_while_others_are_posted_is_whole_and_is_taken_once() {
    loom::model(taking_while_posting);
}

#[test]
#[should_panic(expected = "Outstanding")]
fn without_release_and_acquire_half_a_request_would_be_taken() {
    sync::relax_everything();
    loom::model(taking_while_posting);
}

#[test]
fn a_request_that_is_found_while_others_are_posted_is_whole() {
    loom::model(finding_while_posting);
}

#[test]
fn a_place_that_was_given_back_holds_the_old_request_or_the_whole_new_one() {
    loom::model(posting_into_freed_places);
}

#[test]
#[should_panic(expected = "Outstanding")]
fn without_release_and_acquire_half_a_request_would_be_found() {
    sync::relax_everything();
    loom::model(finding_while_posting);
}

#[test]
#[should_panic(expected = "Outstanding")]
fn without_release_and_acquire_a_place_given_back_would_hold_half_a_request() {
    sync::relax_everything();
    loom::model(posting_into_freed_places);
}
