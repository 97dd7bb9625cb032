//! Completion queues and event queues: decoding and burst polling.
//!
//! - [`Completion`]: a completion in the terms of verbs.
//! - [`CompletionQueue`]: the ring that the device writes and one core polls.
//! - [`CompletionQueueHandle`]: lets other cores attach and detach queue pairs.
//! - [`EventRing`]: event queues and the control completion queue.
//!
//! Everything that the device writes is checked: a context must be a table slot with its
//! generation, an index must name an outstanding request, unknown codes are kept unchanged. An
//! invalid completion is counted in [`Anomalies`] and skipped.
#![forbid(unsafe_code)]

mod arming;
pub mod completion;
pub mod event_ring;
pub mod inbox;
pub mod queue;
mod sync;
mod table;

pub use completion::{Completion, Datagram, Operation, Status};
pub use event_ring::EventRing;
pub use inbox::{CompletionQueueHandle, HandleError};
pub use queue::{Announced, Anomalies, CompletionQueue, Elsewhere};
pub use ringside_qp::{CompletionContext, QueuePairState};
pub use table::{AttachError, Sides};

use thiserror::Error;

/// Reasons why a completion or event queue cannot be made in the given memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueueError {
    /// The words of a completion ring are not a power of two of slots.
    #[error(
        "{words} words cannot hold a completion ring: give a power of two of 32-byte slots, 4..=2^20"
    )]
    WrongSize {
        /// words given
        words: usize,
    },
    /// The shadow area is too small.
    #[error("a shadow area of {words} words; the device reads 8")]
    ShadowTooSmall {
        /// words given
        words: usize,
    },
    /// The words of an event ring are not a whole number of entries.
    #[error(
        "{words} words cannot hold whole entries of {entry_words} words: give a multiple of that"
    )]
    WrongEntries {
        /// words given
        words: usize,
        /// words of an entry
        entry_words: usize,
    },
}
