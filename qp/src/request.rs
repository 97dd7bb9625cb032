//! Work requests of the send queue, and their encoding into quanta.
//!
//! Encoding is pure: a request, its flags and the ring's polarity give words. The first quantum is
//! returned, because its last word commits the element and must be stored after all others. Further
//! quanta go to the caller one by one.

pub(crate) mod encoding;

use ringside_spec::verbs::sizes;
use ringside_spec::verbs::{Fragment, MAX_QUANTA, Quantum, SendHeader, SendOpcode};
use std::ops::BitOr;
use thiserror::Error;

/// Bytes of the longest message: 2^31 - 1. Source: irdma `icrdma_hw.c`,
/// ICRDMA_MAX_OUTBOUND_MSG_SIZE.
pub const MAX_MESSAGE_BYTES: u64 = ringside_spec::rdma::limits::MAX_MESSAGE_BYTES as u64;

/// The flags of a request. Combine with `|`.
///
/// The bits are those of the element's header, so that encoding is one OR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendFlags(u64);

impl SendFlags {
    /// No completion on success, no fence.
    pub const NONE: Self = Self(0);
    /// Report success with a completion. Verbs: `IBV_SEND_SIGNALED`.
    pub const SIGNALLED: Self = Self(SendHeader::SIGNALLED_MASK);
    /// Ask for an event at the peer. Verbs: `IBV_SEND_SOLICITED`.
    pub const SOLICITED: Self = Self(1);
    /// Start only when earlier reads are done. Verbs: `IBV_SEND_FENCE`.
    pub const READ_FENCE: Self = Self(SendHeader::READ_FENCE_MASK);
    /// Start only when all earlier requests are done.
    pub const LOCAL_FENCE: Self = Self(SendHeader::LOCAL_FENCE_MASK);
    /// Put the round-trip time into the completion.
    pub const REPORT_ROUND_TRIP: Self = Self(SendHeader::REPORT_ROUND_TRIP_MASK);

    /// Fences and signalling, for operations whose header has no other flag bits.
    const QUEUE_BITS: u64 =
        SendHeader::SIGNALLED_MASK | SendHeader::READ_FENCE_MASK | SendHeader::LOCAL_FENCE_MASK;
    /// Bits of a datagram send: bit 61 says something else there.
    const DATAGRAM_BITS: u64 = SendHeader::SIGNALLED_MASK | SendHeader::READ_FENCE_MASK;
    /// Bits of a transfer.
    const TRANSFER_BITS: u64 = Self::QUEUE_BITS | SendHeader::REPORT_ROUND_TRIP_MASK;

    /// The flags of a local invalidation: one that waits for earlier reads also waits for all other
    /// requests before it. Source: irdma `verbs.c`, irdma_post_send.
    #[must_use]
    pub const fn of_invalidation(self) -> Self {
        match self.contains(Self::READ_FENCE) {
            true => Self(self.0 | Self::LOCAL_FENCE.0),
            false => self,
        }
    }

    /// True if every flag of `other` is set.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for SendFlags {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The valid bit of a ring's pass: bit 63 of a word.
///
/// Kept as words, so that encoding is one OR: one word with the valid bit alone, one with the
/// signalled flag beside it, since most requests have that flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polarity {
    plain: u64,
    signalled: u64,
}

impl Polarity {
    /// Returns `word`, whose valid bit is clear, with this polarity.
    #[inline(always)]
    #[must_use]
    pub const fn on(self, word: u64) -> u64 {
        word | self.plain
    }

    /// Returns `word`, whose valid bit is clear, with this polarity and with the flags that are in
    /// `bits`.
    #[inline(always)]
    #[must_use]
    const fn on_header(self, header: u64, flags: SendFlags, bits: u64) -> u64 {
        let others = flags.0 & bits & !SendFlags::SIGNALLED.0;
        if flags.contains(SendFlags::SIGNALLED) {
            header | others | self.signalled
        } else {
            header | others | self.plain
        }
    }

    /// The opposite polarity: that of the next pass.
    #[must_use]
    pub const fn turned(self) -> Self {
        Self {
            plain: self.plain ^ SendHeader::VALID_MASK,
            signalled: self.signalled ^ SendHeader::VALID_MASK,
        }
    }
}

