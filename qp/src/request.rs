//! Work requests of the send queue, and their encoding into quanta.
//!
//! Encoding is pure: a request, its flags and the ring's polarity give words. The first quantum is
//! returned, because its last word commits the element and has to be stored after all others;
//! further quanta are handed to the caller one by one.

use ringside_spec::verbs::send::{
    BindHeader, BindTags, DatagramDestination, DatagramHeader, FastRegisterHeader,
    FastRegisterLength, FastRegisterPage, ImmediateWord, InlineTail, LocalInvalidateTag,
};
use ringside_spec::verbs::sizes::{self, INLINE_FIRST_BYTES, INLINE_FURTHER_BYTES};
use ringside_spec::verbs::{Fragment, MAXIMUM_QUANTA, Quantum, SendHeader, SendOpcode};
use std::ops::BitOr;
use thiserror::Error;

/// Bytes of the longest message: 2^31 - 1. Source: irdma `icrdma_hw.c`, ICRDMA_MAX_OUTBOUND_MSG_SIZE.
pub const MAXIMUM_MESSAGE_BYTES: u64 = 0x7FFF_FFFF;

/// What a request asks of its queue besides the operation itself. Combine with `|`.
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

    /// True if every flag of `other` is set.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline(always)]
    const fn transfer_bits(self) -> u64 {
        self.0 & (Self::QUEUE_BITS | SendHeader::REPORT_ROUND_TRIP_MASK)
    }
}

impl BitOr for SendFlags {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A request that no queue of this device takes: the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// More pieces than one request may gather or scatter.
    #[error(
        "{given} fragments; a request takes at most {}: split it",
        sizes::MAXIMUM_FRAGMENTS
    )]
    TooManyFragments {
        /// fragments given
        given: usize,
    },
    /// More bytes than an element holds inline.
    #[error(
        "{length_bytes} bytes inline; at most {} fit: use a registered buffer",
        sizes::MAXIMUM_INLINE_BYTES
    )]
    InlineTooLong {
        /// bytes given
        length_bytes: usize,
    },
    /// A message beyond 2^31 - 1 bytes.
    #[error("a message of {length_bytes} bytes; at most 2147483647: split it")]
    MessageTooLong {
        /// bytes in all fragments
        length_bytes: u64,
    },
    /// A region longer than the field that tells its length.
    #[error("a region of {length_bytes} bytes; at most 2^41 - 1 can be fast-registered")]
    RegionTooLong {
        /// bytes asked for
        length_bytes: u64,
    },
}

/// What the ring must know of a request before it encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Quanta, 1..=8.
    pub quanta: usize,
    /// Bytes that the completion will report.
    pub length_bytes: u32,
}

/// Something that a send queue can be asked to do.
pub trait WorkRequest {
    /// Checks the request and says how much room it takes.
    fn shape(&self) -> Result<Shape, RequestError>;

    /// The operation that the element will name.
    fn opcode(&self, flags: SendFlags) -> SendOpcode;

    /// The words of a request that [`WorkRequest::shape`] accepted.
    ///
    /// Shape: returns the first quantum, whose word 3 commits the element, and hands further
    /// quanta, numbered from 1, to `further`.
    fn encode(
        &self,
        flags: SendFlags,
        polarity: bool,
        further: impl FnMut(usize, Quantum),
    ) -> Quantum;
}

/// An encoded element by itself, for whoever does not write into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The quanta; those beyond `count` are zero.
    pub quanta: [Quantum; MAXIMUM_QUANTA],
    /// How many there are.
    pub count: usize,
}

/// Encodes a request by itself.
///
/// Errors: those of [`WorkRequest::shape`].
pub fn encode<R: WorkRequest>(
    request: &R,
    flags: SendFlags,
    polarity: bool,
) -> Result<Encoded, RequestError> {
    let count = request.shape()?.quanta;
    let mut quanta = [[0; 4]; MAXIMUM_QUANTA];
    let first = request.encode(flags, polarity, |index, quantum| {
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
    /// Where to write: an address of the remote region.
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
    /// Where to write: an address of the remote region.
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
    /// Where to read: an address of the remote region.
    pub remote_address: u64,
    /// Key of the remote region.
    pub remote_key: u32,
    /// Invalidate the local key of the first fragment when the data is in.
    pub invalidate_local: bool,
}

/// What a send carries besides its data.
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
    /// What comes with it.
    pub kind: SendKind,
}

/// Send of data that travels in the element itself.
#[derive(Clone, Copy, Debug)]
pub struct SendInline<'a> {
    /// The data, at most 101 bytes; free to change once posted.
    pub data: &'a [u8],
    /// What comes with it.
    pub kind: SendKind,
}

