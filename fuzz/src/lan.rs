//! The LAN half of the device: a driver's descriptors and packets for transmission, and frames from
//! the wire.
//!
//! Checked: a transmitted frame has a valid length, and that of a driver that follows the interface
//! has correct checksums and, in order, all bytes of its payload. A received frame is in the
//! buffers byte for byte, without its tag if the VSI is so configured, and nowhere else. A changed
//! bit of a valid segment makes its checksum wrong. Both directions of a flow have the same
//! symmetric hash.

use crate::source::Source;
use ringside_bus::function::DmaAccess;
use ringside_bus::{DmaSpace, Iova, Memory, PageSize};
use ringside_model::{ALONE_NUMBER, AloneSettings, LanAlone};
use ringside_spec::lan::receive::{
    FlexDescriptor, PacketLength, ReceiveContext, Status0, packet_type, profile,
};
use ringside_spec::lan::transmit::{
    ContextCommand, DataCommand, MAX_SEGMENT_BYTES, TransmitContext, inner_ip, kind, layer_4,
};

const ENTRIES: u16 = 64;
/// Bytes of the longest frame, with its check sequence.
const MAX_FRAME_BYTES: usize = ringside_spec::lan::limits::MAX_FRAME_BYTES as usize;
const FRAME_BYTES_MIN: usize = 60;
/// The longest segment with the longest headers that descriptors can express, with two tags of its
/// own and one of the port.
const MAX_BYTES: usize = MAX_SEGMENT_BYTES as usize + 2 * (127 * 4 + 127 * 2) + 60 + 3 * TAG_BYTES;
const TRANSMIT_RING: u64 = 0;
const RECEIVE_RING: u64 = 0x1000;
/// Receive buffers, one after the other, with a guard after each.
const RECEIVE_BUFFERS: u64 = 0x2000;
const RECEIVE_STRIDE: u64 = 0x800;
/// The packet to send; longer than the longest buffer.
const PACKET: u64 = 0x2_2000;
const MEMORY_BYTES: usize = 0x2_6000;
const GUARD: u8 = 0xA5;

const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
const HERE: [u8; 6] = [2, 0xE8, 0x10, 0, 0, 1];
const THERE: [u8; 6] = [2, 0xE8, 0x10, 0, 0, 2];

thread_local! {
    static SPACE: DmaSpace = {
        let memory = Memory::allocate(MEMORY_BYTES, PageSize::FourKiB, None).expect("some pages");
        let mut space = DmaSpace::new();
        space.set_bus_master(true);
        assert!(space.map(Iova(0), &memory, 0, MEMORY_BYTES, DmaAccess::ReadWrite));
        space
    };
}

/// Ones' complement sum of bytes. Source: RFC 1071.
fn sum(bytes: &[u8], start: u32) -> u16 {
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum = pairs.fold(u64::from(start), |sum, pair| sum + u64::from(pair));
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

struct DrivenLan<'a> {
    lan: LanAlone,
    space: &'a DmaSpace,
    tail: u16,
    /// The descriptor that the next received frame begins with.
    next: u16,
    buffer_bytes: usize,
    strip_crc: bool,
    tag_kept: bool,
    symmetric: bool,
    /// Frames without a VLAN id are dropped.
    prune: bool,
    /// All operations so far follow the interface.
    lawful: bool,
}

