//! Packets: owned handles to buffers of a pool.

mod bytes;
mod offload;

pub(crate) use offload::{COMMAND_SHIFT, MAX_PAYLOAD};
pub use offload::{Layer4, OffloadError, TransmitRequest};

use crate::raw::PoolReference;
use crate::shared::{Link, NO_BUFFER, Shared};
use ringside_spec::lan::receive::{
    NicDescriptor, WriteBack0, WriteBack1, WriteBack2, WriteBack3, cast,
};

/// Most segments of a packet.
const MAX_SEGMENTS: u8 = 255;

ringside_spec::words! {
    /// Properties of a received packet, and requests of [`Packet::offload`].
    pub struct Flags: u32 {
        /// several handles lead to this packet: its bytes are read-only
        shared: [0],
        /// The device checked the checksums: the next two are the results. It checks those that the
        /// packet has: of a fragment, ICMP and other protocols ([`Packet::packet_type`] names
        /// them) only that of the IPv4 header. Not set for IPv6 with a routing header or
        /// destination options, whose checksum may cover another address.
        checksums_checked: [1],
        /// the checksum of the IPv4 header, or in a tunnel that of the outer one, is wrong
        ip_checksum_wrong: [2],
        /// the TCP, UDP or SCTP checksum, or in a tunnel that of the outer UDP header, is wrong
        layer_4_checksum_wrong: [3],
        /// [`Packet::hash`] is valid
        hash_valid: [4],
        /// [`Packet::vlan`] holds a tag that was removed, or is to be inserted
        vlan: [5],
        /// the same for [`Packet::outer_vlan`]
        outer_vlan: [6],
        /// [`Packet::mark`] is valid
        mark_valid: [7],
        /// the device stamped it: see [`Packet::timestamp`]
        time_stamp_valid: [8],
        /// to a group of stations
        multicast: [9],
        /// to all stations
        broadcast: [10],
        /// sent by this device itself
        loopback: [11],
        /// the device reports a receive error
        receive_error: [12],
        /// the packet is cut into segments by the device
        segmentation: [13],
    }
}

/// One contiguous part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub(crate) buffer: u32,
    pub(crate) offset: u16,
    pub(crate) length: u16,
}

impl Segment {
    /// Its bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length as usize
    }
}

/// An owned packet. Dropping it returns its buffers to the pool.
///
/// One cache line: the place of the first segment and the requests of a send, then the descriptor
/// with which the device delivered the packet. Its fields are decoded when they are read.
#[repr(C)]
pub struct Packet {
    pool: PoolReference,
    /// buffer of the second segment
    pub(crate) next: u32,
    /// properties that are not the descriptor's: handles, tags and segmentation
    pub(crate) own: Flags,
    /// bits of the transmit descriptor's command, see [`TransmitRequest`]
    pub(crate) command: u32,
    /// bytes of the segments beyond the first
    pub(crate) rest: u32,
    /// buffer of the first segment
    pub(crate) buffer: u32,
    /// first byte in that buffer, headroom included
    pub(crate) offset: u16,
    /// segments beyond the first
    pub(crate) more: u16,
    /// The descriptor that the device wrote, or zero. `packet_length` is that of the first segment;
    /// `own` shows which tags are valid; of a send, `header_length` and `l2tag2_first` hold the
    /// bytes of the headers and of a segment.
    pub(crate) written: NicDescriptor,
}

// The vector paths write and read packets as these 64 bytes. The place of the first segment is
// beside its length, so that one load of 16 bytes has both.
const _: () = assert!(size_of::<Packet>() == 64 && align_of::<Packet>() == 8);
const _: () = assert!(std::mem::offset_of!(Packet, buffer) == 24);
const _: () = assert!(std::mem::offset_of!(Packet, offset) == 28);
const _: () = assert!(std::mem::offset_of!(Packet, written) == 32);

/// The four words of a descriptor.
pub(crate) type Written = [u64; 4];

