//! Requests for TCP connections among received frames, as the stack finds them.
//!
//! Checked: a frame is one exactly if a decoder of its own says so, with the same ends; bytes after
//! the IP packet change nothing; a frame that is cut is none.

use ringside_stack::request_in;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A frame without a VLAN tag.
pub fn connection_requests(bytes: &[u8]) {
    let found = request_in(bytes);
    let expected = read(bytes);
    assert_eq!(found, expected.map(|(ends, _)| ends));
    let Some((ends, used)) = expected else {
        return;
    };
    let mut padded = bytes.to_vec();
    padded.extend([0xFF; 7]);
    assert_eq!(request_in(&padded), Some(ends));
    assert_eq!(request_in(&bytes[..used - 1]), None);
}

/// Source and destination of a request, and the bytes of the frame up to the end of its IP packet.
fn read(frame: &[u8]) -> Option<((SocketAddr, SocketAddr), usize)> {
    let (header, packet) = frame.split_at_checked(14)?;
    let (from, to, segment, packet_bytes) = match header[12..] {
        [0x08, 0x00] => ipv4(packet)?,
        [0x86, 0xDD] => ipv6(packet)?,
        _ => return None,
    };
    let (ports, rest) = segment.split_first_chunk::<4>()?;
    let (fixed, _) = rest.split_first_chunk::<16>()?;
    let header_bytes = usize::from(fixed[8] >> 4) * 4;
    let is_whole = (20..=segment.len()).contains(&header_bytes);
    let is_request = fixed[9] & (SYN | ACK) == SYN;
    let [a, b, c, d] = *ports;
    let from = SocketAddr::new(from, u16::from_be_bytes([a, b]));
    let to = SocketAddr::new(to, u16::from_be_bytes([c, d]));
    (is_whole && is_request).then_some(((from, to), 14 + packet_bytes))
}

/// Source, destination, payload and length of a packet of TCP. Source: RFC 791, section 3.1.
fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8], usize)> {
    let fixed = packet.first_chunk::<20>()?;
    let header_bytes = usize::from(fixed[0] & 0xF) * 4;
    let bytes = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let offset = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1FFF;
    if header_bytes < 20 || offset != 0 || fixed[9] != TCP {
        return None;
    }
    let payload = packet.get(header_bytes..bytes)?;
    let address = |at: usize| {
        let octets: [u8; 4] = std::array::from_fn(|index| fixed[at + index]);
        IpAddr::V4(Ipv4Addr::from(octets))
    };
    Some((address(12), address(16), payload, bytes))
}

/// The same of IPv6, without extension headers. Source: RFC 8200, section 3.
fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8], usize)> {
    let fixed = packet.first_chunk::<40>()?;
    let bytes = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let payload = packet.get(40..bytes)?;
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|index| fixed[at + index]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    (fixed[6] == TCP).then(|| (address(8), address(24), payload, bytes))
}
