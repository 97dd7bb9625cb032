//! Layouts of the data path: work queue elements and completion queue elements.
//!
//! A work queue element is one to eight *quanta* of 32 bytes (four words). A completion queue
//! element is one slot of 32 bytes, followed by a second one (its extension) if its header says so.
//! The driver encodes what the device decodes and vice versa, so both directions are here. Decoding
//! reads untrusted bytes: it never panics, and keeps unknown codes.
//!
//! Source: irdma `defs.h` and `user.h`; rdma-core `providers/irdma/uk.c`.

pub mod completion;
pub mod element;
pub mod receive;
pub mod route;
pub mod send;
pub mod sizes;
pub mod status;

pub use completion::{CompletionElement, CompletionExtension, QueueSide};
pub use element::{ElementBreach, PlainElement, SendElement};
pub use receive::ReceiveElement;
pub use route::Route;
pub use send::{Fragment, FragmentKey, SendHeader, SendOpcode};
pub use status::FlushCode;

/// Bytes of a quantum, the unit in which work queues are counted.
///
/// Source: irdma `user.h`, IRDMA_QP_WQE_MIN_SIZE.
pub const QUANTUM_BYTES: usize = 32;

/// Words of a quantum.
pub const QUANTUM_WORDS: usize = QUANTUM_BYTES / 8;

/// Quanta of the largest work queue element, and of the block whose end no element may cross.
///
/// Source: irdma `user.h`, IRDMA_QP_WQE_MAX_SIZE = 256 bytes; IRDMA_MAX_QUANTA_PER_WR.
pub const MAX_QUANTA: usize = crate::rdma::limits::MAX_SEND_QUANTA as usize;

/// One quantum: four little-endian words.
pub type Quantum = [u64; QUANTUM_WORDS];

#[cfg(test)]
mod tests;