impl Packet {
    /// A packet without bytes in `buffer`, which the caller has taken from the pool.
    #[inline(always)]
    pub(crate) fn empty(pool: PoolReference, buffer: u32, headroom: u16) -> Self {
        Self::delivered(pool, buffer, headroom, [0; 4])
    }

    /// A packet in `buffer` with the values of the device's descriptor.
    #[inline(always)]
    pub(crate) fn delivered(
        pool: PoolReference,
        buffer: u32,
        headroom: u16,
        written: Written,
    ) -> Self {
        Self {
            pool,
            next: NO_BUFFER,
            own: Flags::ZERO,
            command: 0,
            rest: 0,
            buffer,
            offset: headroom,
            more: 0,
            written: zerocopy::transmute!(written.map(u64::to_le)),
        }
    }

    /// Takes a descriptor over, but for the bytes of the first segment.
    pub(crate) fn describe(&mut self, written: Written, first_bytes: u16) {
        self.written = zerocopy::transmute!(written.map(u64::to_le));
        self.set_first_bytes(first_bytes);
    }

    /// The descriptor's words.
    #[inline(always)]
    fn words(&self) -> Written {
        let words: Written = zerocopy::transmute!(self.written);
        words.map(u64::from_le)
    }

    /// Bytes of the first segment.
    #[inline(always)]
    pub(crate) const fn first_bytes(&self) -> u16 {
        self.written.packet_length.get()
    }

    pub(crate) fn set_first_bytes(&mut self, bytes: u16) {
        self.written.packet_length.set(bytes);
    }

    /// Bytes of all segments.
    #[inline(always)]
    pub(crate) const fn total(&self) -> u32 {
        self.first_bytes() as u32 + self.rest
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &Shared {
        self.pool.shared()
    }

    #[inline(always)]
    pub(crate) const fn pool_reference(&self) -> PoolReference {
        self.pool
    }

    /// Bytes of all segments.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> usize {
        self.total() as usize
    }

    /// True without bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// The number of its segments.
    #[must_use]
    pub const fn segment_count(&self) -> usize {
        self.more as usize + 1
    }

    /// The known properties of the packet.
    #[must_use]
    pub fn flags(&self) -> Flags {
        let [first, status, tags, flow] = self.words();
        let (first, status, tags) = (WriteBack0(first), WriteBack1(status), WriteBack2(tags));
        // As Linux does: behind extension headers with addresses there is no verdict.
        let checked = status.checksums_checked() && !status.ipv6_extension();
        let ip_wrong = status.ip_checksum_error() || status.outer_ip_checksum_error();
        let outer_udp_wrong = tags.tunnel() && status.outer_udp_checksum_error();
        let layer_4_wrong = status.layer_4_checksum_error() || outer_udp_wrong;
        let mark = WriteBack3(flow).flow_id() as u32;
        self.own
            .with_checksums_checked(checked)
            .with_ip_checksum_wrong(checked && ip_wrong)
            .with_layer_4_checksum_wrong(checked && layer_4_wrong)
            .with_hash_valid(status.hash_valid())
            .with_mark_valid(mark != u32::MAX && mark != 0)
            .with_time_stamp_valid(tags.time_stamp_valid())
            .with_multicast(first.cast() == cast::MULTICAST)
            .with_broadcast(first.cast() == cast::BROADCAST)
            .with_loopback(status.loopback())
            .with_receive_error(status.receive_error())
    }

    /// Kind of the packet; see [`ringside_spec::lan::receive::packet_type`].
    #[must_use]
    pub fn packet_type(&self) -> u16 {
        let [first, ..] = self.words();
        WriteBack0(first).packet_type() as u16
    }

    /// The hash that chose the queue.
    #[must_use]
    pub fn hash(&self) -> Option<u32> {
        let [_, status, ..] = self.words();
        let status = WriteBack1(status);
        status.hash_valid().then_some(status.hash() as u32)
    }

