//! An address from a DHCP server, which is made by hand.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{ANSWER, QUESTION, echo, is_arp, question, sent};
use ringside_pmd::Device;
use ringside_stack::{LeasedGid, Stack};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const SERVER: Ipv4Address = Ipv4Addr::new(198, 51, 100, 1);
const OFFERED: Ipv4Address = Ipv4Addr::new(198, 51, 100, 77);

/// The DHCP message in a frame to port 67.
fn request(frame: &[u8]) -> Option<(DhcpMessageType, u32, [u8; 6])> {
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
fn answer(
    kind: DhcpMessageType,
    id: u32,
    (client, offered): ([u8; 6], Ipv4Address),
    mac: [u8; 6],
) -> Vec<u8> {
    let message = DhcpRepr {
        message_type: kind,
        transaction_id: id,
        secs: 0,
        client_hardware_address: EthernetAddress(client),
        client_ip: Ipv4Address::UNSPECIFIED,
        your_ip: offered,
        server_ip: SERVER,
        router: Some(SERVER),
        subnet_mask: Some(Ipv4Address::new(255, 255, 255, 0)),
        relay_agent_ip: Ipv4Address::UNSPECIFIED,
        broadcast: false,
        requested_ip: None,
        client_identifier: None,
        server_identifier: Some(SERVER),
        parameter_request_list: None,
        dns_servers: None,
        max_size: None,
        lease_duration: Some(3600),
        renew_duration: None,
        rebind_duration: None,
        additional_options: &[],
    };
    let checks = ChecksumCapabilities::default();
    let datagram = UdpRepr {
        src_port: 67,
        dst_port: 68,
    };
    let length = message.buffer_len();
    let packet = Ipv4Repr {
        src_addr: SERVER,
        dst_addr: offered,
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
    let (source, destination) = (SERVER.into(), offered.into());
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

#[test]
fn a_granted_address_is_used_and_its_router_is_the_gateway() {
    granted((1, 0));
}

/// Each queue in turn is the stack's: the hash brings the answers to one of them only.
#[test]
fn a_server_s_answers_come_to_the_stack_s_queue_whichever_it_is() {
    for number in 0..4 {
        granted((4, number));
    }
}

/// Answers the stack's requests until it has a lease; returns the requests.
pub(crate) fn lease(bed: &Bed, stack: &mut Stack, server: &mut Raw) -> Vec<DhcpMessageType> {
    lease_of(OFFERED, bed, stack, server)
}

/// As [`lease`], of an address.
fn lease_of(
    offered: Ipv4Address,
    bed: &Bed,
    stack: &mut Stack,
    server: &mut Raw,
) -> Vec<DhcpMessageType> {
    let client = stack.port().mac();
    let mac = server.port.mac();
    let mut heard = Vec::new();
    for _ in 0..2000 {
        stack.poll(bed.world.clock().now());
        for frame in server.poll() {
            let Some((kind, id, from)) = request(&frame) else {
                continue;
            };
            assert_eq!(from, client);
            heard.push(kind);
            let kind = match kind {
                DhcpMessageType::Discover => DhcpMessageType::Offer,
                _ => DhcpMessageType::Ack,
            };
            server.send(&answer(kind, id, (client, offered), mac));
        }
        if stack.leased().is_some() {
            break;
        }
        bed.pass();
    }
    heard
}

/// Removes the lease by hand: the server's router goes with it.
#[test]
fn a_lease_hides_the_configured_router_and_its_end_brings_that_one_back() {
    let bed = Bed::new();
    let mut config = config(&["192.0.2.1/24"]);
    config.network.dhcp = true;
    let configured: IpAddr = "192.0.2.254".parse().expect("an address");
    config.network.gateways = vec![configured];
    let (near, mut stack) = bed.stack(0, &config);
    let mut server = Raw::new(&bed, 1, &settings());
    assert_eq!(stack.gateways(), [configured]);
    lease(&bed, &mut stack, &mut server);
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER), configured]);
    stack
        .remove_address(IpAddr::V4(OFFERED), None)
        .expect("leased");
    assert_eq!(stack.leased(), None);
    assert_eq!(stack.gateways(), [configured]);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// As after a recovery of the device, or where the configuration has the address, too.
#[test]
fn a_lease_of_an_address_that_the_port_has_with_another_prefix_ends_with_it() {
    let bed = Bed::new();
    let mut config = config(&["198.51.100.77/16"]);
    config.network.dhcp = true;
    let (near, mut stack) = bed.stack(0, &config);
    let mut server = Raw::new(&bed, 1, &settings());
    lease(&bed, &mut stack, &mut server);
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER)]);
    stack
        .remove_address(IpAddr::V4(OFFERED), None)
        .expect("leased");
    assert_eq!(stack.leased(), None);
    assert!(stack.gateways().is_empty(), "{:?}", stack.gateways());
    drop(stack);
    bed.finish([near, server.into_device()]);
}

