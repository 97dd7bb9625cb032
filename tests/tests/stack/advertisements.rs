//! Advertisements of neighbours over IPv6 that come from another address than the one that they
//! tell of: of stations that answer from their link-local address, and of those that answer for
//! others.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::sent;
use ringside_pmd::rdma::address::multicast_mac;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv6Packet, Icmpv6Repr,
    IpProtocol, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const OWN: &str = "2001:db8:1::1";
const PEER: &str = "2001:db8:1::9";
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0x63];

/// The advertisement of `target` at `mac`, from another address.
fn advertisement(
    (from, source): ([u8; 6], Ipv6Addr),
    (to, destination): ([u8; 6], Ipv6Addr),
    (target, mac): (Ipv6Addr, [u8; 6]),
) -> Vec<u8> {
    let flags = NdiscNeighborFlags::SOLICITED.union(NdiscNeighborFlags::OVERRIDE);
    let message = Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
        flags,
        target_addr: target,
        lladdr: Some(EthernetAddress(mac).into()),
    });
    let packet = Ipv6Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit: 255,
    };
    let header = EthernetRepr {
        src_addr: EthernetAddress(from),
        dst_addr: EthernetAddress(to),
        ethertype: EthernetProtocol::Ipv6,
    };
    let mut frame = vec![0; 14 + 40 + message.buffer_len()];
    header.emit(&mut EthernetFrame::new_unchecked(&mut frame[..14]));
    packet.emit(&mut Ipv6Packet::new_unchecked(&mut frame[14..54]));
    let mut place = Icmpv6Packet::new_unchecked(&mut frame[54..]);
    let checks = ChecksumCapabilities::default();
    message.emit(&source, &destination, &mut place, &checks);
    frame
}

/// The MAC addresses that segments of TCP go to.
fn segments_to(frames: &[Vec<u8>]) -> Vec<[u8; 6]> {
    let of_tcp = frames
        .iter()
        .filter(|frame| frame[12..14] == [0x86, 0xDD] && frame[20] == 6);
    of_tcp.map(|frame| frame[..6].try_into().unwrap()).collect()
}

#[test]
fn an_answer_from_another_address_leads_connections_to_the_station_that_it_names() {
    let bed = Bed::new();
    let (device, mut stack) = bed.stack(0, &config(&[&format!("{OWN}/64"), "fe80::1/64"]));
    let mut far = Raw::new(&bed, 1, &settings());
    far.port.set_all_multicast(true).expect("the device");
    far.port.set_promiscuous(true).expect("the device");
    let clock = bed.world.clock();
    let (own, peer): (Ipv6Addr, Ipv6Addr) = (OWN.parse().unwrap(), PEER.parse().unwrap());
    let to = SocketAddr::new(IpAddr::V6(peer), 4000);
    let connection = stack.connect_tcp(to, &clock).expect("a way");
    let frames = sent(&bed, &mut stack, &mut far, 20);
    let group = multicast_mac("ff02::1:ff00:9".parse().unwrap()).unwrap();
    assert!(
        frames.iter().any(|frame| frame[..6] == group),
        "no question"
    );
    assert_eq!(segments_to(&frames), [[0; 6]; 0]);

    let router = far.port.mac();
    let from = (router, "fe80::9".parse().unwrap());
    far.send(&advertisement(
        from,
        (stack.port().mac(), own),
        (peer, STATION),
    ));
    clock.pause(std::time::Duration::from_secs(1));
    let frames = sent(&bed, &mut stack, &mut far, 20);
    assert!(segments_to(&frames).contains(&STATION), "{frames:x?}");

    // The station that told of it has its own MAC address.
    let near = SocketAddr::new("fe80::9".parse().unwrap(), 4000);
    let other = stack.connect_tcp(near, &clock).expect("a way");
    let frames = sent(&bed, &mut stack, &mut far, 20);
    let to_teller = frames
        .iter()
        .filter(|frame| frame[38..54] == from.1.octets());
    let to_teller = segments_to(&to_teller.cloned().collect::<Vec<_>>());
    assert!(!to_teller.contains(&STATION), "{frames:x?}");
    drop((connection, other, stack));
    bed.finish([device, far.into_device()]);
}
