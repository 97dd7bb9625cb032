//! Receive queues: from a frame to buffers and descriptors.

pub(super) use self::arrival::{Arrival, NotTaken};
use self::header::Header;
use self::held::Held;
use self::written::{DESCRIPTOR_WORDS, SHORT_WORDS, cast_of, write_back};
use super::frame::{CHECK_BYTES, Headers};
use super::headers::TAG_BYTES;
use super::ring::{Descriptor, Ring};
use crate::chip::Context;
use ringside_bus::{DmaSpace, Iova};
use ringside_spec::lan::admin::link::MAX_FRAME_BYTES;
use ringside_spec::lan::receive::{
    FilterStatus, FlexDescriptor, HeaderLength, MAX_BUFFERS_PER_PACKET, MAX_RING, Mirror,
    PacketLength, PacketType, RING_MIN, RING_MULTIPLE, ReceiveContext, Status0, Status1,
    TAIL_MULTIPLE, profile, split,
};
use ringside_spec::lan::registers::queues::DescriptorProfile;

mod arrival;
mod header;
mod held;
mod legacy;
mod written;

/// Flow id of frames to which no filter gave one.
const NO_FLOW: u32 = u32::MAX;

/// Bit 0 of the low byte of a time stamp.
const STAMP_VALID: u8 = 1;

/// Buffers that a frame is put into at most.
const MAX_BUFFERS: usize = MAX_BUFFERS_PER_PACKET as usize;

/// A receive queue that is enabled.
pub(super) struct ReceiveQueue {
    pub(super) context: ReceiveContext,
    profile: u8,
    /// frames get the time of their arrival
    stamps: bool,
    ring: Ring<DESCRIPTOR_WORDS>,
    /// The ring, where descriptors are short: `ring` is not used then.
    short: Option<Ring<SHORT_WORDS>>,
    /// Frames of one buffer are put into it without the check sequence, and their descriptors held.
    plain: bool,
    head: u16,
    tail: u16,
    /// Descriptors before `head` that are not written back yet.
    held: Held,
    /// Parts of a frame, put together.
    whole: Vec<u8>,
}

impl ReceiveQueue {
    /// A queue as its registers describe it; a breach if that makes no sense.
    pub(super) fn new(
        number: u32,
        queue: ReceiveContext,
        layout: DescriptorProfile,
        tail: u32,
        context: &mut Context<'_>,
    ) -> Self {
        let length = queue.ring_length;
        let buffer = usize::from(queue.data_buffer_in_128_bytes) * 128;
        let fits = (RING_MIN..=MAX_RING).contains(&length) && length.is_multiple_of(RING_MULTIPLE);
        let longest = buffer * usize::from(MAX_BUFFERS_PER_PACKET);
        // The queue of a control VSI has no buffers: no frame comes that way.
        let no_frames = buffer == 0 && queue.frame_bytes_max == 0;
        let possible = fits
            && (buffer > 0 || no_frames)
            && usize::from(queue.frame_bytes_max) <= longest.min(MAX_FRAME_BYTES.into())
            && queue.head < length;
        if !possible {
            context
                .ledger
                .breach("context of a receive queue that is not possible", || {
                    format!("queue {number}: {queue:?}")
                });
        }
        let head = if queue.head < length { queue.head } else { 0 };
        let base = Iova(queue.base_in_128_bytes << 7);
        let is_short = !queue.descriptors_of_32_bytes;
        let mut new = Self {
            head,
            tail: head,
            ring: Ring::new(base, length),
            short: is_short.then(|| Ring::new(base, length)),
            plain: queue.strip_crc && !is_short && queue.split == split::NONE,
            held: Held::default(),
            whole: Vec::new(),
            context: queue,
            profile: layout.profile() as u8,
            stamps: layout.time_stamp(),
        };
        new.set_tail(tail, context);
        new
    }

    /// The tail register was written.
    pub(super) fn set_tail(&mut self, tail: u32, context: &mut Context<'_>) {
        let length = u32::from(self.context.ring_length);
        if tail >= length {
            context.ledger.breach("receive tail beyond the ring", || {
                format!("{tail} of {length}")
            });
            return;
        }
        let tail = tail as u16;
        self.tail = tail - tail % TAIL_MULTIPLE;
    }

    fn free(&self) -> u16 {
        if self.tail >= self.head {
            return self.tail - self.head;
        }
        self.tail + self.context.ring_length - self.head
    }