#[test]
fn a_router_that_is_set_during_a_lease_replaces_the_lease_s_one_of_its_kind() {
    let bed = Bed::new();
    let mut config = config(&["192.0.2.1/24", "2001:db8::1/64"]);
    config.network.dhcp = true;
    let (near, mut stack) = bed.stack(0, &config);
    let mut server = Raw::new(&bed, 1, &settings());
    lease(&bed, &mut stack, &mut server);
    let [v4, v6] = ["192.0.2.254", "2001:db8::fe"].map(|text| text.parse::<IpAddr>().unwrap());
    stack.set_gateway(v6).expect("a neighbour");
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER), v6]);
    stack.set_gateway(v4).expect("a neighbour");
    assert_eq!(stack.gateways(), [v6, v4]);
    // It stays when the lease ends.
    stack
        .remove_address(IpAddr::V4(OFFERED), None)
        .expect("leased");
    assert_eq!(stack.gateways(), [v6, v4]);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

#[test]
fn packets_to_other_networks_go_to_the_router_of_the_lease() {
    let bed = Bed::new();
    let mut config = config(&["192.0.2.1/24"]);
    config.network.dhcp = true;
    let configured = Ipv4Addr::new(192, 0, 2, 254);
    config.network.gateways = vec![configured.into()];
    let (near, mut stack) = bed.stack(0, &config);
    let mut server = Raw::new(&bed, 1, &settings());
    lease(&bed, &mut stack, &mut server);
    let Some(IpAddr::V4(own)) = stack.leased().map(|leased| leased.address) else {
        panic!("no lease");
    };
    let Some(IpAddr::V4(router)) = stack.gateways().first().copied() else {
        panic!("no router");
    };
    let (to, from) = (stack.port().mac(), server.port.mac());
    server.send(&echo((to, from), ([203, 0, 113, 5], own.octets()), b"far"));
    let frames = sent(&bed, &mut stack, &mut server, 200);
    let asked = |frame: &Vec<u8>| {
        let is_question = is_arp(frame, QUESTION);
        let target = Ipv4Addr::new(frame[38], frame[39], frame[40], frame[41]);
        // Announcements ask for the own address.
        (is_question && frame[28..32] != target.octets()).then_some(target)
    };
    let asked: Vec<Ipv4Addr> = frames.iter().filter_map(asked).collect();
    assert!(
        !asked.is_empty() && asked.iter().all(|target| *target == router),
        "{asked:?}"
    );
    drop(stack);
    bed.finish([near, server.into_device()]);
}

fn granted(place: (usize, u16)) {
    let bed = Bed::new();
    let mut config = config(&["fd00::1/64"]);
    config.network.dhcp = true;
    let (near, mut stack, others) = bed.stack_beside(0, &config, place);
    let mut server = Raw::new(&bed, 1, &settings());
    let mac = server.port.mac();
    let heard = lease(&bed, &mut stack, &mut server);
    assert_eq!(heard, [DhcpMessageType::Discover, DhcpMessageType::Request]);
    let leased = stack.leased().expect("a lease").to_string();
    assert_eq!(leased, "198.51.100.77/24");
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER)]);
    assert!(
        stack
            .addresses()
            .iter()
            .any(|one| one.address == IpAddr::V4(OFFERED))
    );
    // And it is answered for.
    server.send(&question(mac, SERVER.octets(), OFFERED.octets()));
    let frames = sent(&bed, &mut stack, &mut server, 100);
    let answered = frames.iter().any(|frame| is_arp(frame, ANSWER));
    assert!(answered, "{frames:x?}");
    drop((stack, others));
    bed.finish([near, server.into_device()]);
}

