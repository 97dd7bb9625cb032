//! Changes and makes packets. The bytes come from a peer and are not trusted.

use ringside_lan::{Packet, PacketPool};

const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const TAG_BYTES: usize = 4;
/// Types of VLAN tags: IEEE 802.1Q, 802.1ad, and that of before it.
const TAGS: [[u8; 2]; 3] = [[0x81, 0x00], [0x88, 0xA8], [0x91, 0x00]];

/// Addresses of a port that sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) own: [u8; 6],
    pub(crate) peer: [u8; 6],
}

/// Exchanges source and destination address; false for a packet without an Ethernet header.
pub(crate) fn swap_addresses(packet: &mut Packet) -> bool {
    let Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..]) = packet.bytes_mut() else {
        return false;
    };
    for (one, other) in [(d0, s0), (d1, s1), (d2, s2), (d3, s3), (d4, s4), (d5, s5)] {
        std::mem::swap(one, other);
    }
    true
}

/// Sets both addresses; false for a packet without an Ethernet header.
pub(crate) fn set_addresses(packet: &mut Packet, addresses: Addresses) -> bool {
    let Some(header) = packet.bytes_mut().and_then(|bytes| bytes.get_mut(..12)) else {
        return false;
    };
    let (destination, source) = header.split_at_mut(6);
    destination.copy_from_slice(&addresses.peer);
    source.copy_from_slice(&addresses.own);
    true
}

/// Turns an ARP request or an ICMP echo request, behind two VLAN tags at most, into its answer;
/// false for anything else.
pub(crate) fn answer(packet: &mut Packet, own: [u8; 6]) -> bool {
    let Some(bytes) = packet.bytes_mut() else {
        return false;
    };
    answer_frame(bytes, own)
}

fn answer_frame(bytes: &mut [u8], own: [u8; 6]) -> bool {
    let mut header_bytes = ETHERNET;
    while header_bytes <= ETHERNET + 2 * TAG_BYTES {
        match bytes.get(header_bytes - 2..header_bytes) {
            Some(kind) if kind == ARP => return answer_arp(bytes, header_bytes, own),
            Some(kind) if kind == IPV4 => return answer_echo(bytes, header_bytes, own),
            Some(kind) if TAGS.iter().any(|tag| kind == tag) => header_bytes += TAG_BYTES,
            _ => return false,
        }
    }
    false
}

fn answer_arp(frame: &mut [u8], header_bytes: usize, own: [u8; 6]) -> bool {
    let Some(arp) = frame.get_mut(header_bytes..header_bytes + 28) else {
        return false;
    };
    // Ethernet, IPv4, lengths, request.
    if arp.get(..8) != Some(&[0, 1, 8, 0, 6, 4, 0, 1]) {
        return false;
    }
    let (head, rest) = arp.split_at_mut(8);
    let (sender, target) = rest.split_at_mut(10);
    if let Some(operation) = head.last_mut() {
        *operation = 2;
    }
    // The sender of the query becomes the target; the queried address is ours.
    sender.swap_with_slice(target);
    if let Some(mac) = sender.get_mut(..6) {
        mac.copy_from_slice(&own);
    }
    let asker: Vec<u8> = target.iter().take(6).copied().collect();
    reply_to(frame, &asker, own)
}

fn answer_echo(frame: &mut [u8], header_bytes: usize, own: [u8; 6]) -> bool {
    let Some(ip) = frame.get_mut(header_bytes..) else {
        return false;
    };
    let length = match ip.first() {
        Some(first) if first >> 4 == 4 && first & 0xF >= 5 => usize::from(first & 0xF) * 4,
        _ => return false,
    };
    let is_icmp = ip.get(9) == Some(&1);
    let fragment = ip.get(6..8).is_none_or(|field| {
        field.first().is_none_or(|byte| byte & 0x3F != 0) || field.last() != Some(&0)
    });
    if !is_icmp || fragment || ip.get(length) != Some(&8) || ip.len() < length + 8 {
        return false;
    }
    // No packet comes from a group or from all hosts.
    if ip
        .get(12..20)
        .is_none_or(|both| both.chunks(4).any(is_for_many))
    {
        return false;
    }
    for byte in 12..16 {
        ip.swap(byte, byte + 4);
    }
    let Some([kind, _, high, low, ..]) = ip.get_mut(length..) else {
        return false;
    };
    *kind = 0;
    // The type falls by 8 in the high byte of a word: the checksum rises by as much (RFC 1624).
    let sum = u16::from_be_bytes([*high, *low]);
    let (sum, carry) = sum.overflowing_add(0x0800);
    [*high, *low] = (sum + u16::from(carry)).to_be_bytes();
    let sender: Vec<u8> = frame.iter().skip(6).take(6).copied().collect();
    reply_to(frame, &sender, own)
}

/// True for an IPv4 address that is not one host's.
fn is_for_many(address: &[u8]) -> bool {
    address
        .first()
        .is_none_or(|first| *first >= 224 || *first == 0)
}

fn reply_to(frame: &mut [u8], destination: &[u8], own: [u8; 6]) -> bool {
    let Some(header) = frame.get_mut(..12) else {
        return false;
    };
    let (to, from) = header.split_at_mut(6);
    if destination.len() != to.len() {
        return false;
    }
    to.copy_from_slice(destination);
    from.copy_from_slice(&own);
    true
}