    /// Puts a frame into as many buffers as it takes.
    ///
    /// Errors: [`NotTaken`]; the frame is lost, and no descriptor used.
    pub(super) fn deliver(
        &mut self,
        arrival: &Arrival<'_>,
        memory: &DmaSpace,
    ) -> Result<(), NotTaken> {
        // The limit counts the frame as it was on the wire. Source: Linux and DPDK, which give
        // queues limits with room for tags and frame check sequence (`ICE_ETH_PKT_HDR_PAD`).
        if arrival.frame.len() + CHECK_BYTES > usize::from(self.context.frame_bytes_max) {
            return Err(NotTaken::TooLong);
        }
        let (frame, tag) = arrival.untagged();
        let plain = frame.1.is_empty() && self.takes_plainly(frame.0.len());
        if plain && self.deliver_plainly(arrival, tag, frame.0, memory) {
            return Ok(());
        }
        let check_sequence;
        let mut parts: [&[u8]; 3] = [frame.0, frame.1, &[]];
        if !self.context.strip_crc {
            let mut crc = crc32fast::Hasher::new();
            crc.update(arrival.frame);
            check_sequence = crc.finalize().to_le_bytes();
            parts = [frame.0, frame.1, &check_sequence];
        }
        let header = self.header_of(arrival, !frame.1.is_empty());
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let bytes = bytes - header.bytes;
        let buffer = usize::from(self.context.data_buffer_in_128_bytes) * 128;
        let count = bytes.div_ceil(buffer.max(1)).max(1);
        if count > usize::from(MAX_BUFFERS_PER_PACKET) || buffer == 0 {
            return Err(NotTaken::TooLong);
        }
        if count > usize::from(self.free()) {
            return Err(NotTaken::NoDescriptors);
        }
        self.write_back_held();
        self.resolve(memory);
        self.whole.clear();
        for part in parts {
            self.whole.extend_from_slice(part);
        }
        self.head = match &self.short {
            Some(ring) => self.scatter(ring, arrival, (tag, header), buffer, memory)?,
            None => self.scatter(&self.ring, arrival, (tag, header), buffer, memory)?,
        };
        Ok(())
    }

    /// The part of a frame that goes to the header buffer, with its tag or without.
    fn header_of(&self, arrival: &Arrival<'_>, without_tag: bool) -> Header {
        let context = &self.context;
        if context.split == split::NONE {
            return Header::default();
        }
        let length = arrival.frame.len();
        let parsed = &arrival.headers.parsed;
        let wanted = match parsed.header_bytes(arrival.frame, context.header_split_0) {
            0 if context.split == split::ALWAYS => length,
            bytes => bytes,
        };
        let wanted = match without_tag {
            true => wanted.saturating_sub(TAG_BYTES),
            false => wanted,
        };
        let room = usize::from(context.header_buffer_in_64_bytes) * 64;
        Header {
            bytes: wanted.min(room),
            overflows: wanted > room && context.split == split::HEADER,
        }
    }

    /// Finds the memory of the ring, unless nothing has changed since the last time.
    fn resolve(&mut self, memory: &DmaSpace) {
        match &mut self.short {
            Some(ring) => ring.resolve(memory),
            None => self.ring.resolve(memory),
        }
    }

    /// True if so many bytes go into one buffer and nothing is to be added to them.
    #[inline]
    fn takes_plainly(&self, bytes: usize) -> bool {
        self.plain
            && bytes <= usize::from(self.context.data_buffer_in_128_bytes) * 128
            && self.head != self.tail
    }

    /// Puts `bytes` into one buffer; its descriptor is held. False, and nothing has happened, if
    /// ring and buffer do not lie in one mapping each.
    #[inline]
    fn deliver_plainly(
        &mut self,
        arrival: &Arrival<'_>,
        tag: Option<u16>,
        bytes: &[u8],
        memory: &DmaSpace,
    ) -> bool {
        self.ring.resolve(memory);
        let Some(known) = self.ring.known(self.head) else {
            return false;
        };
        let descriptor = Descriptor::Known(known);
        if !memory.write_plainly(Iova(descriptor.load(0)), bytes) {
            return false;
        }
        let written = self.describe(arrival, tag, bytes.len(), true);
        self.hold(written);
        true
    }

