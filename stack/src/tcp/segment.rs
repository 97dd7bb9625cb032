//! Received segments that may be of no connection.

use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket,
};
use std::net::{IpAddr, SocketAddr};

/// The ends of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

type Segment<'a> = TcpPacket<&'a [u8]>;

/// The request for a connection in a frame without a VLAN tag: a segment with SYN and without ACK;
/// `None` for other frames, and for one with a wrong checksum, which smoltcp drops.
pub(crate) fn request(frame: &[u8]) -> Option<Ends> {
    ends_of(frame, |segment| segment.syn() && !segment.ack())
}

/// The same for a segment without SYN, ACK and RST, which no connection heeds.
pub(crate) fn stray(frame: &[u8]) -> Option<Ends> {
    ends_of(frame, |segment| {
        !segment.syn() && !segment.ack() && !segment.rst()
    })
}

/// The ends of a segment that is wanted.
fn ends_of(frame: &[u8], is_wanted: impl Fn(&Segment<'_>) -> bool) -> Option<Ends> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
            let is_tcp = packet.next_header() == IpProtocol::Tcp
                && packet.frag_offset() == 0
                && packet.verify_checksum();
            let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
            is_tcp.then(|| of_segment(from, to, packet.payload(), is_wanted))?
        }
        EthernetProtocol::Ipv6 => {
            let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
            let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
            let (next, payload) = match packet.next_header() {
                // smoltcp skips this header, and no other one.
                IpProtocol::HopByHop => {
                    let header = packet.payload();
                    let bytes = (usize::from(*header.get(1)?) + 1) * 8;
                    (IpProtocol::from(*header.first()?), header.get(bytes..)?)
                }
                next => (next, packet.payload()),
            };
            (next == IpProtocol::Tcp).then(|| of_segment(from, to, payload, is_wanted))?
        }
        _ => None,
    }
}

fn of_segment(
    from: IpAddr,
    to: IpAddr,
    segment: &[u8],
    is_wanted: impl Fn(&Segment<'_>) -> bool,
) -> Option<Ends> {
    let segment = TcpPacket::new_checked(segment).ok()?;
    (is_wanted(&segment) && segment.verify_checksum(&from.into(), &to.into())).then(|| Ends {
        from: SocketAddr::new(from, segment.src_port()),
        to: SocketAddr::new(to, segment.dst_port()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::IpAddress;
    use std::net::Ipv6Addr;

    /// A segment from 192.0.2.1, port 0x1234, to 192.0.2.2, port 0x5678, with these flags.
    fn frame(flags: u8) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend([192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x34, 0x56, 0x78]);
        frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 9, 0, 0, 0, 0]);
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
        packet.fill_checksum();
        let ends: [IpAddress; 2] = [packet.src_addr().into(), packet.dst_addr().into()];
        TcpPacket::new_unchecked(packet.payload_mut()).fill_checksum(&ends[0], &ends[1]);
        frame
    }

    #[test]
    fn a_damaged_request_is_none() {
        for at in [20, 37, 40, 47] {
            let mut damaged = frame(0x02);
            damaged[at] ^= 0x20;
            assert_eq!(request(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn a_request_may_be_behind_options_for_each_hop() {
        let addresses = ["2001:db8::1", "2001:db8::2"].map(|one| one.parse::<Ipv6Addr>().unwrap());
        let mut segment = frame(0x02).split_off(34);
        let ends = addresses.map(IpAddress::from);
        TcpPacket::new_unchecked(&mut segment[..]).fill_checksum(&ends[0], &ends[1]);
        for (next, options) in [(6, &[][..]), (0, &[6, 0, 1, 4, 0, 0, 0, 0])] {
            let length = (options.len() + segment.len()) as u8;
            let mut whole = vec![0; 12];
            whole.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, length, next, 64]);
            whole.extend(addresses.iter().flat_map(|one| one.octets()));
            whole.extend(options.iter().chain(&segment));
            let found = request(&whole).expect("a request");
            assert_eq!(found.from, (addresses[0], 4660).into());
            for cut in 0..whole.len() {
                assert_eq!(request(&whole[..cut]), None, "{cut} bytes");
            }
        }
    }

    #[test]
    fn a_request_has_syn_and_no_ack() {
        let found = request(&frame(0x02)).unwrap();
        assert_eq!(found.from, "192.0.2.1:4660".parse().unwrap());
        assert_eq!(found.to, "192.0.2.2:22136".parse().unwrap());
        for flags in [0x12, 0x10, 0x04, 0] {
            assert_eq!(request(&frame(flags)), None, "{flags:#x}");
        }
    }

    #[test]
    fn a_stray_segment_has_neither_syn_nor_ack_nor_rst() {
        let is_stray = |flags: u8| stray(&frame(flags)).is_some();
        assert!([0, 0x01, 0x08, 0x20, 0x29].into_iter().all(is_stray));
        assert!(![0x02, 0x04, 0x10, 0x11, 0x03].into_iter().any(is_stray));
        let mut damaged = frame(0x01);
        damaged[40] ^= 0x20;
        assert_eq!(stray(&damaged), None);
    }

    #[test]
    fn fragments_other_protocols_and_frames_cut_short_are_no_requests() {
        let whole = frame(0x02);
        for length in 0..whole.len() {
            assert_eq!(request(&whole[..length]), None, "{length} bytes");
        }
        let mut fragment = whole.clone();
        fragment[21] = 1;
        assert_eq!(request(&fragment), None);
        let mut datagram = whole;
        datagram[23] = 17;
        assert_eq!(request(&datagram), None);
    }
}
