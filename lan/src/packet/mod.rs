//! Packets: owned handles to buffers of a pool.

mod offload;

pub(crate) use offload::COMMAND_SHIFT;
pub use offload::{Layer4, OffloadError, TransmitRequest};

use crate::pool::{Link, NO_BUFFER, Shared};
use crate::raw::PoolReference;

/// Most segments of a packet.
const SEGMENTS_MAX: u8 = 255;

ringside_spec::words! {
    /// Properties of a received packet, and those that [`Packet::offload`] asks for.
    pub struct Flags: u32 {
        /// several handles lead to this packet: its bytes are read-only
        shared: [0],
        /// the device looked at the checksums: the next two say what it found
        checksums_checked: [1],
        /// the IPv4 header's checksum is wrong
        ip_checksum_wrong: [2],
        /// the TCP, UDP or SCTP checksum is wrong
        layer_4_checksum_wrong: [3],
        /// [`Packet::hash`] is valid
        hash_valid: [4],
        /// [`Packet::vlan`] holds a tag that was removed, or is to be inserted
        vlan: [5],
        /// the same for [`Packet::outer_vlan`]
        outer_vlan: [6],
        /// [`Packet::mark`] is valid
        mark_valid: [7],
        /// [`Packet::time_stamp`] is valid
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

/// An owned packet. Dropping it gives its buffers back to the pool.
///
/// One cache line: what the device said of the packet, and where its first segment lies, are in the
/// handle itself.
pub struct Packet {
    pool: PoolReference,
    /// buffer of the first segment
    pub(crate) buffer: u32,
    /// buffer of the second
    pub(crate) next: u32,
    pub(crate) offset: u16,
    pub(crate) length: u16,
    /// bytes of all segments
    pub(crate) total: u32,
    pub(crate) flags: Flags,
    /// bits of the transmit descriptor's command, see [`TransmitRequest`]
    pub(crate) command: u32,
    pub(crate) hash: u32,
    pub(crate) mark: u32,
    pub(crate) time_stamp: u32,
    pub(crate) packet_type: u16,
    pub(crate) vlan: u16,
    pub(crate) outer_vlan: u16,
    /// bytes of a segment, where the device is to cut
    pub(crate) segment_bytes: u16,
    pub(crate) header_bytes: u16,
    pub(crate) segments: u8,
}

const _: () = assert!(size_of::<Packet>() <= 64);

impl Packet {
    /// A packet without bytes in `buffer`, which the caller has taken from the pool.
    #[inline(always)]
    pub(crate) fn empty(pool: PoolReference, buffer: u32, shared: &Shared) -> Self {
        Self {
            pool,
            buffer,
            next: NO_BUFFER,
            offset: shared.settings().headroom_bytes,
            length: 0,
            total: 0,
            flags: Flags::ZERO,
            command: 0,
            hash: 0,
            mark: 0,
            time_stamp: 0,
            packet_type: 0,
            vlan: 0,
            outer_vlan: 0,
            segment_bytes: 0,
            header_bytes: 0,
            segments: 1,
        }
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
        self.total as usize
    }

    /// True without bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many segments it has.
    #[must_use]
    pub const fn segment_count(&self) -> usize {
        self.segments as usize
    }

    /// What is known of it.
    #[must_use]
    pub const fn flags(&self) -> Flags {
        self.flags
    }

    /// Kind of the packet; see [`ringside_spec::lan::receive::packet_type`].
    #[must_use]
    pub const fn packet_type(&self) -> u16 {
        self.packet_type
    }

    /// The hash that chose the queue.
    #[must_use]
    pub fn hash(&self) -> Option<u32> {
        self.flags.hash_valid().then_some(self.hash)
    }

    /// The number that a flow rule gave it.
    #[must_use]
    pub fn mark(&self) -> Option<u32> {
        self.flags.mark_valid().then_some(self.mark)
    }

    /// The tag that was removed on receipt or is to be inserted: the inner one if there are two.
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        self.flags.vlan().then_some(self.vlan)
    }

    /// The same for the outer of two tags.
    #[must_use]
    pub fn outer_vlan(&self) -> Option<u16> {
        self.flags.outer_vlan().then_some(self.outer_vlan)
    }

    /// Low 32 bits of the nanosecond in which it arrived.
    #[must_use]
    pub fn time_stamp(&self) -> Option<u32> {
        self.flags.time_stamp_valid().then_some(self.time_stamp)
    }

    /// All segments, first to last.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let first = Segment {
            buffer: self.buffer,
            offset: self.offset,
            length: self.length,
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
        std::iter::once(first).chain(rest.take(usize::from(SEGMENTS_MAX)))
    }

    /// Copies bytes from `offset` on out; false, and nothing copied, if the packet is shorter.
    ///
    /// Never makes a slice of the device's memory: for those who do not trust the device to leave
    /// a packet alone that it has delivered.
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
        let used = u32::from(self.offset) + u32::from(self.length);
        (self.pool().stride() - used) as usize
    }

    /// Whether this is the only handle to its buffers.
    #[inline]
    #[must_use]
    pub fn is_sole(&self) -> bool {
        !self.flags.shared() || self.pool().is_sole(self.buffer)
    }

    /// Appends bytes; `None`, and nothing done, if the packet is shared, has several segments, or has
    /// no room for them.
    pub fn append(&mut self, bytes: &[u8]) -> Option<()> {
        self.extend(bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    /// Appends `count` bytes and lends them; what they hold until they are written is arbitrary.
    /// `None`, and nothing done, if the packet is shared, has several segments, or has no room.
    pub fn extend(&mut self, count: usize) -> Option<&mut [u8]> {
        let room = self.next == NO_BUFFER && count <= self.tailroom();
        if !room || !self.is_sole() {
            return None;
        }
        let before = usize::from(self.length);
        self.length += count as u16;
        self.total += count as u32;
        self.bytes_mut()?.get_mut(before..)
    }

    /// Puts bytes in front; `None`, and nothing done, if the packet is shared or has no headroom for
    /// them.
    pub fn prepend(&mut self, bytes: &[u8]) -> Option<()> {
        if bytes.len() > self.headroom() || !self.is_sole() {
            return None;
        }
        let count = bytes.len() as u16;
        self.length = self.length.checked_add(count)?;
        self.offset -= count;
        self.total += u32::from(count);
        self.bytes_mut()?
            .get_mut(..bytes.len())?
            .copy_from_slice(bytes);
        Some(())
    }

    /// Removes bytes in front; `None`, and nothing done, if the packet is shared or its first segment
    /// is shorter.
    pub fn remove_front(&mut self, count: usize) -> Option<()> {
        if count > usize::from(self.length) || !self.is_sole() {
            return None;
        }
        self.offset += count as u16;
        self.length -= count as u16;
        self.total -= count as u32;
        Some(())
    }

    /// Shortens a packet of one segment to `length` bytes; `None`, and nothing done, if it is
    /// shared, shorter, or has several segments.
    pub fn truncate(&mut self, length: usize) -> Option<()> {
        let fits = self.next == NO_BUFFER && length <= usize::from(self.length);
        if !fits || !self.is_sole() {
            return None;
        }
        self.length = length as u16;
        self.total = length as u32;
        Some(())
    }

    /// Appends the segments of `other`. Gives it back if either is shared, they are of different
    /// pools, or there would be too many segments.
    pub fn chain(&mut self, other: Self) -> Result<(), Self> {
        let segments = self.segments.checked_add(other.segments);
        let possible = self.is_sole() && other.is_sole() && self.pool == other.pool;
        let Some(segments) = segments.filter(|_| possible) else {
            return Err(other);
        };
        let link = Link {
            next: other.next,
            offset: other.offset,
            length: other.length,
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
        self.segments = segments;
        self.total += other.total;
        std::mem::forget(other);
        Ok(())
    }

    /// Another handle to the same bytes, which are read-only until one handle is left. No copy.
    #[must_use]
    pub fn share(&mut self) -> Self {
        self.pool().add_share(self.buffer);
        self.flags = self.flags.with_shared(true);
        // Same fields, and a count that says so: each handle's drop takes one away.
        Self { ..*self }
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        let pool = self.pool.shared();
        if !self.flags.shared() || pool.drop_share(self.buffer) {
            pool.give_chain(self.buffer, self.next);
        }
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packet")
            .field("length", &self.total)
            .field("segments", &self.segments)
            .field("packet_type", &self.packet_type)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
