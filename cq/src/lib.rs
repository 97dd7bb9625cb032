//! Completion queues and event queues: decoding and burst polling.
//!
//! - [`Completion`]: what the caller gets; it speaks verbs.
//! - [`CompletionQueue`]: the ring that the device writes and one core polls.
//! - [`CompletionQueueHandle`]: how other cores attach and detach queue pairs.
//! - [`EventRing`]: event queues and the control completion queue.
//!
//! All that the device writes is checked: a context is a table slot with a generation, an index
//! must name an outstanding request, codes are kept as they are. What doesn't fit is counted in
//! [`Anomalies`] and skipped, never guessed at.
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
pub use queue::{Anomalies, CompletionQueue};
pub use ringside_qp::{CompletionContext, QueuePairState};
pub use table::{AttachError, Sides};

use thiserror::Error;

/// Why a completion or event queue can't be made of the memory given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueueError {
    /// A completion ring is a power of two of slots.
    #[error("{words} words are no completion ring: a power of two of 32-byte slots, 4..=2^20")]
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
    /// An event ring is a whole number of entries.
    #[error("{words} words are no ring of entries of {entry_words} words")]
    WrongEntries {
        /// words given
        words: usize,
        /// words of an entry
        entry_words: usize,
    },
}
