//! Writes an element while the device reads it, in every order that the memory model allows.
//!
//! This test compiles `src/element.rs` with loom's atomics. The claim: a device that sees an
//! element's valid bit sees all of its words, and its record is written. A second test shows that
//! the claim can fail: it fails when every release is made relaxed.

#[allow(dead_code)]
#[path = "../src/element.rs"]
mod element;

/// Replaces the crate's own atomics with loom's, whose release ordering can be disabled.
mod sync {
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::Ordering;

    thread_local! {
        /// loom runs all threads of a model on one thread of the operating system.
        static ALL_RELAXED: Cell<bool> = const { Cell::new(false) };
    }

    /// Disables the order of all stores that follow.
    pub(crate) fn relax_everything() {
        ALL_RELAXED.set(true);
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64(pub(crate) loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn zero() -> Self {
            Self(loom::sync::atomic::AtomicU64::new(0))
        }
        pub(crate) fn store(&self, value: u64, order: Ordering) {
            let order = if ALL_RELAXED.get() {
                Ordering::Relaxed
            } else {
                order
            };
            self.0.store(value, order);
        }
        /// Reads as the device does: no later read is carried out before this one.
        pub(crate) fn read(&self) -> u64 {
            u64::from_le(self.0.load(Ordering::Acquire))
        }
    }
}

use loom::sync::Arc;
use loom::thread;
use sync::{AtomicU64, Ordering};

const VALID: u64 = 1 << 63;

/// An element of two quanta, and its record.
struct Memory {
    first: [AtomicU64; 4],
    further: [AtomicU64; 4],
    record: AtomicU64,
}

fn posting_while_the_device_reads() {
    let memory = Arc::new(Memory {
        first: std::array::from_fn(|_| AtomicU64::zero()),
        further: std::array::from_fn(|_| AtomicU64::zero()),
        record: AtomicU64::zero(),
    });
    let poster = {
        let memory = Arc::clone(&memory);
        thread::spawn(move || {
            element::store_further(&memory.further, [5, 6, 7, 8]);
            element::commit(&memory.first, [1, 2, 3, VALID | 4], || {
                memory.record.store(9, Ordering::Relaxed);
            });
        })
    };
    if memory.first[3].read() & VALID != 0 {
        let read = |place: &[AtomicU64; 4]| [0, 1, 2, 3].map(|index| place[index].read());
        let seen = (read(&memory.first), read(&memory.further));
        assert_eq!(
            seen,
            ([1, 2, 3, VALID | 4], [5, 6, 7, 8]),
            "half an element"
        );
        assert_eq!(memory.record.read(), 9, "an element without a record");
    }
    poster.join().expect("the poster");
}

#[test]
fn a_device_that_sees_the_valid_bit_sees_the_whole_element() {
    loom::model(posting_while_the_device_reads);
}

#[test]
#[should_panic(expected = "half an element")]
fn without_release_half_an_element_would_be_seen() {
    sync::relax_everything();
    loom::model(posting_while_the_device_reads);
}