/// Where the bytes of a datagram lie.
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

#[inline(always)]
fn fragments_shape(fragments: &[Fragment], immediate: bool) -> Result<Shape, RequestError> {
    let length_bytes = match fragments {
        [] => 0,
        [only] => u64::from(only.length_bytes),
        several if several.len() <= sizes::MAXIMUM_FRAGMENTS => several
            .iter()
            .map(|piece| u64::from(piece.length_bytes))
            .sum(),
        many => return Err(RequestError::TooManyFragments { given: many.len() }),
    };
    if length_bytes > MAXIMUM_MESSAGE_BYTES {
        return Err(RequestError::MessageTooLong { length_bytes });
    }
    Ok(Shape {
        quanta: sizes::send_quanta(fragments.len() + usize::from(immediate)),
        length_bytes: length_bytes as u32,
    })
}

#[inline(always)]
fn inline_shape(data: &[u8]) -> Result<Shape, RequestError> {
    if data.len() > sizes::MAXIMUM_INLINE_BYTES {
        return Err(RequestError::InlineTooLong {
            length_bytes: data.len(),
        });
    }
    Ok(Shape {
        quanta: sizes::inline_quanta(data.len()),
        length_bytes: data.len() as u32,
    })
}

/// Words 0 and 1 and the header's count of further slots, for fragments in buffers.
///
/// The immediate takes slot 0 when there is one; an even number of slots is completed by a zero
/// fragment with the valid bit, so that every quantum of the element carries the polarity.
#[inline(always)]
fn gather(
    fragments: &[Fragment],
    immediate: Option<u32>,
    polarity: bool,
    mut further: impl FnMut(usize, Quantum),
) -> ([u64; 2], SendHeader) {
    let (first, rest) = match (immediate, fragments) {
        (Some(value), all) => ([ImmediateWord(u64::from(value)).0, 0], all),
        (None, [first, rest @ ..]) => (first.encode(polarity), rest),
        (None, []) => (Fragment::default().encode(polarity), &[][..]),
    };
    let mut slots = 0;
    for (index, pair) in rest.chunks(2).enumerate() {
        let second = pair.get(1).copied().unwrap_or_default();
        let [a, b] = pair.first().copied().unwrap_or_default().encode(polarity);
        let [c, d] = second.encode(polarity);
        further(index + 1, [a, b, c, d]);
        slots += 2;
    }
    let header = SendHeader::ZERO
        .with_further_fragments(slots)
        .with_immediate(immediate.is_some());
    (first, header)
}

/// Words 0 and 1 and the header's inline fields, for data in the element.
#[inline(always)]
fn place_inline(
    data: &[u8],
    immediate: Option<u32>,
    polarity: bool,
    mut further: impl FnMut(usize, Quantum),
) -> ([u64; 2], SendHeader) {
    let first = match data.first_chunk::<INLINE_FIRST_BYTES>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => short_word(data),
    };
    let rest = data.get(INLINE_FIRST_BYTES..).unwrap_or(&[]);
    for (index, piece) in rest.chunks(INLINE_FURTHER_BYTES).enumerate() {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(piece.chunks(8)) {
            *word = short_word(bytes);
        }
        words[3] = InlineTail(words[3]).with_valid(polarity).0;
        further(index + 1, words);
    }
    let header = SendHeader::ZERO
        .with_inline(true)
        .with_inline_length_bytes(data.len() as u64)
        .with_immediate(immediate.is_some());
    (
        [ImmediateWord(u64::from(immediate.unwrap_or(0))).0, first],
        header,
    )
}

/// Up to eight bytes as the low bytes of a word.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

#[inline(always)]
fn finish(
    header: SendHeader,
    opcode: SendOpcode,
    tag: u32,
    flags: SendFlags,
    polarity: bool,
) -> u64 {
    header
        .with_steering_tag(u64::from(tag))
        .with_opcode(u64::from(opcode.code()))
        .with_valid(polarity)
        .0
        | flags.transfer_bits()
}

#[inline(always)]
const fn write_opcode(flags: SendFlags) -> SendOpcode {
    if flags.contains(SendFlags::SOLICITED) {
        SendOpcode::WriteSolicited
    } else {
        SendOpcode::Write
    }
}

impl SendKind {
    #[inline(always)]
    const fn immediate(self) -> Option<u32> {
        match self {
            Self::Immediate(value) => Some(value),
            _ => None,
        }
    }