impl<'a> DrivenLan<'a> {
    fn new(source: &mut Source, space: &'a DmaSpace) -> Self {
        let [flags, more, buffers, profiles] = source.array();
        let symmetric = more & 1 != 0;
        let key = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ more);
        let settings = AloneSettings {
            address: HERE,
            port_vlan: (flags & 1 != 0).then_some(7),
            tag: flags >> 1 & 3,
            destination_override: flags & 8 != 0,
            prune: flags & 16 != 0,
            anti_spoof: flags & 32 != 0,
            hash: (flags & 64 != 0).then_some((key, symmetric)),
        };
        let transmit = TransmitContext {
            base_in_128_bytes: TRANSMIT_RING >> 7,
            ring_length: ENTRIES,
            vsi: ALONE_NUMBER,
            ..TransmitContext::zeroed()
        };
        let mut transmit = transmit.encode();
        let odd = flags & 128 != 0;
        if odd {
            let [at, change] = source.array();
            transmit[usize::from(at) % TransmitContext::SIZE] ^= change;
        }
        let mut driven = Self {
            lan: LanAlone::new(&settings, &transmit),
            space,
            tail: 0,
            next: 0,
            buffer_bytes: (1 + usize::from(buffers & 7)) * 128,
            strip_crc: buffers & 8 != 0,
            tag_kept: settings.tag > 1,
            symmetric: symmetric && settings.hash.is_some(),
            prune: settings.prune,
            lawful: !odd,
        };
        let empty = [0; RECEIVE_BUFFERS as usize];
        space.write(Iova(0), &empty).expect("rings");
        driven.enable_receive(buffers, profiles, source);
        driven
    }

    fn enable_receive(&mut self, flags: u8, profiles: u8, source: &mut Source) {
        let longest = self.buffer_bytes * 5;
        let context = ReceiveContext {
            base_in_128_bytes: RECEIVE_RING >> 7,
            ring_length: ENTRIES,
            data_buffer_in_128_bytes: (self.buffer_bytes / 128) as u8,
            descriptors_of_32_bytes: true,
            strip_crc: self.strip_crc,
            tag_in_l2tag1: flags & 16 != 0,
            frame_bytes_max: longest as u16,
            ..ReceiveContext::zeroed()
        };
        let mut dwords = context.dwords();
        if flags & 32 != 0 {
            let at = usize::from(source.byte()) % dwords.len();
            dwords[at] ^= source.number();
            self.lawful = false;
        }
        let known = [profile::NIC, profile::NIC_2, profile::OPEN_VSWITCH];
        let profile = known[usize::from(profiles) % known.len()];
        for index in 0..ENTRIES {
            self.free(index);
        }
        self.lan.enable_receive(dwords, profile, 56, self.space);
    }

    /// Gives a receive descriptor a buffer, and the buffer its guard.
    fn free(&self, index: u16) {
        let at = RECEIVE_BUFFERS + u64::from(index) * RECEIVE_STRIDE;
        let guard = [GUARD; RECEIVE_STRIDE as usize];
        let length = (self.buffer_bytes + 64).min(guard.len());
        self.space
            .write(Iova(at), &guard[..length])
            .expect("a buffer");
        let ring = Iova(RECEIVE_RING + u64::from(index) * 32);
        self.space
            .write_words(ring, &[at, 0, 0, 0])
            .expect("a ring");
    }

    fn post(&mut self, low: u64, high: u64) {
        let at = Iova(TRANSMIT_RING + u64::from(self.tail) * 16);
        self.space.write_words(at, &[low, high]).expect("a ring");
        self.tail = (self.tail + 1) % ENTRIES;
    }

    /// Takes all transmitted frames.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        // a packet may become some thousand frames; 64 descriptors hold no more packets than that
        let frames: Vec<_> = std::iter::from_fn(|| self.lan.next_frame(self.space)).collect();
        for frame in &frames {
            assert!(frame.len() >= FRAME_BYTES_MIN, "{} bytes", frame.len());
            assert!(frame.len() <= MAX_BYTES, "{} bytes", frame.len());
        }
        frames
    }

    /// Posts descriptors with any content.
    fn post_anything(&mut self, source: &mut Source) {
        self.lawful = false;
        let count = source.byte() % 8;
        let length = usize::from(source.byte());
        let packet = source.some(length);
        self.space.write(Iova(PACKET), packet).expect("room");
        for _ in 0..=count {
            let [how, length] = source.array();
            let command = DataCommand(source.word());
            let likely = command
                .with_buffer_bytes(u64::from(length))
                .with_end_of_packet(how & 1 != 0);
            let address = PACKET + u64::from(how >> 4) * 8;
            match how >> 1 & 7 {
                0 => self.post(source.word(), command.0),
                1 | 2 => self.post(command.0, source.word()),
                3 => self.post(command.0 & 0xFFFF_FFFF_FFFF, {
                    ContextCommand(source.word()).with_kind(kind::CONTEXT).0
                }),
                _ => self.post(address, likely.with_kind(kind::DATA).0),
            }
        }
        let tail = if source.flag() {
            u32::from(self.tail)
        } else {
            source.number()
        };
        self.lan.ring(tail, self.space);
        self.sent();
    }

    /// Sends a packet as a driver does, and checks the frames.
    fn send(&mut self, source: &mut Source) {
        let [how, length_low, length_high, segment, ports] = source.array();
        let protocols = Protocols::of(how);
        let Protocols { tcp, v6 } = protocols;
        let cut = how & 4 != 0;
        let own_tag = how & 8 != 0;
        let second_tag = how & 16 != 0;
        let length = 1 + usize::from(u16::from_le_bytes([length_low, length_high])) % 9000;
        let segment = 64 + usize::from(segment) * 8;
        let payload: Vec<u8> = (0..length).map(|at| (at * 7) as u8 ^ ports).collect();
        let counted = if cut {
            Counted::LeftOut
        } else {
            Counted::InPseudoHeader
        };
        let (packet, headers) = packet(protocols, counted, &payload);
        self.space.write(Iova(PACKET), &packet).expect("room");
        if cut || second_tag {
            let command = ContextCommand::ZERO
                .with_kind(kind::CONTEXT)
                .with_segmentation(cut)
                .with_insert_l2tag2(second_tag)
                .with_payload_bytes(if cut { length as u64 } else { 0 })
                .with_segment_bytes(if cut { segment as u64 } else { 0 });
            let tag = if second_tag { 0x0001 << 32 } else { 0 };
            self.post(tag, command.0);
        }
        let command = DataCommand::ZERO
            .with_kind(kind::DATA)
            .with_end_of_packet(true)
            .with_insert_l2tag1(own_tag)
            .with_l2tag1(if own_tag { 0x2001 } else { 0 })
            .with_inner_ip(if v6 {
                inner_ip::V6
            } else {
                inner_ip::V4_CHECKSUM
            })
            .with_layer_4(if tcp { layer_4::TCP } else { layer_4::UDP })
            .with_layer_2_length_2(ETHERNET_BYTES as u64 / 2)
            .with_ip_length_4(if v6 { 10 } else { 5 })
            .with_layer_4_length_4(if tcp { 5 } else { 2 })
            .with_buffer_bytes(packet.len() as u64);
        self.post(PACKET, command.0);
        self.lan.ring(self.tail.into(), self.space);
        let frames = self.sent();
        if self.lawful {
            self.check_sent(&frames, &payload, headers);
        }
    }

    /// Checks that all frames of a valid packet were sent, or none because the VSI may not send
    /// them.
    fn check_sent(&mut self, frames: &[Vec<u8>], payload: &[u8], headers: usize) {
        assert!(self.lan.breaches().is_empty(), "{:?}", self.lan.breaches());
        assert!(self.prune || !frames.is_empty(), "nothing left");
        let mut left = payload;
        for frame in frames {
            assert!(frame.len() + 4 <= MAX_FRAME_BYTES, "{} bytes", frame.len());
            let found = self.lan.parse(frame).expect("an Ethernet header");
            assert!(!found.ip_wrong && !found.layer_4_wrong, "{found:?}");
            let tags = frame.iter().skip(12).step_by(TAG_BYTES).zip([0; 3]);
            let tags = tags.take_while(|(byte, _)| matches!(byte, 0x81 | 0x88));
            let start = tags.count() * TAG_BYTES + headers;
            // a short frame is padded, and is the last one
            let body = frame.get(start..).expect("headers");
            let (piece, rest) = left.split_at(body.len().min(left.len()));
            assert_eq!(&body[..piece.len()], piece);
            left = rest;
        }
        assert!(
            frames.is_empty() || left.is_empty(),
            "{} bytes left",
            left.len()
        );
    }

    fn receive(&mut self, frame: &[u8]) {
        self.lan.receive(frame, self.space);
        let Some(headers) = self.lan.parse(frame) else {
            return;
        };
        assert!(headers.packet_type <= packet_type::IPV6_ICMP, "{headers:?}");
        if !self.lawful {
            return;
        }
        let mut expected = frame.to_vec();
        if headers.tag.is_some() && !self.tag_kept {
            expected.drain(12..16);
        }
        let found = self.taken(headers);
        let fits = expected.len() + 4 <= self.buffer_bytes * 5 && frame.len() > ETHERNET_BYTES;
        let ours = frame.starts_with(&HERE);
        assert!(found.is_none() || ours, "another's: {frame:02x?}");
        assert!(
            found.is_some() || !ours || !fits || self.prune,
            "lost: {frame:02x?}"
        );
        if let Some(found) = found {
            let length = expected.len();
            assert_eq!(found.get(..length), Some(&expected[..]));
            let check_bytes = if self.strip_crc { 0 } else { 4 };
            assert_eq!(found.len(), length + check_bytes);
        }
    }

    /// Returns the bytes of a received frame, if there is one, and frees its descriptors.
    fn taken(&mut self, headers: ringside_model::AloneHeaders) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for _ in 0..ENTRIES {
            let index = self.next;
            let mut raw = [0; 32];
            let at = RECEIVE_RING + u64::from(index) * 32;
            self.space.read(Iova(at), &mut raw).expect("a ring");
            let written = FlexDescriptor::read(&raw).expect("32 bytes");
            let status = Status0(written.status_0.get());
            if !status.done() {
                assert!(bytes.is_empty(), "a frame without end");
                return None;
            }
            let length = usize::from(PacketLength(written.packet_length.get()).bytes());
            assert!(length <= self.buffer_bytes, "{length} bytes in a buffer");
            let mut piece = vec![0; self.buffer_bytes + 64];
            let buffer = RECEIVE_BUFFERS + u64::from(index) * RECEIVE_STRIDE;
            self.space.read(Iova(buffer), &mut piece).expect("a buffer");
            assert!(
                piece[length..].iter().all(|byte| *byte == GUARD),
                "beyond the frame"
            );
            bytes.extend_from_slice(&piece[..length]);
            self.free(index);
            self.next = (index + 1) % ENTRIES;
            let tail = (self.next + ENTRIES - 8) % ENTRIES;
            self.lan.receive_tail(tail.into(), self.space);
            if status.end_of_packet() {
                assert_eq!(status.hash_valid(), headers.hash.is_some());
                assert_eq!(status.layer_4_checksum_error(), headers.layer_4_wrong);
                return Some(bytes);
            }
        }
        panic!("a frame of a whole ring");
    }

    /// Receives a frame of any content for this function; then the same with a changed bit.
    fn receive_anything(&mut self, source: &mut Source) {
        let [length, bit] = source.array();
        let mut frame = HERE.to_vec();
        frame.extend_from_slice(source.some(usize::from(length) * 4));
        self.receive(&frame);
        let at = usize::from(bit) % frame.len();
        frame[at] ^= 1 << (bit & 7);
        self.receive(&frame);
    }

    /// Receives a valid segment, and the same one damaged or in the other direction.
    fn receive_sound(&mut self, source: &mut Source) {
        let [how, length, at, bit] = source.array();
        let protocols = Protocols::of(how);
        let v6 = protocols.v6;
        let payload = vec![how ^ length; 1 + usize::from(length)];
        let (mut frame, headers) = packet(protocols, Counted::InPseudoHeader, &payload);
        finish(&mut frame, protocols);
        // swaps source and destination
        frame[..12].rotate_left(6);
        if how & 4 != 0 {
            frame.splice(12..12, [0x81, 0, 0, 1]);
        }
        let tags = frame.len() - headers - payload.len();
        let found = self.lan.parse(&frame).expect("an Ethernet header");
        assert!(!found.ip_wrong && !found.layer_4_wrong, "{found:?}");
        self.receive(&frame);
        if self.symmetric {
            let mut back = frame.clone();
            let (addresses, bytes) = if v6 { (22, 16) } else { (26, 4) };
            let (addresses, ports) = (addresses + tags, tags + if v6 { 54 } else { 34 });
            back[addresses..addresses + 2 * bytes].rotate_left(bytes);
            back[ports..ports + 4].rotate_left(2);
            let back = self.lan.parse(&back).expect("an Ethernet header");
            assert_eq!(back.hash, found.hash, "one flow, two hashes");
        }
        let at = tags + headers + usize::from(at) % payload.len();
        frame[at] ^= 1 << (bit & 7);
        let damaged = self.lan.parse(&frame).expect("an Ethernet header");
        assert!(damaged.layer_4_wrong, "byte {at} of {frame:02x?}");
        self.receive(&frame);
    }
}

