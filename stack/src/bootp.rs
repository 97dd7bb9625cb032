//! Messages of DHCP beside smoltcp: the size and the pace of those that it sends, and the source,
//! the mask and the sole router that it requires.

use crate::wire::ETHERNET_BYTES;
use ringside_config::is_of_a_host;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet,
    UdpPacket,
};
use std::net::Ipv4Addr;

/// Source: RFC 2131, section 4.1.
const SERVER: u16 = 67;
const CLIENT: u16 = 68;
const UDP_BYTES: usize = 8;
/// The least bytes of a message: relays and servers may drop a shorter one. Source: RFC 1542,
/// section 2.1.
const SHORTEST: usize = 300;
/// Bytes of a message in front of its options: RFC 2131, section 2 and 3.
const OPTIONS: usize = 240;
/// The shortest time between two searches for servers, as smoltcp has it between two that no server
/// answers. After a refusal it would search at once. Source: RFC 2131, section 3.1 (5).
const PAUSE: Duration = Duration::from_secs(10);

/// A datagram in a frame: bytes of the headers in front of its payload, and its payload.
struct Datagram<'a> {
    header_bytes: usize,
    payload: &'a [u8],
}

/// The datagram in a frame without VLAN tag from one port to another.
fn datagram(frame: &[u8], (from, to): (u16, u16)) -> Option<Datagram<'_>> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    if ethernet.ethertype() != EthernetProtocol::Ipv4 {
        return None;
    }
    let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
    let is_fragment = packet.more_frags() || packet.frag_offset() != 0;
    if packet.next_header() != IpProtocol::Udp || is_fragment {
        return None;
    }
    let datagram = UdpPacket::new_checked(packet.payload()).ok()?;
    ((datagram.src_port(), datagram.dst_port()) == (from, to)).then(|| Datagram {
        header_bytes: ETHERNET_BYTES + usize::from(packet.header_len()) + UDP_BYTES,
        payload: datagram.payload(),
    })
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

impl Way {
    const fn ports(self) -> (u16, u16) {
        match self {
            Self::ToServer => (CLIENT, SERVER),
            Self::ToClient => (SERVER, CLIENT),
        }
    }
}

/// True for a datagram from the port of servers to that of clients, whatever it holds.
pub(crate) fn is_answer(frame: &[u8]) -> bool {
    datagram(frame, Way::ToClient.ports()).is_some()
}

/// True for the first of the fragments of such a datagram. Clients name a size to servers whose
/// messages need no fragments: RFC 2132, section 9.10.
pub(crate) fn is_part_of_answer(frame: &[u8]) -> bool {
    let ethernet = EthernetFrame::new_checked(frame).ok();
    let ethernet = ethernet.filter(|frame| frame.ethertype() == EthernetProtocol::Ipv4);
    let packet = ethernet.and_then(|frame| Ipv4Packet::new_checked(frame.payload()).ok());
    packet.is_some_and(|packet| {
        let (from, to) = Way::ToClient.ports();
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        let is_first = packet.more_frags() && packet.frag_offset() == 0;
        is_first && packet.next_header() == IpProtocol::Udp && packet.payload().starts_with(&ports)
    })
}