    /// Puts the frame in `whole` into the first header buffer and data buffers of this many bytes,
    /// and returns the index of the descriptor after its last one.
    fn scatter<const WORDS: usize>(
        &self,
        ring: &Ring<WORDS>,
        arrival: &Arrival<'_>,
        (tag, header): (Option<u16>, Header),
        buffer: usize,
        memory: &DmaSpace,
    ) -> Result<u16, NotTaken> {
        let (head, rest) = self.whole.split_at(header.bytes);
        // A frame that is all header has an empty data buffer.
        let empty = rest.is_empty().then_some(rest);
        let pieces = || rest.chunks(buffer).chain(empty);
        let mut index = self.head;
        let mut used: [Option<Descriptor<'_, _>>; MAX_BUFFERS] = [const { None }; MAX_BUFFERS];
        for (piece, place) in pieces().zip(&mut used) {
            let descriptor = ring.descriptor(index, memory);
            let descriptor = descriptor.map_err(|_| NotTaken::Fault)?;
            if index == self.head && !head.is_empty() {
                let buffer = Iova(descriptor.load(1));
                memory.write(buffer, head).map_err(|_| NotTaken::Fault)?;
            }
            let buffer = Iova(descriptor.load(0));
            memory.write(buffer, piece).map_err(|_| NotTaken::Fault)?;
            *place = Some(descriptor);
            index = ring.after(index);
        }
        let last = pieces().count().saturating_sub(1);
        let used = used.iter().flatten().zip(pieces());
        for (place, (descriptor, piece)) in used.enumerate() {
            let mut written = self.describe(arrival, tag, piece.len(), place == last);
            let in_first = if place == 0 { header.bytes } else { 0 };
            header.describe(in_first, self.profile, &mut written);
            write_back(written, descriptor);
        }
        Ok(index)
    }

    /// Writes the outcome of a programming descriptor over the next one; false if there is none.
    pub(super) fn report(&mut self, status: FilterStatus, memory: &DmaSpace) -> bool {
        if self.free() == 0 {
            return false;
        }
        self.write_back_held();
        self.resolve(memory);
        let next = match &self.short {
            Some(ring) => report_in(ring, self.head, status, memory),
            None => report_in(&self.ring, self.head, status, memory),
        };
        let Some(next) = next else {
            return false;
        };
        self.head = next;
        true
    }

    /// Uses the descriptor at the head, and keeps `written` for it until
    /// [`ReceiveQueue::write_back_held`].
    #[inline]
    fn hold(&mut self, written: [u64; DESCRIPTOR_WORDS]) {
        self.held.push(self.head, written);
        self.head = self.ring.after(self.head);
        if self.held.is_full() {
            self.write_back_held();
        }
    }

    /// True if descriptors wait.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Writes all that wait to the ring, in order.
    #[inline]
    pub(super) fn write_back_held(&mut self) {
        self.held.write_back(&self.ring);
    }

    /// The words of the descriptor that is written back.
    #[inline]
    fn describe(
        &self,
        arrival: &Arrival<'_>,
        tag: Option<u16>,
        length: usize,
        last: bool,
    ) -> [u64; DESCRIPTOR_WORDS] {
        if self.profile <= profile::LEGACY_32 {
            return self.describe_as_legacy(arrival, tag, length, last);
        }
        let written = self.describe_flexibly(arrival, tag, length, last);
        let words: [u64; DESCRIPTOR_WORDS] = zerocopy::transmute!(written.to_bytes());
        words.map(u64::from_le)
    }

    fn describe_flexibly(
        &self,
        arrival: &Arrival<'_>,
        tag: Option<u16>,
        length: usize,
        last: bool,
    ) -> FlexDescriptor {
        let Headers { parsed, key } = arrival.headers;
        let cast = cast_of(key.destination);
        let in_first = tag.filter(|_| self.context.tag_in_l2tag1);
        let in_second = tag.filter(|_| !self.context.tag_in_l2tag1);
        let status_0 = Status0::ZERO
            .with_done(true)
            .with_end_of_packet(last)
            .with_checksums_checked(last && parsed.checks.looked_at)
            .with_ip_checksum_error(last && parsed.checks.ip_wrong)
            .with_layer_4_checksum_error(last && parsed.checks.layer_4_wrong)
            .with_loopback(last && arrival.sender.is_some())
            .with_ipv6_extension(last && parsed.ipv6_extension)
            .with_crc_present(last && !self.context.strip_crc)
            .with_hash_valid(last && arrival.hash.is_some())
            .with_l2tag1_present(last && in_first.is_some());
        let status_1 = Status1::ZERO.with_l2tag2_present(last && in_second.is_some());
        let packet_type = PacketType::ZERO.with_packet_type(parsed.packet_type);
        let mut written = FlexDescriptor {
            profile: self.profile,
            mirror: Mirror::ZERO.with_cast(cast).0,
            packet_type: packet_type.0.into(),
            packet_length: PacketLength::ZERO.with_bytes(length as u16).0.into(),
            header_length: HeaderLength::ZERO.0.into(),
            status_0: status_0.0.into(),
            l2tag1: in_first.unwrap_or(0).into(),
            status_1: status_1.0.into(),
            l2tag2_second: in_second.unwrap_or(0).into(),
            ..FlexDescriptor::zeroed()
        };
        self.add_metadata(arrival, &mut written);
        if let Some(stamp) = arrival.stamp.filter(|_| last && self.stamps)
            && !has_words(self.profile)
        {
            add_stamp(stamp, &mut written);
        }
        written
    }

    /// The fields that differ from profile to profile.
    fn add_metadata(&self, arrival: &Arrival<'_>, written: &mut FlexDescriptor) {
        let [a, b, c, d] = arrival.hash.unwrap_or(0).to_le_bytes();
        let low = u16::from_le_bytes([a, b]);
        let high = u16::from_le_bytes([c, d]);
        let [a, b, c, d] = arrival.flow.unwrap_or(NO_FLOW).to_le_bytes();
        let flow_low = u16::from_le_bytes([a, b]);
        let flow_high = u16::from_le_bytes([c, d]);
        match self.profile {
            profile::NIC | profile::COMMS => {
                written.metadata_0 = low.into();
                written.metadata_1 = high.into();
                written.metadata_2 = flow_low.into();
                written.metadata_3 = flow_high.into();
            }
            profile::NIC_2 => {
                written.metadata_0 = low.into();
                written.metadata_1 = high.into();
                written.metadata_2 = flow_low.into();
                written.metadata_3 = arrival.sender.unwrap_or(0).into();
            }
            profile::OPEN_VSWITCH => {
                written.metadata_0 = flow_low.into();
                written.metadata_1 = flow_high.into();
                written.metadata_2 = low.into();
                written.metadata_3 = high.into();
            }
            // Words of headers: none is extracted, so that none is valid.
            _ => {
                written.metadata_0 = low.into();
                written.metadata_1 = high.into();
                written.metadata_2 = flow_low.into();
                written.metadata_3 = flow_high.into();
                if self.profile == profile::COMMS_IP_OFFSET {
                    written.metadata_4 = u16::MAX.into();
                    written.metadata_5 = u16::MAX.into();
                }
            }
        }
    }
}

/// Writes the outcome of a programming descriptor over the one at `index`, and returns the index
/// after it; `None` if it is not in memory that the device reaches.
fn report_in<const WORDS: usize>(
    ring: &Ring<WORDS>,
    index: u16,
    status: FilterStatus,
    memory: &DmaSpace,
) -> Option<u16> {
    let descriptor = ring.descriptor(index, memory).ok()?;
    descriptor.store(0, 0);
    descriptor.store_release(1, status.0);
    Some(ring.after(index))
}

/// Returns true for a descriptor profile that the model writes.
pub(super) fn has_layout(number: u8) -> bool {
    let known = [
        profile::LEGACY_16,
        profile::LEGACY_32,
        profile::NIC,
        profile::NIC_2,
        profile::COMMS,
        profile::OPEN_VSWITCH,
    ];
    known.contains(&number) || has_words(number)
}

/// Returns true for a profile with words of headers in the place of the time stamp.
fn has_words(number: u8) -> bool {
    let (first, last) = profile::COMMS_WORDS;
    (first..=last).contains(&number) || number == profile::COMMS_IP_OFFSET
}

/// The time of arrival: a valid bit and no part of a nanosecond, then the low 32 bits.
fn add_stamp(stamp: u64, written: &mut FlexDescriptor) {
    let [a, b, c, d, ..] = stamp.to_le_bytes();
    written.time_stamp_low = STAMP_VALID;
    written.metadata_4 = u16::from_le_bytes([a, b]).into();
    written.metadata_5 = u16::from_le_bytes([c, d]).into();
}