/// The protocols of a packet.
#[derive(Clone, Copy)]
struct Protocols {
    /// TCP, else UDP
    tcp: bool,
    /// IPv6, else IPv4
    v6: bool,
}

impl Protocols {
    /// Those that the lowest two bits of `how` choose.
    const fn of(how: u8) -> Self {
        Self {
            tcp: how & 1 != 0,
            v6: how & 2 != 0,
        }
    }
}

/// The length of a segment in the sum that drivers prepare.
#[derive(Clone, Copy)]
enum Counted {
    /// As the pseudo header has it.
    InPseudoHeader,
    /// The device cuts the segment, and adds the length of each piece.
    LeftOut,
}

/// Returns a packet with headers as drivers prepare them for the device, and the bytes of all
/// headers.
fn packet(Protocols { tcp, v6 }: Protocols, counted: Counted, payload: &[u8]) -> (Vec<u8>, usize) {
    let layer_4_bytes = if tcp { 20 } else { 8 };
    let protocol = if tcp { 6u8 } else { 17 };
    let segment_bytes = layer_4_bytes + payload.len();
    let mut packet = [THERE, HERE].concat();
    let addresses = if v6 {
        packet.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
        packet.extend((segment_bytes as u16).to_be_bytes());
        packet.extend([protocol, 64]);
        packet.extend([0xFD; 16].into_iter().chain([0xFC; 16]));
        22..54
    } else {
        let total = (20 + segment_bytes) as u16;
        packet.extend([0x08, 0, 0x45, 0]);
        packet.extend(total.to_be_bytes());
        packet.extend([0, 9, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        26..34
    };
    let length = match counted {
        Counted::InPseudoHeader => segment_bytes as u32,
        Counted::LeftOut => 0,
    };
    let pseudo = sum(&packet[addresses], u32::from(protocol) + length).to_be_bytes();
    packet.extend([0x12, 0x34, 0x56, 0x78]);
    if tcp {
        packet.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0]);
        packet.extend(pseudo);
        packet.extend([0, 0]);
    } else {
        packet.extend((segment_bytes as u16).to_be_bytes());
        packet.extend(pseudo);
    }
    let headers = packet.len();
    packet.extend_from_slice(payload);
    (packet, headers)
}

/// Inserts the checksums that the device would.
fn finish(packet: &mut [u8], Protocols { tcp, v6 }: Protocols) {
    let layer_4 = if v6 { 54 } else { 34 };
    if !v6 {
        let header = !sum(&packet[14..34], 0);
        packet[24..26].copy_from_slice(&header.to_be_bytes());
    }
    let field = layer_4 + if tcp { 16 } else { 6 };
    let checksum = !sum(&packet[layer_4..], 0);
    let checksum = if checksum == 0 { 0xFFFF } else { checksum };
    packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Descriptors and frames of the network stack.
pub fn lan(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    SPACE.with(|space| {
        let mut driven = DrivenLan::new(&mut source, space);
        while !source.is_empty() {
            match source.byte() & 7 {
                0..=2 => driven.send(&mut source),
                3 => driven.post_anything(&mut source),
                4 | 5 => driven.receive_sound(&mut source),
                _ => driven.receive_anything(&mut source),
            }
        }
    });
}
