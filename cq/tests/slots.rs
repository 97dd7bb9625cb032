//! Reads a slot of a completion queue while the device writes it, in every order that the memory
//! model allows.
//!
//! This test compiles `src/queue/ring_words.rs` with loom's atomics. The claim: a completion whose
//! valid bit is seen is complete, with one slot and with two. A second test shows that the claim
//! can fail: it fails when the valid bit is read relaxed.

#[path = "../src/queue/ring_words.rs"]
mod ring_words;

/// Replaces the crate's own atomics with loom's, whose acquire ordering can be disabled.
mod sync {
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::Ordering;

    thread_local! {
        /// loom runs all threads of a model on one thread of the operating system.
        static ALL_RELAXED: Cell<bool> = const { Cell::new(false) };
    }

    /// Disables the order of all loads that follow.
    pub(crate) fn relax_everything() {
        ALL_RELAXED.set(true);
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64(pub(crate) loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn zero() -> Self {
            Self(loom::sync::atomic::AtomicU64::new(0))
        }
        pub(crate) fn load(&self, order: Ordering) -> u64 {
            let order = if ALL_RELAXED.get() {
                Ordering::Relaxed
            } else {
                order
            };
            self.0.load(order)
        }
    }
}

use loom::sync::Arc;
use loom::thread;
use ring_words::{extension_header_of, header_of, word};
use ringside_spec::verbs::completion::{CompletionHeader, ExtensionHeader};
use std::sync::atomic::Ordering;
use sync::AtomicU64;

type Slot = [AtomicU64; 4];

fn words_of(slot: &Slot) -> [u64; 3] {
    [0, 1, 2].map(|at| word(slot, at))
}

/// Returns the words of a completion of one slot.
fn first(slot: &Slot) -> Option<[u64; 3]> {
    header_of(slot).valid().then(|| words_of(slot))
}

/// Returns the words of a completion's second slot.
fn second(slot: &Slot) -> Option<[u64; 3]> {
    extension_header_of(slot).valid().then(|| words_of(slot))
}

/// The device writes one slot, the word with the valid bit last.
fn polling_while_the_device_writes(valid: u64, poll: fn(&Slot) -> Option<[u64; 3]>) {
    let slot: Arc<Slot> = Arc::new(std::array::from_fn(|_| AtomicU64::zero()));
    let device = {
        let slot = Arc::clone(&slot);
        thread::spawn(move || {
            for (place, value) in slot.iter().zip([1u64, 2, 3]) {
                place.0.store(value.to_le(), Ordering::Relaxed);
            }
            slot[3].0.store(valid.to_le(), Ordering::Release);
        })
    };
    if let Some(words) = poll(&slot) {
        assert_eq!(words, [1, 2, 3], "half a completion");
    }
    device.join().expect("the device");
    assert_eq!(poll(&slot), Some([1, 2, 3]));
}

fn plain() {
    polling_while_the_device_writes(CompletionHeader::VALID_MASK, first);
}

fn extension() {
    polling_while_the_device_writes(ExtensionHeader::VALID_MASK, second);
}

#[test]
fn a_completion_whose_valid_bit_is_seen_is_whole() {
    loom::model(plain);
}

#[test]
fn a_second_slot_whose_valid_bit_is_seen_is_whole() {
    loom::model(extension);
}

#[test]
#[should_panic(expected = "half a completion")]
fn without_acquire_half_a_completion_would_be_taken() {
    sync::relax_everything();
    loom::model(plain);
}

#[test]
#[should_panic(expected = "half a completion")]
fn without_acquire_half_a_second_slot_would_be_taken() {
    sync::relax_everything();
    loom::model(extension);
}