impl From<bool> for Polarity {
    #[inline(always)]
    fn from(valid: bool) -> Self {
        let plain = SendHeader::ZERO.with_valid(valid).0;
        Self {
            plain,
            signalled: plain | SendFlags::SIGNALLED.0,
        }
    }
}

/// A request that no queue of this device accepts: the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// More fragments than one request may gather or scatter.
    #[error(
        "{given} fragments; a request takes at most {}: split it",
        sizes::MAX_FRAGMENTS
    )]
    TooManyFragments {
        /// fragments given
        given: usize,
    },
    /// The request carries more bytes than an element holds inline.
    #[error(
        "{length_bytes} bytes inline; at most {} fit: use a registered buffer",
        sizes::MAX_INLINE_BYTES
    )]
    InlineTooLong {
        /// bytes given
        length_bytes: usize,
    },
    /// The message is longer than 2^31 - 1 bytes.
    #[error("a message of {length_bytes} bytes; at most 2147483647: split it")]
    MessageTooLong {
        /// bytes in all fragments
        length_bytes: u64,
    },
    /// The region is longer than its length field can express.
    #[error("a region of {length_bytes} bytes; at most 2^41 - 1 can be fast-registered")]
    RegionTooLong {
        /// bytes asked for
        length_bytes: u64,
    },
    /// A value does not fit its field.
    #[error("{what} {value:#x}; at most {most:#x} is possible")]
    OutOfRange {
        /// the field
        what: &'static str,
        /// the value given
        value: u64,
        /// the largest one
        most: u64,
    },
}

/// The properties of a request that the ring needs before it encodes the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Quanta, 1..=8.
    pub quanta: usize,
    /// Bytes that the completion will report.
    pub length_bytes: u32,
}

/// An operation that a send queue can carry out.
pub trait WorkRequest {
    /// The request is for queue pairs of datagrams.
    const IS_DATAGRAM: bool = false;

    /// Checks the request and returns its size.
    fn shape(&self) -> Result<Shape, RequestError>;

    /// Returns the operation code that the element names.
    fn opcode(&self, flags: SendFlags) -> SendOpcode;

    /// Encodes a request that [`WorkRequest::shape`] accepted.
    ///
    /// Shape: returns the first quantum, whose word 3 commits the element. Passes further quanta,
    /// numbered from 1, to `further`.
    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        further: impl FnMut(usize, Quantum),
    ) -> Quantum;
}

/// An encoded element that is not in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The quanta; those beyond `count` are zero.
    pub quanta: [Quantum; MAX_QUANTA],
    /// The number of quanta.
    pub count: usize,
}

/// Encodes a request without writing it into a ring.
///
/// Errors: those of [`WorkRequest::shape`].
pub fn encode<R: WorkRequest>(
    request: &R,
    flags: SendFlags,
    polarity: bool,
) -> Result<Encoded, RequestError> {
    let count = request.shape()?.quanta;
    let mut quanta = [[0; 4]; MAX_QUANTA];
    let first = request.encode(flags, polarity.into(), |index, quantum| {
        if let Some(place) = quanta.get_mut(index) {
            *place = quantum;
        }
    });
    quanta[0] = first;
    Ok(Encoded { quanta, count })
}

/// RDMA write of local fragments to remote memory.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Pieces to gather, at most 13.
    pub fragments: &'a [Fragment],
    /// The target: an address of the remote region.
    pub remote_address: u64,
    /// Key of the remote region.
    pub remote_key: u32,
    /// A number that consumes a receive request at the peer and is delivered with it.
    pub immediate: Option<u32>,
}

/// RDMA write of data that travels in the element itself.
#[derive(Clone, Copy, Debug)]
pub struct WriteInline<'a> {
    /// The data, at most 101 bytes; free to change once posted.
    pub data: &'a [u8],
    /// The target: an address of the remote region.
    pub remote_address: u64,
    /// Key of the remote region.
    pub remote_key: u32,
    /// A number that consumes a receive request at the peer and is delivered with it.
    pub immediate: Option<u32>,
}

