//! The kinds of frames that stations receive as bytes.

use crate::frame::Frame;
use crate::packet::{self, MacAddress};

/// Bytes of the addresses and the type in front of every frame.
pub(super) const HEADER_BYTES: usize = 14;

/// The shortest frame on a wire, without frame check sequence: shorter ones are padded.
/// Source: IEEE 802.3, 4A.4.2 (minFrameSize, 64 with the frame check sequence).
pub(super) const SHORTEST_BYTES: usize = 60;

/// A frame by its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message<'a> {
    /// A sound RoCEv2 packet, and its bytes where it has some.
    Roce(&'a Frame, Option<&'a [u8]>),
    /// Anything else.
    Plain(&'a [u8]),
    /// A datagram to RoCEv2's port that is no sound packet: no RDMA engine takes it.
    Damaged(&'a [u8]),
}

/// The kind of the bytes.
pub(super) enum Kind {
    Roce(Box<Frame>),
    Plain,
    Damaged,
}

/// Reads as much of a frame as decides who takes it.
pub(super) fn classify(bytes: &[u8]) -> Kind {
    match Frame::parse(bytes) {
        Ok(frame) => Kind::Roce(Box::new(frame)),
        Err(_) if packet::is_for_roce(bytes) => Kind::Damaged,
        // Headers that a host judges, checksums included.
        Err(_) => Kind::Plain,
    }
}

/// The types of VLAN tags.
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xA8]];

/// The first tag, if the frame has one.
pub(super) fn tag(bytes: &[u8]) -> Option<u16> {
    let (kind, rest) = bytes.get(12..)?.split_first_chunk::<2>()?;
    let (tag, _) = rest.split_first_chunk::<2>()?;
    TAGS.contains(kind).then(|| u16::from_be_bytes(*tag))
}

/// True if the payload behind the tags is IPv4.
pub(super) fn is_ipv4(bytes: &[u8]) -> bool {
    let mut types = bytes.get(12..).unwrap_or_default();
    while let Some((kind, rest)) = types.split_first_chunk::<2>() {
        if !TAGS.contains(kind) {
            return *kind == [0x08, 0x00];
        }
        types = rest.get(2..).unwrap_or_default();
    }
    false
}

/// Destination and source; `None` if the frame ends before.
pub(super) fn addresses(bytes: &[u8]) -> Option<(MacAddress, MacAddress)> {
    let (destination, rest) = bytes.split_first_chunk::<6>()?;
    let (source, _) = rest.split_first_chunk::<6>()?;
    Some((MacAddress(*destination), MacAddress(*source)))
}
