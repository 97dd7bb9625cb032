//! Frames of the wire: RoCEv2 over Ethernet, IP and UDP, and anything else.
//!
//! Checked: a decoded frame is encoded with the same headers and payload; damage to a byte that a
//! checksum covers is detected; the headers for a datagram's receiver fit the packet. An input may
//! request corrected checksums, since a fuzzer cannot guess a CRC.

use crate::source::Source;
use ringside_model::packet::{
    INVARIANT_CRC_LENGTH, Network, emit, global_route_header, invariant_crc, is_for_roce,
    mark_congestion, parse,
};
use ringside_model::wire::Frame;

/// Returns the offset of a frame's IP header; a tag takes four bytes.
fn ip_offset(frame: &[u8]) -> usize {
    match frame.get(12..14) {
        Some([0x81, 0x00]) => 18,
        _ => 14,
    }
}

/// The checksum of the internet over `bytes`. Source: RFC 1071.
pub(crate) fn ones_complement(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !((folded & 0xFFFF) + (folded >> 16)) as u16
}

/// Corrects the checksum of an IPv4 header and the invariant CRC, and disables UDP's checksum.
fn put_right(frame: &mut [u8]) {
    let ip = ip_offset(frame);
    let Some(datagram) = frame.get_mut(ip..) else {
        return;
    };
    let is_four = datagram.first().is_some_and(|byte| byte >> 4 == 4);
    let (total, udp) = if is_four && datagram.len() >= 28 {
        (
            usize::from(u16::from_be_bytes([datagram[2], datagram[3]])),
            20,
        )
    } else if datagram.len() >= 48 {
        let payload = u16::from_be_bytes([datagram[4], datagram[5]]);
        (40 + usize::from(payload), 40)
    } else {
        return;
    };
    if is_four {
        datagram[10..12].fill(0);
        let sum = ones_complement(&datagram[..20]);
        datagram[10..12].copy_from_slice(&sum.to_be_bytes());
        datagram[udp + 6..udp + 8].fill(0);
    }
    let Some(covered) = total.checked_sub(INVARIANT_CRC_LENGTH) else {
        return;
    };
    if let Some(crc) = datagram.get(..covered).and_then(invariant_crc)
        && let Some(place) = datagram.get_mut(covered..total)
    {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

/// A frame.
pub fn frames(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let [how, at, with] = source.array();
    let mut frame = source.rest().to_vec();
    if how & 1 == 1 {
        put_right(&mut frame);
    }
    let understood = parse(&frame);
    assert_eq!(Frame::parse(&frame).is_ok(), understood.is_ok());
    if let Ok((packet, range)) = &understood {
        assert!(is_for_roce(&frame));
        let payload = frame.get(range.clone()).expect("inside the frame");
        let mut again = Vec::new();
        emit(packet, payload, &mut again).expect("what was read can be written");
        let (same, place) = parse(&again).expect("what was written can be read");
        assert_eq!((&same, again.get(place)), (packet, Some(payload)));
        let route = global_route_header(packet, payload.len());
        let zeros = matches!(packet.path.network, Network::V4(_));
        assert!(!zeros || route[..20] == [0; 20]);
        // one byte of the payload changed, and nothing else
        if let Some(byte) = frame.get_mut(range.clone()).and_then(|payload| {
            let length = payload.len().max(1);
            payload.get_mut(usize::from(at) % length)
        }) && with != 0
        {
            *byte ^= with;
            assert!(parse(&frame).is_err(), "damage is noticed");
            *byte_at(&mut frame, range.start + usize::from(at) % range.len()) ^= with;
        }
    }
    let before = parse(&frame);
    let marked = mark_congestion(&mut frame);
    if let (true, Ok((packet, _))) = (marked, &before) {
        let (after, _) = parse(&frame).expect("a mark changes no checksum that is wrong then");
        assert_eq!(after.transport, packet.transport);
    }
}

fn byte_at(frame: &mut [u8], at: usize) -> &mut u8 {
    frame.get_mut(at).expect("inside the frame")
}