/// RDMA read of remote memory into local fragments.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// Pieces to scatter into, at most 13.
    pub fragments: &'a [Fragment],
    /// The source: an address of the remote region.
    pub remote_address: u64,
    /// Key of the remote region.
    pub remote_key: u32,
    /// Invalidate the local key of the first fragment when the data is in.
    pub invalidate_local: bool,
}

/// The content of a send besides its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendKind {
    /// Nothing.
    Plain,
    /// A number that is delivered with the message.
    Immediate(u32),
    /// A key of the peer's that the message invalidates there.
    Invalidate(u32),
}

/// Send of local fragments into the peer's next receive request.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// Pieces to gather, at most 13.
    pub fragments: &'a [Fragment],
    /// The data that comes with it.
    pub kind: SendKind,
}

/// Send of data that travels in the element itself.
#[derive(Clone, Copy, Debug)]
pub struct SendInline<'a> {
    /// The data, at most 101 bytes; free to change once posted.
    pub data: &'a [u8],
    /// The data that comes with it.
    pub kind: SendKind,
}

/// The place of a datagram's bytes.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// In registered buffers, at most 13 pieces.
    Fragments(&'a [Fragment]),
    /// In the element, at most 101 bytes.
    Inline(&'a [u8]),
}

/// Datagram send.
#[derive(Clone, Copy, Debug)]
pub struct SendDatagram<'a> {
    /// The data.
    pub payload: Payload<'a>,
    /// A number that is delivered with the message.
    pub immediate: Option<u32>,
    /// Index of the address handle, 17 bits.
    pub address_handle: u32,
    /// Queue pair of the destination, 24 bits.
    pub destination: u32,
    /// Queue key of the destination.
    pub queue_key: u32,
}

/// Takes a key out of use.
#[derive(Clone, Copy, Debug)]
pub struct LocalInvalidate {
    /// The local key.
    pub key: u32,
}

/// Does nothing, in order.
#[derive(Clone, Copy, Debug)]
pub struct Nop;

/// Size of the pages that a fast-registered region lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSizeCode {
    /// 4 KiB
    FourKiB,
    /// 2 MiB
    TwoMiB,
    /// 1 GiB
    OneGiB,
}

impl PageSizeCode {
    const fn code(self) -> u64 {
        match self {
            Self::FourKiB => 0,
            Self::TwoMiB => 1,
            Self::OneGiB => 2,
        }
    }
}

/// Gives an allocated region its pages, in order with other requests.
#[derive(Clone, Copy, Debug)]
pub struct FastRegister {
    /// First virtual address, or the offset in the first page of a zero-based region.
    pub virtual_address: u64,
    /// The page of a region of one page; a multiple of 4096, below 2^52.
    pub page_address: u64,
    /// Bytes, below 2^41.
    pub length_bytes: u64,
    /// First entry of the page list, 28 bits, if there is one.
    pub first_entry: u32,
    /// 0: one page; 1: a list; 3: a list of lists.
    pub page_list_levels: u8,
    /// Size of its pages.
    pub page_size: PageSizeCode,
    /// Index of the region, 24 bits.
    pub index: u32,
    /// The consumer's part of its key.
    pub key: u8,
    /// Access rights, five bits of the control path's encoding.
    pub access_rights: u8,
    /// Addresses are virtual; else they count from zero.
    pub virtual_address_based: bool,
}

/// Opens a part of a region through a memory window.
#[derive(Clone, Copy, Debug)]
pub struct BindWindow {
    /// First virtual address.
    pub address: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// Key of the region.
    pub region_key: u32,
    /// Key of the window.
    pub window_key: u32,
    /// Let the peer read.
    pub remote_read: bool,
    /// Let the peer write.
    pub remote_write: bool,
    /// Addresses are virtual; else they count from zero.
    pub virtual_address_based: bool,
    /// A window of type 1; else type 2.
    pub window_type_1: bool,
}

impl BindWindow {
    /// The same without rights if it has no bytes: a card may take no bytes for "unlimited", as it
    /// does where memory is registered (CVE-2023-25775).
    #[must_use]
    pub const fn without_rights_if_empty(self) -> Self {
        let opens = self.length_bytes > 0;
        Self {
            remote_read: self.remote_read && opens,
            remote_write: self.remote_write && opens,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
