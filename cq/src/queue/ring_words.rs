//! Reads of a slot that the device may be writing.
//!
//! `tests/slots.rs` compiles this file with atomics that try every order that the memory model
//! allows.

use crate::sync::{AtomicU64, Ordering};
use ringside_spec::verbs::QUANTUM_WORDS;
use ringside_spec::verbs::completion::{CompletionHeader, ExtensionHeader};

/// Returns word 3, which has the valid bit. The device writes it last, so it is read first.
#[inline(always)]
fn valid_word(slot: &[AtomicU64; QUANTUM_WORDS]) -> u64 {
    u64::from_le(slot[3].load(Ordering::Acquire))
}

/// Returns the header of a completion.
#[inline(always)]
pub(super) fn header_of(slot: &[AtomicU64; QUANTUM_WORDS]) -> CompletionHeader {
    CompletionHeader(valid_word(slot))
}

/// Returns the header of a completion's second slot.
#[inline(always)]
pub(super) fn extension_header_of(slot: &[AtomicU64; QUANTUM_WORDS]) -> ExtensionHeader {
    ExtensionHeader(valid_word(slot))
}

/// Returns another word of a slot whose header is valid.
#[inline(always)]
pub(super) fn word(slot: &[AtomicU64; QUANTUM_WORDS], index: usize) -> u64 {
    u64::from_le(slot[index].load(Ordering::Relaxed))
}
