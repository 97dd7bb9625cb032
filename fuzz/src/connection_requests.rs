//! Requests for TCP connections among received frames, as the stack finds them.
//!
//! Checked: a frame is one exactly if a decoder of its own says so, with the same ends; with a
//! wrong checksum it is none, and with correct ones it is; bytes after the IP packet change
//! nothing; a frame that is cut is none.

use crate::frames::ones_complement;
use ringside_stack::request_in;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Place of the checksum in the header of IPv4 and of TCP. Source: RFC 791 section 3.1, RFC 9293
/// section 3.1.
const IPV4_CHECKSUM: usize = 10;
const TCP_CHECKSUM: usize = 16;

/// A request, whatever its checksums are.
struct Found {
    from: SocketAddr,
    to: SocketAddr,
    /// Bytes of the header of IPv4 in the frame.
    ipv4_header: Option<Range<usize>>,
    /// Bytes of the TCP segment in the frame, which ends with its IP packet.
    segment: Range<usize>,
}

/// A frame without a VLAN tag.
pub fn connection_requests(bytes: &[u8]) {
    let Some(request) = read(bytes) else {
        assert_eq!(request_in(bytes), None);
        return;
    };
    let ends = (request.from, request.to);
    let is_sound = request.is_sound(bytes);
    assert_eq!(request_in(bytes), is_sound.then_some(ends));

    // a fuzzer seldom guesses two checksums
    let mut sound = bytes.to_vec();
    request.put_right(&mut sound);
    assert_eq!(request_in(&sound), Some(ends));
    let used = request.segment.end;
    assert_eq!(request_in(&sound[..used - 1]), None);
    sound.extend([0xFF; 7]);
    assert_eq!(request_in(&sound), Some(ends));
    sound[request.segment.start + TCP_CHECKSUM] ^= 1;
    assert_eq!(request_in(&sound), None);
}

impl Found {
    /// The pseudo header of RFC 9293, section 3.1, with the segment behind it.
    fn covered(&self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for end in [self.from, self.to] {
            match end.ip() {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        bytes.extend((self.segment.len() as u32).to_be_bytes());
        bytes.extend([0, 0, 0, TCP]);
        bytes.extend(&frame[self.segment.clone()]);
        bytes
    }

    fn is_sound(&self, frame: &[u8]) -> bool {
        let header = self.ipv4_header.clone();
        header.is_none_or(|header| ones_complement(&frame[header]) == 0)
            && ones_complement(&self.covered(frame)) == 0
    }

    /// Corrects the checksums of the frame.
    fn put_right(&self, frame: &mut [u8]) {
        if let Some(header) = self.ipv4_header.clone() {
            let place = header.start + IPV4_CHECKSUM;
            frame[place..place + 2].fill(0);
            let sum = ones_complement(&frame[header]);
            frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let place = self.segment.start + TCP_CHECKSUM;
        frame[place..place + 2].fill(0);
        let sum = ones_complement(&self.covered(frame));
        frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn read(frame: &[u8]) -> Option<Found> {
    let (header, packet) = frame.split_at_checked(ETHERNET)?;
    let (from, to, headers, segment) = match header[12..] {
        [0x08, 0x00] => ipv4(packet)?,
        [0x86, 0xDD] => ipv6(packet)?,
        _ => return None,
    };
    let bytes = packet.get(segment.clone())?;
    let (ports, rest) = bytes.split_first_chunk::<4>()?;
    let (fixed, _) = rest.split_first_chunk::<16>()?;
    let header_bytes = usize::from(fixed[8] >> 4) * 4;
    let is_whole = (20..=bytes.len()).contains(&header_bytes);
    let is_request = fixed[9] & (SYN | ACK) == SYN;
    let [a, b, c, d] = *ports;
    (is_whole && is_request).then(|| Found {
        from: SocketAddr::new(from, u16::from_be_bytes([a, b])),
        to: SocketAddr::new(to, u16::from_be_bytes([c, d])),
        ipv4_header: headers.map(|bytes| ETHERNET..ETHERNET + bytes),
        segment: segment.start + ETHERNET..segment.end + ETHERNET,
    })
}

/// Source, destination, bytes of an IPv4 header, and the place of the payload in the packet.
type Packet = (IpAddr, IpAddr, Option<usize>, Range<usize>);

/// A packet of TCP. Source: RFC 791, section 3.1.
fn ipv4(packet: &[u8]) -> Option<Packet> {
    let fixed = packet.first_chunk::<20>()?;
    let header_bytes = usize::from(fixed[0] & 0xF) * 4;
    let bytes = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let offset = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1FFF;
    if header_bytes < 20 || offset != 0 || fixed[9] != TCP {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 4] = std::array::from_fn(|index| fixed[at + index]);
        IpAddr::V4(Ipv4Addr::from(octets))
    };
    Some((
        address(12),
        address(16),
        Some(header_bytes),
        header_bytes..bytes,
    ))
}

/// The same of IPv6, with at most one extension header, the options for each hop. Source: RFC 8200,
/// sections 3 and 4.3.
fn ipv6(packet: &[u8]) -> Option<Packet> {
    let fixed = packet.first_chunk::<40>()?;
    let bytes = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let (next, start) = match fixed[6] {
        HOP_BY_HOP => {
            let options = packet.get(40..bytes)?;
            let length = (usize::from(*options.get(1)?) + 1) * 8;
            (options[0], 40 + length)
        }
        next => (next, 40),
    };
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|index| fixed[at + index]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    (next == TCP).then(|| (address(8), address(24), None, start..bytes))
}
