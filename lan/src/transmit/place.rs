//! Descriptors of single packets: those that the paths of the module `vector` do not take, too.

use super::limits::{MAX_PLAIN_BYTES, Refused, check, has_headers};
use super::{REPORT_EVERY, SHARED, TransmitQueue, WORDS};
use crate::packet::{COMMAND_SHIFT, Packet};
use crate::shared::{Link, NO_BUFFER};
use ringside_spec::lan::transmit::{ContextCommand, DataCommand, FRAME_BYTES_MIN, kind};
use std::sync::atomic::Ordering;

impl TransmitQueue {
    /// Writes the descriptors of one packet, and marks its handle as empty.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        packet: &mut Packet,
        end: &mut Option<(u16, DataCommand)>,
    ) -> Result<(), Refused> {
        if packet.pool_reference() != self.pool.reference() {
            self.copy(packet)?;
        }
        let flags = packet.own;
        let plain = packet.next == NO_BUFFER
            && !flags.shared()
            && !flags.segmentation()
            && !flags.outer_vlan()
            && has_headers(packet);
        let length = packet.total();
        let shortest = FRAME_BYTES_MIN as u32;
        let fits = length.wrapping_sub(shortest) <= MAX_PLAIN_BYTES - shortest;
        if !plain || !fits {
            return self.place_other(packet, end);
        }
        let mut command = DataCommand(u64::from(packet.command) << COMMAND_SHIFT)
            .with_end_of_packet(true)
            .with_buffer_bytes(length.into());
        if flags.vlan() {
            command = command
                .with_insert_l2tag1(true)
                .with_l2tag1(packet.written.l2tag1.get().into());
        }
        let address = self.pool.shared().iova(packet.buffer) + u64::from(packet.offset);
        let index = self.write(address, command, packet.buffer);
        self.finish(packet, index, command, end);
        Ok(())
    }

    /// Puts one descriptor into the ring; returns its index.
    #[inline(always)]
    fn write(&mut self, low: u64, command: DataCommand, slot: u32) -> u16 {
        let index = self.next;
        let at = usize::from(index) * WORDS;
        let words = &self.ring.words().as_slice()[at..at + WORDS];
        words[0].store(low.to_le(), Ordering::Relaxed);
        words[1].store(command.0.to_le(), Ordering::Relaxed);
        self.slots[usize::from(index)] = slot;
        self.special += u16::from(slot >= SHARED);
        self.next = self.ring.after(index);
        self.free -= 1;
        self.since_report += 1;
        index
    }

    /// The last descriptor of a packet has been written.
    #[inline(always)]
    fn finish(
        &mut self,
        packet: &mut Packet,
        index: u16,
        command: DataCommand,
        end: &mut Option<(u16, DataCommand)>,
    ) {
        self.counters.packets += 1;
        self.counters.bytes += u64::from(packet.total());
        packet.buffer = NO_BUFFER;
        self.end_of_packet(index, command, end);
    }

    /// Ends a packet at descriptor `index`: requests a report if one is due.
    #[inline(always)]
    pub(super) fn end_of_packet(
        &mut self,
        index: u16,
        command: DataCommand,
        end: &mut Option<(u16, DataCommand)>,
    ) {
        if self.since_report >= REPORT_EVERY {
            let word = command.with_report_status(true);
            self.ring
                .words()
                .store(usize::from(index) * WORDS + 1, word.0);
            self.push_report(index);
            *end = None;
        } else {
            *end = Some((index, command));
        }
    }

    /// A packet of another pool: its bytes are copied into this queue's. Without room in the ring
    /// the packet stays as it is.
    #[cold]
    fn copy(&mut self, packet: &mut Packet) -> Result<(), Refused> {
        let piece_bytes = usize::from(self.pool.settings().buffer_bytes);
        let pieces = |bytes: usize| bytes.div_ceil(piece_bytes).max(1);
        let count: usize = packet.segments().map(|one| pieces(one.length())).sum();
        self.find_room(count)?;
        let mut copy: Option<Packet> = None;
        for segment in packet.segments() {
            let piece = self.pool.packet_with(packet.segment_bytes(segment));
            let piece = piece.ok_or(Refused::NoBuffers)?;
            match &mut copy {
                None => copy = Some(piece),
                Some(whole) => whole.chain(piece).map_err(|_| Refused::TooManySegments)?,
            }
        }
        let mut copy = copy.ok_or(Refused::TooShort)?;
        let first_bytes = copy.first_bytes();
        copy.own = packet.own.with_shared(false);
        copy.command = packet.command;
        copy.written = packet.written;
        copy.set_first_bytes(first_bytes);
        *packet = copy;
        self.counters.copied += 1;
        Ok(())
    }

    /// Looks for descriptors for a packet of this many segments, offloads included.
    #[cold]
    pub(super) fn find_room(&self, segments: usize) -> Result<(), Refused> {
        let needed = segments + 1;
        if needed <= usize::from(self.free) {
            Ok(())
        } else if needed < usize::from(self.ring.length) {
            Err(Refused::RingFull)
        } else {
            // More than the ring ever has: the packet would stay at the front of each burst.
            Err(Refused::TooManySegments)
        }
    }

    /// Packets of several buffers or with several handles, with a context descriptor, or that
    /// cannot be sent.
    #[cold]
    fn place_other(
        &mut self,
        packet: &mut Packet,
        end: &mut Option<(u16, DataCommand)>,
    ) -> Result<(), Refused> {
        check(packet)?;
        let flags = packet.own;
        if flags.outer_vlan() && !flags.vlan() && !self.outer_tag_alone {
            return Err(Refused::OuterTagAlone);
        }
        if flags.segmentation() || flags.outer_vlan() {
            let mut context = ContextCommand::ZERO.with_kind(kind::CONTEXT);
            if flags.segmentation() {
                let payload = packet.total() - u32::from(packet.header_bytes());
                context = context
                    .with_segmentation(true)
                    .with_payload_bytes(payload.into())
                    .with_segment_bytes(packet.cut_bytes().into());
            }
            let low = if flags.outer_vlan() {
                context = context.with_insert_l2tag2(true);
                u64::from(packet.written.l2tag2_second.get()) << 32
            } else {
                0
            };
            self.write(low, DataCommand(context.0), NO_BUFFER);
        }
        let mut base = DataCommand(u64::from(packet.command) << COMMAND_SHIFT);
        if flags.vlan() {
            base = base
                .with_insert_l2tag1(true)
                .with_l2tag1(packet.written.l2tag1.get().into());
        }
        let count = packet.segment_count();
        let mut last = None;
        let mut next = packet.next;
        let (mut buffer, mut offset, mut length) =
            (packet.buffer, packet.offset, packet.first_bytes());
        for number in 1..=count {
            let command = base
                .with_buffer_bytes(length.into())
                .with_end_of_packet(number == count);
            let slot = match (flags.shared(), number == count) {
                (false, _) => buffer,
                (true, true) => SHARED | packet.buffer,
                (true, false) => NO_BUFFER,
            };
            let address = self.pool.shared().iova(buffer) + u64::from(offset);
            last = Some((self.write(address, command, slot), command));
            let link = self.pool.shared().link(next);
            (buffer, offset, length) = (next, link.offset, link.length);
            next = link.next;
        }
        if flags.shared() {
            // The last handle to go finds the chain by its first buffer.
            let link = Link {
                next: packet.next,
                offset: packet.offset,
                length: packet.first_bytes(),
            };
            self.pool.shared().set_link(packet.buffer, link);
        }
        if let Some((index, command)) = last {
            self.finish(packet, index, command, end);
        }
        Ok(())
    }
}