    #[inline(always)]
    const fn tag(self) -> u32 {
        match self {
            Self::Invalidate(key) => key,
            _ => 0,
        }
    }

    #[inline(always)]
    const fn opcode(self, flags: SendFlags) -> SendOpcode {
        match (self, flags.contains(SendFlags::SOLICITED)) {
            (Self::Invalidate(_), false) => SendOpcode::SendInvalidate,
            (Self::Invalidate(_), true) => SendOpcode::SendSolicitedInvalidate,
            (_, false) => SendOpcode::Send,
            (_, true) => SendOpcode::SendSolicited,
        }
    }
}

impl WorkRequest for Write<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        fragments_shape(self.fragments, self.immediate.is_some())
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        write_opcode(flags)
    }

    #[inline(always)]
    fn encode(&self, flags: SendFlags, polarity: bool, put: impl FnMut(usize, Quantum)) -> Quantum {
        let ([a, b], header) = gather(self.fragments, self.immediate, polarity, put);
        let opcode = write_opcode(flags);
        let header = finish(header, opcode, self.remote_key, flags, polarity);
        [a, b, self.remote_address, header]
    }
}

impl WorkRequest for WriteInline<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        inline_shape(self.data)
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        write_opcode(flags)
    }

    #[inline(always)]
    fn encode(&self, flags: SendFlags, polarity: bool, put: impl FnMut(usize, Quantum)) -> Quantum {
        let ([a, b], header) = place_inline(self.data, self.immediate, polarity, put);
        let opcode = write_opcode(flags);
        let header = finish(header, opcode, self.remote_key, flags, polarity);
        [a, b, self.remote_address, header]
    }
}

impl WorkRequest for Read<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        fragments_shape(self.fragments, false)
    }

    #[inline(always)]
    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        if self.invalidate_local {
            SendOpcode::ReadInvalidate
        } else {
            SendOpcode::Read
        }
    }

    #[inline(always)]
    fn encode(&self, flags: SendFlags, polarity: bool, put: impl FnMut(usize, Quantum)) -> Quantum {
        let ([a, b], header) = gather(self.fragments, None, polarity, put);
        let header = finish(header, self.opcode(flags), self.remote_key, flags, polarity);
        [a, b, self.remote_address, header]
    }
}

impl WorkRequest for Send<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        fragments_shape(self.fragments, self.kind.immediate().is_some())
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        self.kind.opcode(flags)
    }

    #[inline(always)]
    fn encode(&self, flags: SendFlags, polarity: bool, put: impl FnMut(usize, Quantum)) -> Quantum {
        let ([a, b], header) = gather(self.fragments, self.kind.immediate(), polarity, put);
        let opcode = self.kind.opcode(flags);
        let header = finish(header, opcode, self.kind.tag(), flags, polarity);
        [a, b, 0, header]
    }
}

impl WorkRequest for SendInline<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        inline_shape(self.data)
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        self.kind.opcode(flags)
    }

    #[inline(always)]
    fn encode(&self, flags: SendFlags, polarity: bool, put: impl FnMut(usize, Quantum)) -> Quantum {
        let ([a, b], header) = place_inline(self.data, self.kind.immediate(), polarity, put);
        let opcode = self.kind.opcode(flags);
        let header = finish(header, opcode, self.kind.tag(), flags, polarity);
        [a, b, 0, header]
    }
}

impl WorkRequest for SendDatagram<'_> {
    fn shape(&self) -> Result<Shape, RequestError> {
        match self.payload {
            Payload::Fragments(fragments) => fragments_shape(fragments, self.immediate.is_some()),
            Payload::Inline(data) => inline_shape(data),
        }
    }

    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        SendKind::Plain.opcode(flags)
    }

    fn encode(&self, flags: SendFlags, polarity: bool, put: impl FnMut(usize, Quantum)) -> Quantum {
        let ([a, b], shared) = match self.payload {
            Payload::Fragments(pieces) => gather(pieces, self.immediate, polarity, put),
            Payload::Inline(data) => place_inline(data, self.immediate, polarity, put),
        };
        let destination = DatagramDestination::ZERO
            .with_queue_key(u64::from(self.queue_key))
            .with_queue_pair(u64::from(self.destination));
        let header = DatagramHeader(shared.0)
            .with_address_handle(u64::from(self.address_handle))
            .with_opcode(u64::from(self.opcode(flags).code()))
            .with_valid(polarity);
        [
            a,
            b,
            destination.0,
            header.0 | flags.0 & SendFlags::DATAGRAM_BITS,
        ]
    }
}

