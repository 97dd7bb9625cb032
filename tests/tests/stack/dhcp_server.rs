//! A DHCP server that is made by hand.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{ANSWER, is_arp, question, sent};
use ringside_pmd::Device;
use ringside_stack::Stack;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress, EthernetFrame,
    EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket,
    UdpRepr,
};
use std::net::Ipv4Addr;

pub(crate) const SERVER: Ipv4Address = Ipv4Addr::new(198, 51, 100, 1);
pub(crate) const OTHER_SERVER: Ipv4Address = Ipv4Addr::new(198, 51, 100, 2);
pub(crate) const OFFERED: Ipv4Address = Ipv4Addr::new(198, 51, 100, 77);

/// The lease that a server has for the stack.
#[derive(Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) server: Ipv4Address,
    /// its messages come from here
    pub(crate) relay: Option<Ipv4Address>,
    pub(crate) address: Ipv4Address,
    pub(crate) router: Ipv4Address,
    /// another one, named behind it
    pub(crate) second_router: Option<Ipv4Address>,
    pub(crate) mask: Option<Ipv4Address>,
    pub(crate) seconds: u32,
}

pub(crate) const GRANT: Grant = Grant {
    server: SERVER,
    relay: None,
    address: OFFERED,
    router: SERVER,
    second_router: None,
    mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
    seconds: 3600,
};

/// The DHCP message in a frame to port 67.
pub(crate) fn request(frame: &[u8]) -> Option<(DhcpMessageType, u32, [u8; 6])> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.ethertype() != EthernetProtocol::Ipv4 {
        return None;
    }
    let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
    let datagram = UdpPacket::new_checked(packet.payload()).ok()?;
    if packet.next_header() != IpProtocol::Udp || datagram.dst_port() != 67 {
        return None;
    }
    let message = DhcpPacket::new_checked(datagram.payload()).ok()?;
    let message = DhcpRepr::parse(&message).ok()?;
    Some((
        message.message_type,
        message.transaction_id,
        message.client_hardware_address.0,
    ))
}

/// The server's answer: an offer, or the grant.
pub(crate) fn answer(
    kind: DhcpMessageType,
    id: u32,
    (client, grant): ([u8; 6], Grant),
    mac: [u8; 6],
) -> Vec<u8> {
    let routers = [Some(grant.router), grant.second_router].map(|one| one.map(|one| one.octets()));
    let routers = routers.into_iter().flatten().flatten().collect::<Vec<u8>>();
    let list = [DhcpOption {
        kind: 3,
        data: &routers,
    }];
    let message = DhcpRepr {
        message_type: kind,
        transaction_id: id,
        secs: 0,
        client_hardware_address: EthernetAddress(client),
        client_ip: Ipv4Address::UNSPECIFIED,
        your_ip: grant.address,
        server_ip: grant.server,
        router: None,
        subnet_mask: grant.mask,
        relay_agent_ip: Ipv4Address::UNSPECIFIED,
        broadcast: false,
        requested_ip: None,
        client_identifier: None,
        server_identifier: Some(grant.server),
        parameter_request_list: None,
        dns_servers: None,
        max_size: None,
        lease_duration: Some(grant.seconds),
        renew_duration: None,
        rebind_duration: None,
        additional_options: &list,
    };
    let checks = ChecksumCapabilities::default();
    let datagram = UdpRepr {
        src_port: 67,
        dst_port: 68,
    };
    let length = message.buffer_len();
    let src_addr = grant.relay.unwrap_or(grant.server);
    let packet = Ipv4Repr {
        src_addr,
        dst_addr: grant.address,
        next_header: IpProtocol::Udp,
        payload_len: 8 + length,
        hop_limit: 64,
    };
    let mut frame = vec![0; 14 + 20 + 8 + length];
    let header = EthernetRepr {
        src_addr: EthernetAddress(mac),
        dst_addr: EthernetAddress(client),
        ethertype: EthernetProtocol::Ipv4,
    };
    header.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
    packet.emit(&mut Ipv4Packet::new_unchecked(&mut frame[14..]), &checks);
    let (source, destination) = (src_addr.into(), grant.address.into());
    let mut place = UdpPacket::new_unchecked(&mut frame[34..]);
    datagram.emit(
        &mut place,
        &source,
        &destination,
        length,
        |payload| {
            let mut place = DhcpPacket::new_unchecked(payload);
            message.emit(&mut place).expect("room");
        },
        &checks,
    );
    frame
}

