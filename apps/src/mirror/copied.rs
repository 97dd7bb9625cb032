//! A copied packet, and its form between a mirror and a capture.

use arrayvec::ArrayVec;
use ringside_lan::Packet;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest frame that is copied, bytes: the longest of the device.
const MAX_FRAME_BYTES: usize = ringside_spec::lan::limits::MAX_FRAME_BYTES as usize;
/// Bytes before each frame.
const HEAD_BYTES: usize = 32;
/// Bytes of the addresses of a frame: tags follow.
const ADDRESS_BYTES: usize = 12;
/// Types of tags. Source: IEEE 802.1Q, table 9-1.
const TAG_TYPE: [u8; 2] = [0x81, 0x00];
const OUTER_TAG_TYPE: [u8; 2] = [0x88, 0xA8];

/// Now, nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// The direction of a packet, seen from the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    #[default]
    Received,
    Sent,
}

/// The message that a mirror sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Copy,
    /// The last losses of a direction: the mirror ends, or knows that the capture does.
    Losses,
    /// The end of the stream. A mirror that has sent no losses gave the capture up, or was killed.
    End,
}

/// A packet of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// nanoseconds since 1970
    pub(crate) time_ns: u64,
    pub(crate) port: u16,
    pub(crate) direction: Direction,
    /// bytes of the packet
    pub(crate) original: u32,
    /// copies of its direction that were lost before it, since the capture attached
    pub(crate) lost: u64,
    pub(super) length: u32,
    buffer: Box<[u8]>,
}

impl Copied {
    pub(crate) fn empty() -> Self {
        Self {
            time_ns: 0,
            port: 0,
            direction: Direction::Received,
            original: 0,
            lost: 0,
            length: 0,
            buffer: vec![0; MAX_FRAME_BYTES].into(),
        }
    }