/// Makes packets of UDP between 198.18.0.0 and 198.19.0.0, the addresses for benchmarks of RFC
/// 2544.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    pub(crate) addresses: Addresses,
    template: Vec<u8>,
    flows: u32,
    next: u32,
}

impl Generator {
    pub(crate) fn new(addresses: Addresses, bytes: usize, flows: u32) -> Self {
        let mut template = [addresses.peer.as_slice(), &addresses.own, &IPV4].concat();
        let total = (bytes - ETHERNET) as u16;
        let [high, low] = total.to_be_bytes();
        template.extend([0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        template.extend([198, 18, 0, 1, 198, 19, 0, 1]);
        // Port 9 discards; a checksum of zero means that there is none.
        let [high, low] = (total - 20).to_be_bytes();
        template.extend([0, 9, 0, 9, high, low, 0, 0]);
        template.resize(bytes, 0);
        Self {
            addresses,
            template,
            flows,
            next: 0,
        }
    }

    /// The same packet each time.
    pub(crate) fn same(&mut self, pool: &PacketPool) -> Option<Packet> {
        self.packet(pool, 0)
    }

    /// A packet of the next flow.
    pub(crate) fn next_flow(&mut self, pool: &PacketPool) -> Option<Packet> {
        let flow = self.next;
        self.next = if flow + 1 == self.flows { 0 } else { flow + 1 };
        self.packet(pool, flow)
    }

    fn packet(&self, pool: &PacketPool, flow: u32) -> Option<Packet> {
        let mut packet = pool.packet_with(&self.template)?;
        let [_, _, high, low] = flow.to_be_bytes();
        if let Some(bytes) = packet.bytes_mut()
            && let Some(header) = bytes.get_mut(ETHERNET..ETHERNET + 20)
        {
            if let Some([.., third, fourth]) = header.get_mut(16..20) {
                (*third, *fourth) = (high, low);
            }
            let sum = checksum(header);
            if let Some(field) = header.get_mut(10..12) {
                field.copy_from_slice(&sum.to_be_bytes());
            }
        }
        Some(packet)
    }
}

/// Checksum of a header of IPv4 whose own field is zero.
fn checksum(header: &[u8]) -> u16 {
    let pairs = header.chunks_exact(2);
    let words = pairs.map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn frame(tags: &[u8], kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
        [&[0xFF; 6], &ASKER[..], tags, &kind, payload].concat()
    }

    #[test]
    fn requests_behind_no_one_and_two_tags_are_answered_in_their_vlans() {
        let arp_question = [
            &[0, 1, 8, 0, 6, 4, 0, 1][..],
            &ASKER,
            &[10, 0, 0, 9],
            &[0; 6],
            &[10, 0, 0, 1],
        ]
        .concat();
        let arp_answer = [
            &[0, 1, 8, 0, 6, 4, 0, 2][..],
            &OWN,
            &[10, 0, 0, 1],
            &ASKER,
            &[10, 0, 0, 9],
        ]
        .concat();
        let ip = |ends: [u8; 8], echo: [u8; 8]| {
            let head = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0];
            [&head[..], &ends, &echo].concat()
        };
        let asked = ip([10, 0, 0, 9, 10, 0, 0, 1], [8, 0, 0xF7, 0xFF, 0, 0, 0, 0]);
        let answered = ip([10, 0, 0, 1, 10, 0, 0, 9], [0, 0, 0xFF, 0xFF, 0, 0, 0, 0]);
        // The sum of these ends in a carry, which is added.
        let carried = ip(
            [10, 0, 0, 9, 10, 0, 0, 1],
            [8, 0, 0xF8, 0x01, 0, 0, 0xFF, 0xFD],
        );
        let added = ip(
            [10, 0, 0, 1, 10, 0, 0, 9],
            [0, 0, 0x00, 0x02, 0, 0, 0xFF, 0xFD],
        );
        let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0, 5], &[0x88, 0xA8, 0, 6, 0x81, 0, 0, 5]];
        for tags in tags {
            for (kind, question, answer) in [
                (ARP, &arp_question, &arp_answer),
                (IPV4, &asked, &answered),
                (IPV4, &carried, &added),
            ] {
                let mut bytes = frame(tags, kind, question);
                assert!(answer_frame(&mut bytes, OWN), "{tags:?} {kind:?}");
                let expected = [&ASKER[..], &OWN, tags, &kind, answer].concat();
                assert_eq!(bytes, expected);
            }
        }
        // From a group, to a group and to all hosts.
        for ends in [
            [239, 1, 1, 1, 10, 0, 0, 1],
            [10, 0, 0, 9, 224, 0, 0, 1],
            [10, 0, 0, 9, 255, 255, 255, 255],
        ] {
            let question = ip(ends, [8, 0, 0xF7, 0xFF, 0, 0, 0, 0]);
            let mut bytes = frame(&[], IPV4, &question);
            assert!(!answer_frame(&mut bytes, OWN), "{ends:?}");
        }
        // The first part of a request, and a later one.
        for (at, value) in [(20, 0x20), (20, 1), (21, 1)] {
            let mut bytes = frame(&[], IPV4, &asked);
            bytes[at] = value;
            assert!(!answer_frame(&mut bytes, OWN), "{at}: {value}");
        }
        let three = [[0x81, 0, 0, 5]; 3].concat();
        for tags in [&three[..], &three[..3]] {
            let mut bytes = frame(tags, ARP, &arp_question);
            assert!(!answer_frame(&mut bytes, OWN));
        }
    }
}