const ONE_QUANTUM: Shape = Shape {
    quanta: 1,
    length_bytes: 0,
};

impl WorkRequest for LocalInvalidate {
    fn shape(&self) -> Result<Shape, RequestError> {
        Ok(ONE_QUANTUM)
    }

    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        SendOpcode::LocalInvalidate
    }

    fn encode(&self, flags: SendFlags, polarity: bool, _: impl FnMut(usize, Quantum)) -> Quantum {
        let tag = LocalInvalidateTag::ZERO.with_steering_tag(u64::from(self.key));
        let header = SendHeader::ZERO
            .with_opcode(u64::from(SendOpcode::LocalInvalidate.code()))
            .with_valid(polarity);
        [0, tag.0, 0, header.0 | flags.0 & SendFlags::QUEUE_BITS]
    }
}

impl WorkRequest for Nop {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        Ok(ONE_QUANTUM)
    }

    #[inline(always)]
    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        SendOpcode::Nop
    }

    #[inline(always)]
    fn encode(&self, flags: SendFlags, polarity: bool, _: impl FnMut(usize, Quantum)) -> Quantum {
        let header = SendHeader::ZERO
            .with_opcode(u64::from(SendOpcode::Nop.code()))
            .with_valid(polarity);
        [0, 0, 0, header.0 | flags.0 & SendFlags::QUEUE_BITS]
    }
}

impl WorkRequest for FastRegister {
    fn shape(&self) -> Result<Shape, RequestError> {
        let longest = FastRegisterLength::LENGTH_BYTES_MASK;
        if self.length_bytes > longest {
            return Err(RequestError::RegionTooLong {
                length_bytes: self.length_bytes,
            });
        }
        Ok(ONE_QUANTUM)
    }

    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        SendOpcode::FastRegister
    }

    fn encode(&self, flags: SendFlags, polarity: bool, _: impl FnMut(usize, Quantum)) -> Quantum {
        let page_bits = FastRegisterPage::PAGE_NUMBER_MASK;
        let entry = u64::from(self.first_entry);
        let page = FastRegisterPage(self.page_address & page_bits)
            .with_first_entry_high(entry / (1 << 16));
        let length = FastRegisterLength::ZERO
            .with_length_bytes(self.length_bytes)
            .with_first_entry_low(entry % (1 << 16));
        let header = FastRegisterHeader::ZERO
            .with_steering_tag_key(u64::from(self.key))
            .with_steering_tag_index(u64::from(self.index))
            .with_opcode(u64::from(SendOpcode::FastRegister.code()))
            .with_page_list_levels(u64::from(self.page_list_levels))
            .with_page_size(self.page_size.code())
            .with_access_rights(u64::from(self.access_rights))
            .with_virtual_address_based(self.virtual_address_based)
            .with_valid(polarity);
        let flag_bits = flags.0 & SendFlags::QUEUE_BITS;
        [self.virtual_address, page.0, length.0, header.0 | flag_bits]
    }
}

/// Remote rights of a window, in the element's encoding. Source: irdma `type.h`,
/// IRDMA_ACCESS_FLAGS_REMOTEREAD_ONLY, IRDMA_ACCESS_FLAGS_REMOTEWRITE_ONLY.
const WINDOW_READ: u64 = 4;
const WINDOW_WRITE: u64 = 8;

impl WorkRequest for BindWindow {
    fn shape(&self) -> Result<Shape, RequestError> {
        Ok(ONE_QUANTUM)
    }

    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        SendOpcode::BindWindow
    }

    fn encode(&self, flags: SendFlags, polarity: bool, _: impl FnMut(usize, Quantum)) -> Quantum {
        let tags = BindTags::ZERO
            .with_window(u64::from(self.window_key))
            .with_region(u64::from(self.region_key));
        let read = if self.remote_read { WINDOW_READ } else { 0 };
        let write = if self.remote_write { WINDOW_WRITE } else { 0 };
        let header = BindHeader::ZERO
            .with_opcode(u64::from(SendOpcode::BindWindow.code()))
            .with_access_rights(read | write)
            .with_virtual_address_based(self.virtual_address_based)
            .with_window_type_1(self.window_type_1)
            .with_valid(polarity);
        let flag_bits = flags.0 & SendFlags::QUEUE_BITS;
        [
            self.address,
            tags.0,
            self.length_bytes,
            header.0 | flag_bits,
        ]
    }
}

#[cfg(test)]
mod tests;
