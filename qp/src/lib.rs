//! Work queues: encoding of work queue elements (pure) and the rings that hold them.
//!
//! Three layers, each usable alone:
//! - [`request`]: what a caller asks for, and its encoding into quanta. Plain functions.
//! - [`state`]: what is outstanding. Shared by the queue pair, which posts, and the completion
//!   queue, which retires; relaxed atomics, no lock.
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
    BindWindow, FastRegister, LocalInvalidate, Nop, Polarity, Read, RequestError, Send,
    SendDatagram, SendFlags, SendInline, SendKind, WorkRequest, Write, WriteInline,
};
pub use ringside_spec::verbs::Fragment;
pub use send_queue::{PostSendError, SendQueue};
pub use shared_receives::{MemberError, SharedReceives};
pub use state::{CompletionContext, QueuePairState};

use thiserror::Error;

/// Why a ring can't be made of the memory given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// The memory is not a power of two of elements within the device's limits.
    #[error(
        "{words} words are no ring: a power of two of quanta, {minimum}..={maximum}, is needed"
    )]
    WrongSize {
        /// words given
        words: usize,
        /// fewest quanta
        minimum: u32,
        /// most quanta
        maximum: u32,
    },
    /// Ring and completion state were made for different sizes.
    #[error("the ring has {ring} elements, its completion state {state}")]
    StateMismatch {
        /// elements of the ring
        ring: usize,
        /// elements of the state
        state: usize,
    },
}