    /// The number that a flow rule gave it.
    #[must_use]
    pub fn mark(&self) -> Option<u32> {
        let mark = self.written.flow_id.get();
        self.flags().mark_valid().then_some(mark)
    }

    /// The tag that was removed on receipt or is to be inserted: the inner one if there are two.
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        let tag = self.written.l2tag1.get();
        self.own.vlan().then_some(tag)
    }

    /// The same for the outer of two tags.
    #[must_use]
    pub fn outer_vlan(&self) -> Option<u16> {
        let tag = self.written.l2tag2_second.get();
        self.own.outer_vlan().then_some(tag)
    }

    /// The time at which it arrived, in nanoseconds of the device's clock.
    ///
    /// `None` if the device did not stamp it, or if the pool does not know the device's time: the
    /// port was opened without `time_stamps`. The descriptor has the low 32 bits. The rest is that
    /// of the device's time as the port has read it last, which must not be longer ago or later
    /// than 2.1 s.
    #[inline]
    #[must_use]
    pub fn timestamp(&self) -> Option<u64> {
        let [_, _, tags, flow] = self.words();
        if !WriteBack2(tags).time_stamp_valid() {
            return None;
        }
        let reference = self.pool().device_time()?;
        Some(extend(WriteBack3(flow).time_stamp() as u32, reference))
    }

    /// All segments, first to last.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let first = Segment {
            buffer: self.buffer,
            offset: self.offset,
            length: self.first_bytes(),
        };
        let mut next = self.next;
        let rest = std::iter::from_fn(move || {
            if next == NO_BUFFER {
                return None;
            }
            let Link {
                next: after,
                offset,
                length,
            } = self.pool().link(next);
            let buffer = std::mem::replace(&mut next, after);
            Some(Segment {
                buffer,
                offset,
                length,
            })
        });
        std::iter::once(first).chain(rest.take(usize::from(MAX_SEGMENTS)))
    }

    /// Copies bytes from `offset` on out; false, and nothing copied, if the packet is shorter.
    ///
    /// Never makes a slice of the device's memory. Use it if the device might change a delivered
    /// packet.
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        let fits = offset
            .checked_add(into.len())
            .is_some_and(|end| end <= self.length());
        if !fits {
            return false;
        }
        let (mut skip, mut rest) = (offset, into);
        for segment in self.segments() {
            if skip >= segment.length() {
                skip -= segment.length();
                continue;
            }
            let count = (segment.length() - skip).min(rest.len());
            let (piece, after) = rest.split_at_mut(count);
            let at = self.pool().place(segment.buffer) + usize::from(segment.offset) + skip;
            if !self.pool().copy_out(at, piece) {
                return false;
            }
            (skip, rest) = (0, after);
            if rest.is_empty() {
                break;
            }
        }
        rest.is_empty()
    }

    /// All bytes in a vector of their own: for tests and slow paths.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length()];
        let whole = self.read(0, &mut bytes);
        debug_assert!(whole, "the length is that of all segments");
        bytes
    }

    /// Room in front of the first segment, bytes.
    #[must_use]
    pub const fn headroom(&self) -> usize {
        self.offset as usize
    }

    /// Room behind the bytes of a packet of one segment, bytes.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        let used = u32::from(self.offset) + u32::from(self.first_bytes());
        (self.pool().stride() - used) as usize
    }

    /// True if this is the only handle to its buffers.
    #[inline]
    #[must_use]
    pub fn is_sole(&self) -> bool {
        !self.own.shared() || self.pool().is_sole(self.buffer)
    }

    /// Appends bytes; `None`, and nothing done, if the packet is shared, has several segments, or
    /// has no room for them.
    pub fn append(&mut self, bytes: &[u8]) -> Option<()> {
        self.extend(bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    /// Appends `count` bytes and lends them; their content is arbitrary until they are written.
    /// `None`, and nothing done, if the packet is shared, has several segments, or has no room.
    pub fn extend(&mut self, count: usize) -> Option<&mut [u8]> {
        let room = self.next == NO_BUFFER && count <= self.tailroom();
        if !room || !self.is_sole() {
            return None;
        }
        let before = self.first_bytes();
        self.set_first_bytes(before + count as u16);
        self.bytes_mut()?.get_mut(before.into()..)
    }

    /// Puts bytes in front; `None`, and nothing done, if the packet is shared or has no headroom
    /// for them.
    pub fn prepend(&mut self, bytes: &[u8]) -> Option<()> {
        if bytes.len() > self.headroom() || !self.is_sole() {
            return None;
        }
        let count = bytes.len() as u16;
        let length = self.first_bytes().checked_add(count)?;
        self.set_first_bytes(length);
        self.offset -= count;
        self.bytes_mut()?
            .get_mut(..bytes.len())?
            .copy_from_slice(bytes);
        Some(())
    }

    /// Removes bytes in front; `None`, and nothing done, if the packet is shared or its first
    /// segment is shorter.
    pub fn remove_front(&mut self, count: usize) -> Option<()> {
        let length = self.first_bytes();
        if count > usize::from(length) || !self.is_sole() {
            return None;
        }
        self.offset += count as u16;
        self.set_first_bytes(length - count as u16);
        Some(())
    }

    /// Shortens a packet of one segment to `length` bytes; `None`, and nothing done, if it is
    /// shared, shorter, or has several segments.
    pub fn truncate(&mut self, length: usize) -> Option<()> {
        let fits = self.next == NO_BUFFER && length <= usize::from(self.first_bytes());
        if !fits || !self.is_sole() {
            return None;
        }
        self.set_first_bytes(length as u16);
        Some(())
    }

    /// Appends the segments of `other`. Gives it back if either is shared, they are of different
    /// pools, or there would be too many segments.
    pub fn chain(&mut self, other: Self) -> Result<(), Self> {
        let more = self.more + other.more + 1;
        let possible = self.is_sole() && other.is_sole() && self.pool == other.pool;
        if !possible || more >= MAX_SEGMENTS.into() {
            return Err(other);
        }
        let link = Link {
            next: other.next,
            offset: other.offset,
            length: other.first_bytes(),
        };
        self.pool().set_link(other.buffer, link);
        match self.segments().last().filter(|_| self.next != NO_BUFFER) {
            Some(last) => {
                let end = Link {
                    next: other.buffer,
                    offset: last.offset,
                    length: last.length,
                };
                self.pool().set_link(last.buffer, end);
            }
            None => self.next = other.buffer,
        }
        self.more = more;
        self.rest += other.total();
        std::mem::forget(other);
        Ok(())
    }

    /// Another handle to the same bytes, which are read-only until one handle is left. No copy.
    #[must_use]
    pub fn share(&mut self) -> Self {
        self.pool().add_share(self.buffer);
        self.own = self.own.with_shared(true);
        // The same fields, and a count of the handles: each drop decrements it.
        Self { ..*self }
    }
}

/// The moment with these low 32 bits that is nearest to `reference`; all in nanoseconds.
#[inline]
const fn extend(low: u32, reference: u64) -> u64 {
    // Sign-extended: a packet is older or younger than the reference.
    let distance = low.wrapping_sub(reference as u32) as i32;
    reference.wrapping_add_signed(distance as i64)
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        let pool = self.pool.shared();
        // One buffer, one handle: nearly always.
        if self.next == NO_BUFFER && !self.own.shared() {
            return pool.give_one(self.buffer);
        }
        if !self.own.shared() || pool.drop_share(self.buffer) {
            pool.give_chain(self.buffer, self.next);
        }
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packet")
            .field("length", &self.total())
            .field("segments", &self.segment_count())
            .field("packet_type", &self.packet_type())
            .field("flags", &self.flags())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
