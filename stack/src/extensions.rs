//! Extension headers of IPv6 that every station takes, and smoltcp does not.

use crate::wire::{ETHERNET_BYTES, IPV6_BYTES};
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv6Packet};

/// Extension headers of a packet at most: a sender must not make the stack walk for long.
const MOST: usize = 8;
/// Types of the messages of neighbour discovery.
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// The frame of an IPv6 packet without destination options that may be skipped, a routing header
/// that has done its work, and the header of a fragment that is the whole packet. `None` for
/// packets without them, and for those that smoltcp answers with "parameter problem". Source: RFC
/// 8200, sections 4.2, 4.4, 4.5 and 4.6.
pub(crate) fn without_extensions(frame: &[u8]) -> Option<Vec<u8>> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    if ethernet.ethertype() != EthernetProtocol::Ipv6 {
        return None;
    }
    let packet = Ipv6Packet::new_checked(ethernet.payload()).ok()?;
    let mut next = packet.next_header();
    let mut rest = packet.payload();
    let mut is_fragment = false;
    for _ in 0..MOST {
        let bytes = match next {
            IpProtocol::Ipv6Opts => skipped_options(rest)?,
            IpProtocol::Ipv6Route => used_route(rest)?,
            IpProtocol::Ipv6Frag => {
                is_fragment = true;
                whole_fragment(rest)?
            }
            _ => break,
        };
        next = IpProtocol::from(*rest.first()?);
        rest = rest.get(bytes..)?;
    }
    let is_discovery = next == IpProtocol::Icmpv6 && DISCOVERY.contains(rest.first()?);
    // No discovery in fragments: RFC 6980.
    if next == packet.next_header() || (is_fragment && is_discovery) {
        return None;
    }
    let headers = frame.get(..ETHERNET_BYTES + IPV6_BYTES)?;
    let mut plain = [headers, rest].concat();
    let mut packet = Ipv6Packet::new_unchecked(plain.get_mut(ETHERNET_BYTES..)?);
    packet.set_next_header(next);
    packet.set_payload_len(u16::try_from(rest.len()).ok()?);
    Some(plain)
}

/// Bytes of a header whose second byte is its length.
fn length(header: &[u8]) -> Option<usize> {
    let bytes = (usize::from(*header.get(1)?) + 1) * 8;
    (bytes <= header.len()).then_some(bytes)
}

/// Bytes of a header of destination options, if a station that does not know them skips all.
fn skipped_options(header: &[u8]) -> Option<usize> {
    /// Bits of an option's type that say what a station does which does not know it.
    const ACTION: u8 = 0xC0;
    let bytes = length(header)?;
    let mut options = header.get(2..bytes)?;
    while let [kind, behind @ ..] = options {
        options = match (kind, behind) {
            // One byte of padding.
            (0, _) => behind,
            (kind, [count, value @ ..]) if kind & ACTION == 0 => value.get((*count).into()..)?,
            _ => return None,
        };
    }
    Some(bytes)
}

/// Bytes of a routing header without segments left.
fn used_route(header: &[u8]) -> Option<usize> {
    length(header).filter(|_| header.get(3) == Some(&0))
}

/// Bytes of the header of a fragment that is the first and the last one.
fn whole_fragment(header: &[u8]) -> Option<usize> {
    const BYTES: usize = 8;
    /// The offset, and the flag of more fragments.
    const OF_SEVERAL: u16 = 0xFFF9;
    let place = u16::from_be_bytes(header.get(2..4)?.try_into().ok()?);
    (header.len() >= BYTES && place & OF_SEVERAL == 0).then_some(BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a payload that no header is in.
    const DATA: [u8; 4] = [128, 0, 7, 7];

    fn frame(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, payload.len() as u8, next, 64]);
        frame.extend([0xFD; 32]);
        frame.extend(payload);
        frame
    }

    fn behind(headers: &[&[u8]]) -> Vec<u8> {
        [headers.concat().as_slice(), &DATA].concat()
    }

    #[test]
    fn headers_that_every_station_takes_are_removed() {
        let options: &[u8] = &[58, 0, 1, 4, 0, 0, 0, 0];
        let unknown: &[u8] = &[43, 0, 0x3E, 1, 9, 0, 0, 0];
        let route: &[u8] = &[44, 0, 4, 0, 0, 0, 0, 0];
        let fragment: &[u8] = &[58, 0, 0, 0, 0, 0, 0, 9];
        for (next, headers) in [
            (60, &[options][..]),
            (60, &[unknown, route, fragment]),
            (44, &[fragment]),
        ] {
            let found = without_extensions(&frame(next, &behind(headers)));
            assert_eq!(found, Some(frame(58, &DATA)), "{headers:?}");
        }
    }

    #[test]
    fn other_headers_stay_and_so_do_those_cut_short() {
        let cases: [(u8, &[u8]); 8] = [
            (58, &[]),
            // Options that are refused or drop the packet if they are unknown.
            (60, &[58, 0, 0x7E, 1, 9, 0, 0, 0]),
            (60, &[58, 0, 0xBE, 1, 9, 0, 0, 0]),
            // One that is longer than its header, and a header longer than the packet.
            (60, &[58, 0, 1, 5, 0, 0, 0, 0]),
            (60, &[58, 9, 1, 4, 0, 0, 0, 0]),
            // A segment is left; more fragments; a later fragment.
            (43, &[58, 0, 4, 1, 0, 0, 0, 0]),
            (44, &[58, 0, 0, 1, 0, 0, 0, 9]),
            (44, &[58, 0, 0, 8, 0, 0, 0, 9]),
        ];
        for (next, header) in cases {
            let whole = frame(next, &behind(&[header]));
            assert_eq!(without_extensions(&whole), None, "{next} {header:?}");
        }
        let whole = frame(60, &[58, 0, 1, 4, 0, 0, 0, 0]);
        for length in 0..whole.len() {
            assert_eq!(without_extensions(&whole[..length]), None, "{length} bytes");
        }
        // An advertisement of a neighbour in a fragment.
        let discovery = [58, 0, 0, 0, 0, 0, 0, 9, 136, 0];
        assert_eq!(without_extensions(&frame(44, &discovery)), None);
    }
}
