//! The inputs and outputs of a requester.

use crate::packet::{RemoteBuffer, TransportHeaders};

/// Longest message in bytes. Source: InfiniBand Architecture Specification volume 1, 9.7.1.
pub const MAX_MESSAGE_BYTES: u32 = u32::MAX / 2 + 1;

/// One work request of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// The caller's own name for it, repeated in packets, placements, completions and faults.
    pub token: u32,
    /// The remedy.
    pub operation: Operation,
    /// Bytes to move, 0..=[`MAX_MESSAGE_BYTES`].
    pub length_bytes: u32,
    /// Request a completion event at the receiver. Has an effect on sends and on writes with
    /// immediate data.
    pub solicited: bool,
}

/// The effect of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Into the peer's next receive request.
    Send,
    /// The same, with immediate data (the four bytes as a big-endian number).
    SendWithImmediate(u32),
    /// The same; the peer then invalidates its key of this value.
    SendWithInvalidate(u32),
    /// Into the peer's memory.
    Write {
        /// place in the peer's address space
        address: u64,
        /// the peer's key for it
        key: u32,
    },
    /// Into the peer's memory; takes one of its receive requests to announce it.
    WriteWithImmediate {
        /// place in the peer's address space
        address: u64,
        /// the peer's key for it
        key: u32,
        /// the four bytes as a big-endian number
        immediate: u32,
    },
    /// From the peer's memory.
    Read {
        /// place in the peer's address space
        address: u64,
        /// the peer's key for it
        key: u32,
    },
    /// Nothing on the wire (NOP, local invalidate, fast register, bind). The caller has done it
    /// already; it is here so that it completes in order.
    Local,
}

impl Operation {
    /// The peer's memory that it names, if it does.
    #[inline]
    #[must_use]
    pub(crate) const fn remote(self, length_bytes: u32) -> RemoteBuffer {
        match self {
            Self::Write { address, key }
            | Self::WriteWithImmediate { address, key, .. }
            | Self::Read { address, key } => RemoteBuffer {
                address,
                key,
                length_bytes,
            },
            Self::Send | Self::SendWithImmediate(_) | Self::SendWithInvalidate(_) | Self::Local => {
                RemoteBuffer {
                    address: 0,
                    key: 0,
                    length_bytes,
                }
            }
        }
    }
}

/// The reason why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The most work requests of the configuration are outstanding; complete some, then post again.
    #[error("{capacity} work requests are outstanding; take completions, then post again")]
    Full {
        /// the limit
        capacity: usize,
    },
    /// The message is longer than any may be (AE 0x020B, invalid parameter).
    #[error("message of {length_bytes} bytes; at most {MAX_MESSAGE_BYTES} are possible")]
    TooLong {
        /// its length
        length_bytes: u32,
    },
    /// A read on a connection that may have none outstanding (AE 0x0205).
    #[error("RDMA read on a connection whose limit of outstanding reads (ORD) is 0")]
    ReadsNotAllowed,
    /// The requester has stopped at a fault.
    #[error("the requester has stopped")]
    Stopped,
}

/// Bytes of a work request's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageBytes {
    /// the work request
    pub token: u32,
    /// from the start of the message
    pub offset_bytes: u32,
    /// 0..=path MTU, or those of all packets of a run
    pub length_bytes: u32,
}

/// A packet that a requester sends, or a run of packets; see [`Requester::next_run`].
///
/// [`Requester::next_run`]: crate::Requester::next_run
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPacket {
    /// its headers, ready for the wire
    pub headers: TransportHeaders,
    /// its payload; empty for read requests
    pub payload: MessageBytes,
    /// number of packets, at least 1
    pub packets: u32,
}

/// A work request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// the work request
    pub token: u32,
    /// bytes that it moved
    pub length_bytes: u32,
}