/// A stack that searches for DHCP servers beside these addresses, and a station that may be one.
pub(crate) fn searching(addresses: &[&str]) -> (Bed, Device, Stack, Raw) {
    let bed = Bed::new();
    let mut config = config(addresses);
    config.network.dhcp = true;
    let (near, stack) = bed.stack(0, &config);
    let server = Raw::new(&bed, 1, &settings());
    (bed, near, stack, server)
}

/// Answers the stack's requests until it has a lease; returns the requests.
pub(crate) fn lease(bed: &Bed, stack: &mut Stack, server: &mut Raw) -> Vec<DhcpMessageType> {
    lease_of(GRANT, bed, stack, server)
}

/// As [`lease`], of an address and a router.
pub(crate) fn lease_of(
    grant: Grant,
    bed: &Bed,
    stack: &mut Stack,
    server: &mut Raw,
) -> Vec<DhcpMessageType> {
    let mut heard = Vec::new();
    for _ in 0..2000 {
        heard.extend(serve(grant, bed, stack, server));
        if stack.leased().is_some() {
            break;
        }
        bed.pass();
    }
    heard
}

/// Lets the stack work once, and answers its requests; returns them.
pub(crate) fn serve(
    grant: Grant,
    bed: &Bed,
    stack: &mut Stack,
    server: &mut Raw,
) -> Vec<DhcpMessageType> {
    let heard = serve_by(bed, stack, server, |kind| match kind {
        DhcpMessageType::Discover => vec![(DhcpMessageType::Offer, grant)],
        _ => vec![(DhcpMessageType::Ack, grant)],
    });
    heard.into_iter().map(|(kind, _)| kind).collect()
}

/// Lets the stack work once, and answers its requests by `answers`; returns them and their
/// identifiers.
pub(crate) fn serve_by(
    bed: &Bed,
    stack: &mut Stack,
    server: &mut Raw,
    answers: impl Fn(DhcpMessageType) -> Vec<(DhcpMessageType, Grant)>,
) -> Vec<(DhcpMessageType, u32)> {
    let client = stack.port().mac();
    let mac = server.port.mac();
    stack.poll(bed.world.clock().now());
    let mut heard = Vec::new();
    for frame in server.poll() {
        let Some((kind, id, from)) = request(&frame) else {
            continue;
        };
        assert_eq!(from, client);
        heard.push((kind, id));
        for (kind, grant) in answers(kind) {
            server.send(&answer(kind, id, (client, grant), mac));
        }
    }
    heard
}

/// Two fragments of a packet.
pub(crate) fn in_two(frame: &[u8]) -> [Vec<u8>; 2] {
    const FIRST_BYTES: usize = 64;
    let part = |bytes: &[u8], flags: [u8; 2]| {
        let mut part = [&frame[..34], bytes].concat();
        part[20..22].copy_from_slice(&flags);
        let mut packet = Ipv4Packet::new_unchecked(&mut part[14..]);
        packet.set_total_len((20 + bytes.len()) as u16);
        packet.fill_checksum();
        part
    };
    let (first, second) = frame[34..].split_at(FIRST_BYTES);
    // More fragments follow; the place of the second in units of 8 bytes.
    [
        part(first, [0x20, 0]),
        part(second, [0, (FIRST_BYTES / 8) as u8]),
    ]
}

/// True if the stack answers a question for the address of the lease.
pub(crate) fn is_answered(bed: &Bed, stack: &mut Stack, server: &mut Raw) -> bool {
    let mac = server.port.mac();
    server.send(&question(mac, SERVER.octets(), OFFERED.octets()));
    let frames = sent(bed, stack, server, 100);
    frames.iter().any(|frame| is_arp(frame, ANSWER))
}