/// Looks at the message in a frame of this direction, and at the address that it goes to; `None`
/// for other frames and damaged ones.
pub(crate) fn with_message<T>(
    frame: &[u8],
    way: Way,
    look: impl FnOnce(&DhcpRepr<'_>, Ipv4Addr) -> T,
) -> Option<T> {
    let message = datagram(frame, way.ports()).filter(|_| is_whole(frame))?;
    let destination = Ipv4Packet::new_checked(frame.get(ETHERNET_BYTES..)?)
        .ok()?
        .dst_addr();
    let packet = DhcpPacket::new_checked(message.payload).ok()?;
    Some(look(&DhcpRepr::parse(&packet).ok()?, destination))
}

/// True if the checksums of a datagram are right.
fn is_whole(frame: &[u8]) -> bool {
    let packet = frame.get(ETHERNET_BYTES..).map(Ipv4Packet::new_checked);
    packet.and_then(Result::ok).is_some_and(|packet| {
        let (source, destination) = (packet.src_addr().into(), packet.dst_addr().into());
        let datagram = UdpPacket::new_checked(packet.payload());
        packet.verify_checksum()
            && datagram.is_ok_and(|datagram| datagram.verify_checksum(&source, &destination))
    })
}

/// The frame of another payload behind the same headers, whose lengths and checksums follow.
fn with_payload(frame: &[u8], header_bytes: usize, payload: &[u8]) -> Option<Vec<u8>> {
    let mut made = [frame.get(..header_bytes)?, payload].concat();
    let length = u16::try_from(made.len() - ETHERNET_BYTES).ok()?;
    let mut packet = Ipv4Packet::new_unchecked(made.get_mut(ETHERNET_BYTES..)?);
    packet.set_total_len(length);
    packet.fill_checksum();
    let (source, destination) = (packet.src_addr().into(), packet.dst_addr().into());
    let mut datagram = UdpPacket::new_unchecked(packet.payload_mut());
    datagram.set_len(u16::try_from(UDP_BYTES + payload.len()).ok()?);
    datagram.fill_checksum(&source, &destination);
    Some(made)
}

/// The frame of a client's message that is shorter than a message may be, made long enough; `None`
/// for all other frames.
pub(crate) fn padded(frame: &[u8]) -> Option<Vec<u8>> {
    let message = datagram(frame, (CLIENT, SERVER))?;
    if message.payload.len() >= SHORTEST {
        return None;
    }
    let mut payload = message.payload.to_vec();
    payload.resize(SHORTEST, 0);
    with_payload(frame, message.header_bytes, &payload)
}

/// The frame of an offer or a lease as smoltcp takes it; `None` for all other frames, and for those
/// that it takes as they are.
///
/// An offer comes from its server: smoltcp renews the lease at the address that the offer came
/// from, which may be a relay's. Source: RFC 2131, sections 4.1 and 4.4.5.
///
/// A lease that names no mask gets that of the address's class, as other clients take it: smoltcp
/// takes none without one. Of several routers the first stays, which the server prefers: smoltcp
/// takes no list of them. Source: RFC 2132, section 3.5.
pub(crate) fn understandable(frame: &[u8]) -> Option<Vec<u8>> {
    /// The option, and the bytes of its value: RFC 2132, section 3.3.
    const MASK: [u8; 2] = [1, 4];
    let message = datagram(frame, (SERVER, CLIENT)).filter(|_| is_whole(frame))?;
    let packet = DhcpPacket::new_checked(message.payload).ok()?;
    let lease = DhcpRepr::parse(&packet).ok()?;
    if lease.message_type == DhcpMessageType::Offer {
        return from_server(frame, &message, lease.server_identifier?);
    }
    if lease.message_type != DhcpMessageType::Ack {
        return None;
    }
    let (front, options) = message.payload.split_at_checked(OPTIONS)?;
    let mut options = options.to_vec();
    let has_cut = cut_routers(&mut options);
    let mask = match lease.subnet_mask {
        Some(_) if !has_cut => return None,
        Some(_) => Vec::new(),
        None => [&MASK[..], &class_mask(lease.your_ip).octets()].concat(),
    };
    let payload = [front, &mask, &options].concat();
    with_payload(frame, message.header_bytes, &payload)
}

/// The frame of a message as if it came from its server; `None` if it does, and if no station can
/// have the server's address.
fn from_server(frame: &[u8], message: &Datagram<'_>, server: Ipv4Addr) -> Option<Vec<u8>> {
    let mut headers = frame.get(..message.header_bytes)?.to_vec();
    let mut packet = Ipv4Packet::new_unchecked(headers.get_mut(ETHERNET_BYTES..)?);
    if !is_of_a_host(server.into()) || packet.src_addr() == server {
        return None;
    }
    packet.set_src_addr(server);
    with_payload(&headers, message.header_bytes, message.payload)
}

/// Leaves the first router of each list of several; true if there was one. The bytes of the others
/// become padding.
fn cut_routers(options: &mut [u8]) -> bool {
    /// The options without a length, and that of routers: RFC 2132, sections 3.1, 3.2 and 3.5.
    const PAD: u8 = 0;
    const END: u8 = 255;
    const ROUTERS: u8 = 3;
    const ADDRESS_BYTES: u8 = 4;
    let (mut rest, mut has_cut) = (options, false);
    loop {
        match rest {
            [PAD, behind @ ..] => rest = behind,
            [] | [END, ..] | [_] => return has_cut,
            [kind, length, behind @ ..] => {
                let Some((value, behind)) = behind.split_at_mut_checked((*length).into()) else {
                    return has_cut;
                };
                if *kind == ROUTERS && *length > ADDRESS_BYTES {
                    *length = ADDRESS_BYTES;
                    value[usize::from(ADDRESS_BYTES)..].fill(PAD);
                    has_cut = true;
                }
                rest = behind;
            }
        }
    }
}

/// Source: RFC 791, section 2.3.
fn class_mask(address: Ipv4Addr) -> Ipv4Addr {
    match address.octets()[0] {
        0..128 => Ipv4Addr::new(255, 0, 0, 0),
        128..192 => Ipv4Addr::new(255, 255, 0, 0),
        _ => Ipv4Addr::new(255, 255, 255, 0),
    }
}

/// The pace of searches for DHCP servers.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    last: Option<Instant>,
}

