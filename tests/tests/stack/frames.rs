//! Frames made by hand, and the stack's answers to them.

use crate::bed::{Bed, Raw};
use ringside_stack::Stack;

/// Code of an ARP question.
pub(crate) const QUESTION: u8 = 1;
/// Code of an ARP answer.
pub(crate) const ANSWER: u8 = 2;

/// Ethernet's minimum, without frame check sequence.
const SHORTEST_BYTES: usize = 60;

/// An ARP question of the station `mac` at `own` for the MAC address of `target`, to all stations.
pub(crate) fn question(mac: [u8; 6], own: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut frame = [
        [0xFF; 6].as_slice(),
        &mac,
        &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, QUESTION],
        &mac,
        &own,
        &[0; 6],
        &target,
    ]
    .concat();
    frame.resize(SHORTEST_BYTES, 0);
    frame
}

/// True for an ARP frame with this code.
pub(crate) fn is_arp(frame: &[u8], code: u8) -> bool {
    frame[12..14] == [0x08, 0x06] && frame[20..22] == [0, code]
}

/// The frame with a VLAN tag: priority in bits 13 to 15, number in bits 0 to 11.
pub(crate) fn tagged(mut frame: Vec<u8>, tag: u16) -> Vec<u8> {
    let [high, low] = tag.to_be_bytes();
    frame.splice(12..12, [0x81, 0x00, high, low]);
    frame
}

/// A frame of an IPv4 packet.
pub(crate) fn ipv4(
    (to, from): ([u8; 6], [u8; 6]),
    protocol: u8,
    (source, target): ([u8; 4], [u8; 4]),
    payload: &[u8],
) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).expect("a packet");
    let [high, low] = length.to_be_bytes();
    // Queries for groups stay on their link: RFC 2236, section 2.
    let hops = if protocol == 2 { 1 } else { 64 };
    let mut packet = [0x45, 0, high, low, 0, 0, 0x40, 0, hops, protocol, 0, 0].to_vec();
    packet.extend(source);
    packet.extend(target);
    let sum = checksum(&packet).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    let mut frame = [to.as_slice(), &from, &[0x08, 0], &packet, payload].concat();
    frame.resize(frame.len().max(SHORTEST_BYTES), 0);
    frame
}

/// A frame of an echo request, with `data` behind its header.
pub(crate) fn echo(
    stations: ([u8; 6], [u8; 6]),
    addresses: ([u8; 4], [u8; 4]),
    data: &[u8],
) -> Vec<u8> {
    const ICMP: u8 = 1;
    let mut message = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend(data);
    let sum = checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    ipv4(stations, ICMP, addresses, &message)
}

/// The checksum of RFC 1071.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| (*low).into());
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    !(sum as u16)
}

/// The frames that the stack sends to the other end in `rounds` rounds.
pub(crate) fn sent(bed: &Bed, stack: &mut Stack, far: &mut Raw, rounds: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..rounds {
        stack.poll(bed.world.clock().now());
        frames.extend(far.poll());
        bed.pass();
    }
    frames
}
