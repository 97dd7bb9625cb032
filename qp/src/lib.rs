//! Work queues: encoding of work queue elements (pure) and the rings that hold them.
//!
//! Three layers and a pool. Each can be used alone:
//! - [`request`]: the requests that a caller can post, and their encoding into quanta. Plain
//!   functions.
//! - [`state`]: the outstanding requests. The queue pair posts and the completion queue retires;
//!   both share this state through relaxed atomics, without a lock.
//! - [`SendQueue`] and [`ReceiveQueue`]: the rings in memory that the device reads.
//! - [`SharedReceives`]: a pool of receives that feeds many receive queues.
//!
//! Nothing here allocates after construction, takes a lock or calls the system.
#![forbid(unsafe_code)]

mod element;
pub mod receive_queue;
pub mod request;
pub mod send_queue;
pub mod shared_receives;
pub mod state;
mod sync;

pub use receive_queue::{PostReceiveError, ReceiveQueue};
pub use request::{
    BindWindow, FastRegister, LocalInvalidate, Nop, PageSizeCode, Payload, Polarity, Read,
    RequestError, Send, SendDatagram, SendFlags, SendInline, SendKind, Shape, WorkRequest, Write,
    WriteInline,
};
pub use ringside_spec::verbs::Fragment;
pub use send_queue::{PostSendError, SendQueue};
pub use shared_receives::{MemberError, SharedReceives, UnusedReceives};
pub use state::{CompletionContext, QueuePairState};

use thiserror::Error;

/// Reasons why a ring cannot be made in the given memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// The memory is not a power of two of elements, or is outside the device's limits.
    #[error(
        "{words} words cannot hold a ring: give a power of two of quanta, {minimum}..={maximum}"
    )]
    WrongSize {
        /// words given
        words: usize,
        /// fewest quanta
        minimum: u32,
        /// most quanta
        maximum: u32,
    },
    /// The ring and the completion state have different sizes.
    #[error("the ring has {ring} elements, its completion state {state}")]
    StateMismatch {
        /// elements of the ring
        ring: usize,
        /// elements of the state
        state: usize,
    },
}