impl Searches {
    /// The next search is not early: the earlier ones may not have left.
    pub(crate) const fn forget(&mut self) {
        self.last = None;
    }

    /// True if a frame of smoltcp is a search that comes too early: after a server that
    /// refuses what it has offered, or that grants a lease without time. Dropped, it is repeated
    /// after 10 s.
    pub(crate) fn is_early(&mut self, frame: &[u8], now: Instant) -> bool {
        if !is_search(frame) {
            return false;
        }
        let is_early = self.last.is_some_and(|last| now < last + PAUSE);
        if is_early {
            tracing::warn!(
                "a DHCP server refuses the address that it offered, or grants it for seconds only; \
                 asking again in 10 s"
            );
        } else {
            self.last = Some(now);
        }
        is_early
    }
}

fn is_search(frame: &[u8]) -> bool {
    let Some(message) = datagram(frame, (CLIENT, SERVER)) else {
        return false;
    };
    let packet = DhcpPacket::new_checked(message.payload).ok();
    let message = packet.and_then(|packet| Some(DhcpRepr::parse(&packet).ok()?.message_type));
    message == Some(DhcpMessageType::Discover)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_without_a_mask_gets_one_unless_it_is_damaged() {
        let mut headers = vec![0; ETHERNET_BYTES + 28];
        headers[12] = 8;
        headers[14] = 0x45;
        headers[23] = 17;
        headers[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 9]);
        headers[34..38].copy_from_slice(&[0, 67, 0, 68]);
        let mut message = vec![0; OPTIONS];
        message[..3].copy_from_slice(&[2, 1, 6]);
        message[16..20].copy_from_slice(&[172, 16, 0, 9]);
        message[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
        message.extend([53, 1, 5, 54, 4, 192, 0, 2, 1, 255]);
        let frame = with_payload(&headers, headers.len(), &message).unwrap();
        let masked = understandable(&frame).expect("a lease");
        assert_eq!(understandable(&masked), None, "it has one");
        let mask = &masked[headers.len() + OPTIONS..][..6];
        assert_eq!(mask, [1, 4, 255, 255, 0, 0]);
        // The time to live, the address, and the identifier of the server.
        for at in [22, headers.len() + 17, frame.len() - 2] {
            let mut damaged = frame.clone();
            damaged[at] ^= 1;
            assert_eq!(understandable(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn the_first_of_several_routers_stays() {
        let list = [
            0, 51, 4, 0, 0, 1, 0, 3, 12, 10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 3,
        ];
        let end = [54, 4, 10, 0, 0, 1, 255, 3, 8, 9, 9, 9, 9, 9, 9, 9, 9];
        let mut options = [&list[..], &end].concat();
        assert!(cut_routers(&mut options));
        let first = [0, 51, 4, 0, 0, 1, 0, 3, 4, 10, 0, 0, 1];
        assert_eq!(options, [&first[..], &[0; 8], &end].concat());
        assert!(!cut_routers(&mut options), "one is left");
        for cut in [&[3][..], &[3, 8], &[3, 8, 10, 0, 0, 1], &[]] {
            assert!(!cut_routers(&mut cut.to_vec()), "{cut:?}");
        }
    }
}