#[test]
fn a_lease_of_another_address_after_a_recovery_replaces_the_former_one() {
    granted_again(Ipv4Addr::new(198, 51, 100, 78));
}

#[test]
fn a_lease_of_the_same_address_after_a_recovery_keeps_it_and_its_end_removes_it() {
    granted_again(OFFERED);
}

/// The addresses of the server's network in the GID table.
fn leased_gids(device: &Device) -> Vec<IpAddr> {
    let gids = device.gids().expect("in service");
    let own = gids.iter().map(|gid| gid.address.address);
    own.filter(|own| matches!(own, IpAddr::V4(own) if own.octets()[..3] == SERVER.octets()[..3]))
        .collect()
}

/// A device that was recovered after its stack had got [`OFFERED`]; its GID table follows the
/// lease.
fn recovered(bed: &Bed) -> (Device, Raw, LeasedGid, Stack) {
    let mut config = config(&["192.0.2.1/24"]);
    config.network.dhcp = true;
    let mut near = bed.device(0, &config);
    let mut server = Raw::new(bed, 1, &settings());
    let mut gid = LeasedGid::default();
    let mut stack = Stack::of_device_following(&near, &mut gid).expect("a stack");
    lease(bed, &mut stack, &mut server);
    gid.follow(stack.leased(), &near, bed.world.clock().now());
    assert_eq!(leased_gids(&near), [IpAddr::V4(OFFERED)]);
    drop(stack);
    near.recover().expect("back in service");
    let stack = Stack::of_device_following(&near, &mut gid).expect("a stack");
    (near, server, gid, stack)
}

fn granted_again(second: Ipv4Address) {
    let bed = Bed::new();
    let now = || bed.world.clock().now();
    let (near, mut server, mut gid, mut stack) = recovered(&bed);
    let index = near.gids().expect("in service").len();
    let is_own = |stack: &Stack, one| stack.addresses().iter().any(|own| own.address == one);
    assert!(!is_own(&stack, IpAddr::V4(OFFERED)), "not granted yet");
    gid.follow(stack.leased(), &near, now());
    assert_eq!(
        leased_gids(&near),
        [IpAddr::V4(OFFERED)],
        "it may be granted again"
    );
    lease_of(second, &bed, &mut stack, &mut server);
    gid.follow(stack.leased(), &near, now());
    assert_eq!(leased_gids(&near), [IpAddr::V4(second)]);
    assert_eq!(near.gids().expect("in service").len(), index);
    assert_eq!(is_own(&stack, IpAddr::V4(OFFERED)), second == OFFERED);

    stack
        .remove_address(IpAddr::V4(second), None)
        .expect("leased");
    gid.follow(stack.leased(), &near, now());
    assert!(leased_gids(&near).is_empty());
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// A server that is gone: the address of the former stack does not stay for ever.
#[test]
fn a_lease_that_is_not_granted_again_after_a_recovery_leaves_the_gid_table() {
    let bed = Bed::new();
    let (near, server, mut gid, stack) = recovered(&bed);
    gid.follow(None, &near, bed.world.clock().now());
    assert_eq!(leased_gids(&near), [IpAddr::V4(OFFERED)]);
    let later = bed.world.clock().now().plus(Duration::from_secs(31));
    gid.follow(None, &near, later);
    assert!(leased_gids(&near).is_empty());
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// The configuration has the address, too: the end of the lease does not take it.
#[test]
fn a_lease_of_an_address_of_the_configuration_leaves_it_in_the_gid_table() {
    let bed = Bed::new();
    let mut config = config(&["198.51.100.77/24"]);
    config.network.dhcp = true;
    let near = bed.device(0, &config);
    let mut gid = LeasedGid::default();
    let own = config.network.addresses[0];
    let now = bed.world.clock().now();
    gid.follow(Some(own), &near, now);
    assert_eq!(gid.added(), None);
    gid.follow(None, &near, now);
    assert_eq!(leased_gids(&near), [IpAddr::V4(OFFERED)]);
    bed.finish([near]);
}
