//! The order of the stores that write one work queue element.
//!
//! `tests/elements.rs` compiles this file with loom's atomics, which try every order that the
//! memory model allows.

use crate::sync::{AtomicU64, Ordering};
use ringside_spec::verbs::{QUANTUM_WORDS, Quantum};

/// Stores a quantum other than the first. The device reads it only after the first quantum is
/// valid.
#[inline(always)]
pub(crate) fn store_further(place: &[AtomicU64; QUANTUM_WORDS], quantum: Quantum) {
    for (word, value) in place.iter().zip(quantum) {
        word.store(value.to_le(), Ordering::Relaxed);
    }
}

/// Stores the words of a first quantum that hold no valid bit. Returns the word that does, for
/// [`make_valid`].
#[inline(always)]
pub(crate) fn store_words(place: &[AtomicU64; QUANTUM_WORDS], quantum: Quantum) -> u64 {
    let [a, b, c, header] = quantum;
    place[0].store(a.to_le(), Ordering::Relaxed);
    place[1].store(b.to_le(), Ordering::Relaxed);
    place[2].store(c.to_le(), Ordering::Relaxed);
    header
}

/// Stores the word with the valid bit, after all stores that precede this call.
#[inline(always)]
pub(crate) fn make_valid(place: &[AtomicU64; QUANTUM_WORDS], header: u64) {
    place[3].store(header.to_le(), Ordering::Release);
}

/// Stores a first quantum. The word with the valid bit is stored last: after the other words, after
/// the stores of `note`, and after all stores that precede this call.
#[inline(always)]
pub(crate) fn commit(place: &[AtomicU64; QUANTUM_WORDS], quantum: Quantum, note: impl FnOnce()) {
    let header = store_words(place, quantum);
    note();
    make_valid(place, header);
}