    /// The bytes that were copied.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.length as usize).unwrap_or_default()
    }

    /// Takes a packet over as it is on the wire, with the tags that the device has removed or is to
    /// insert: all of its bytes, or as many as there is room for.
    pub(crate) fn fill(&mut self, packet: &Packet) {
        let mut tags = ArrayVec::<u8, 8>::new();
        for (kind, tag) in [
            (OUTER_TAG_TYPE, packet.outer_vlan()),
            (TAG_TYPE, packet.vlan()),
        ] {
            tags.extend(
                tag.into_iter()
                    .flat_map(|tag| kind.into_iter().chain(tag.to_be_bytes())),
            );
        }
        let whole = packet.length() + tags.len();
        self.original = whole as u32;
        let length = whole.min(self.buffer.len());
        let at = ADDRESS_BYTES.min(packet.length());
        let place = self.buffer.get_mut(..length);
        let parts = place.and_then(|place| {
            let (addresses, rest) = place.split_at_mut_checked(at)?;
            let (between, rest) = rest.split_at_mut_checked(tags.len())?;
            between.copy_from_slice(&tags);
            Some((addresses, rest))
        });
        let is_read = parts
            .is_some_and(|(addresses, rest)| packet.read(0, addresses) && packet.read(at, rest));
        self.length = if is_read { length as u32 } else { 0 };
    }

    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        self.write_head(false, to)?;
        to.write_all(self.bytes())
    }

    pub(super) fn write_head(&self, is_last: bool, to: &mut impl Write) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.time_ns.to_le_bytes());
        head[8..16].copy_from_slice(&self.lost.to_le_bytes());
        head[16..20].copy_from_slice(&self.length.to_le_bytes());
        head[20..24].copy_from_slice(&self.original.to_le_bytes());
        head[24..26].copy_from_slice(&self.port.to_le_bytes());
        head[26] = u8::from(self.direction == Direction::Sent);
        head[27] = u8::from(is_last);
        to.write_all(&head)
    }

    /// Reads what a mirror sends next: a copy, or its losses, which have no bytes.
    pub(crate) fn read(&mut self, from: &mut impl Read) -> io::Result<Next> {
        let mut head = [0; HEAD_BYTES];
        if from.read(&mut head[..1])? == 0 {
            return Ok(Next::End);
        }
        from.read_exact(&mut head[1..])?;
        let number = |at: usize| -> u64 {
            let bytes = head.get(at..at + 8).and_then(|all| all.try_into().ok());
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        self.time_ns = number(0);
        self.lost = number(8);
        self.length = number(16) as u32;
        self.original = (number(16) >> 32) as u32;
        self.port = number(24) as u16;
        self.direction = match head[26] {
            0 => Direction::Received,
            _ => Direction::Sent,
        };
        let place = self.buffer.get_mut(..self.length as usize);
        let place = place.ok_or_else(|| {
            let text = format!(
                "a frame of {} bytes: that is no mirror of ringside",
                self.length
            );
            io::Error::new(ErrorKind::InvalidData, text)
        })?;
        from.read_exact(place)?;
        Ok(match head[27] {
            0 => Next::Copy,
            _ => Next::Losses,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_pmd::lan::PortSettings;
    use ringside_testkit::{bring_up_all, config_without_package, shut_down, threaded};

    #[test]
    fn a_copy_is_read_as_it_was_written() {
        let mut copy = Copied::empty();
        copy.time_ns = 1_700_000_000_123_456_789;
        copy.port = 3;
        copy.direction = Direction::Sent;
        copy.original = 9000;
        copy.lost = 5;
        copy.length = 100;
        copy.buffer[..100].fill(0xA5);
        let mut bytes = Vec::new();
        copy.write(&mut bytes).unwrap();
        let mut back = Copied::empty();
        let mut from = bytes.as_slice();
        assert_eq!(back.read(&mut from).unwrap(), Next::Copy);
        assert_eq!(back, copy);
        assert_eq!(back.read(&mut from).unwrap(), Next::End);
        let cut = back.read(&mut &bytes[..50]).unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
        bytes[16..20].fill(0xFF);
        let error = back.read(&mut bytes.as_slice()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    /// As the frame is on the wire: the packet has its tags beside it.
    #[test]
    fn a_copy_has_the_tags_of_its_packet() {
        let model = threaded();
        let [one, other] = bring_up_all(|index| model.function(index), &config_without_package());
        let open = one.open_port(&PortSettings::default()).unwrap();
        let frame: Vec<u8> = (0..60).collect();
        let cases: [(Option<u16>, Option<u16>, &[u8]); 4] = [
            (None, None, &[]),
            (Some(0x6064), None, &[0x81, 0, 0x60, 0x64]),
            (Some(5), Some(6), &[0x88, 0xA8, 0, 6, 0x81, 0, 0, 5]),
            (None, Some(6), &[0x88, 0xA8, 0, 6]),
        ];
        let mut copy = Copied::empty();
        for (inner, outer, tags) in cases {
            let mut packet = open.pool.packet_with(&frame).unwrap();
            packet.set_vlan(inner);
            packet.set_outer_vlan(outer);
            copy.fill(&packet);
            assert_eq!(copy.bytes(), [&frame[..12], tags, &frame[12..]].concat());
            assert_eq!(copy.original as usize, frame.len() + tags.len());
        }
        // Longer than a copy, and shorter than the addresses.
        let longest = vec![7; MAX_FRAME_BYTES];
        let mut packet = open.pool.packet_with(&longest).unwrap();
        packet.set_vlan(Some(5));
        copy.fill(&packet);
        assert_eq!(copy.bytes().len(), MAX_FRAME_BYTES);
        assert_eq!(copy.original as usize, MAX_FRAME_BYTES + 4);
        let mut packet = open.pool.packet_with(&[1; 3]).unwrap();
        packet.set_vlan(Some(5));
        copy.fill(&packet);
        assert_eq!(copy.bytes(), [1, 1, 1, 0x81, 0, 0, 5]);
        drop((packet, open));
        shut_down([one, other]);
        model.stop();
    }
}
