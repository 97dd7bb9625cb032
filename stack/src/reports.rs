//! Reports of multicast groups: multicast listener discovery, version 2 (RFC 3810). Switches that
//! look into them send the packets of a group only to ports behind which it was reported.

use crate::MacAddress;
use crate::wire::{ETHERNET_BYTES, IPV6_BYTES, put_header};
use ringside_pmd::rdma::address::multicast_mac;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv6Message, Icmpv6Packet, IpProtocol,
    Ipv6Packet, Ipv6Repr,
};
use std::net::{IpAddr, Ipv6Addr};

/// The group of the routers that take reports. Source: RFC 3810, section 5.2.14.
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0x16);
/// Options of each hop in front of a report: ICMPv6 follows; router alert, and two bytes without
/// meaning. Source: RFC 3810, section 5; RFC 2711, section 2.1.
const OPTIONS: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];
/// Bytes of a report before its records: RFC 3810, section 5.2.
const REPORT_BYTES: usize = 8;
/// Bytes of a record without sources: RFC 3810, section 5.2.4.
const RECORD_BYTES: usize = 20;

/// The type of a record of a group that names no sources. Source: RFC 3810, section 5.2.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Record {
    /// `MODE_IS_EXCLUDE`: the station is in the group.
    Member = 2,
    /// `CHANGE_TO_INCLUDE_MODE` without sources: the station leaves the group.
    Leaves = 3,
    /// `CHANGE_TO_EXCLUDE_MODE`: the station joins the group.
    Joins = 4,
}

/// The frame that reports a record of each group; `own` is a link-local address, or unspecified if
/// there is none.
pub(crate) fn report(
    own_mac: MacAddress,
    own: Ipv6Addr,
    record: Record,
    groups: &[Ipv6Addr],
) -> Option<Vec<u8>> {
    let count = u8::try_from(groups.len()).ok()?;
    let mut message = vec![Icmpv6Message::MldReport.into(), 0, 0, 0, 0, 0, 0, count];
    for group in groups {
        message.extend([record as u8, 0, 0, 0]);
        message.extend(group.octets());
    }
    Icmpv6Packet::new_unchecked(&mut message[..]).fill_checksum(&own, &ROUTERS);
    let packet = Ipv6Repr {
        src_addr: own,
        dst_addr: ROUTERS,
        next_header: IpProtocol::HopByHop,
        payload_len: OPTIONS.len() + message.len(),
        hop_limit: 1,
    };
    let to = EthernetAddress(multicast_mac(IpAddr::V6(ROUTERS))?);
    let mut frame = vec![0; ETHERNET_BYTES + IPV6_BYTES];
    let (ethernet, ip) = frame.split_at_mut(ETHERNET_BYTES);
    put_header(ethernet, own_mac, to, EthernetProtocol::Ipv6);
    packet.emit(&mut Ipv6Packet::new_unchecked(ip));
    frame.extend(OPTIONS);
    frame.extend(message);
    Some(frame)
}

/// Gives the records of a report of smoltcp's the types that they need: smoltcp 0.14 joins a group
/// by [`Record::Leaves`] and leaves it by [`Record::Joins`]. Changes no other frame.
pub(crate) fn correct(frame: &mut [u8]) {
    let Some((headers, message)) =
        frame.split_at_mut_checked(ETHERNET_BYTES + IPV6_BYTES + OPTIONS.len())
    else {
        return;
    };
    let (_, options) = headers.split_at(ETHERNET_BYTES + IPV6_BYTES);
    let (Ok(ethernet), Some((report, records))) = (
        EthernetFrame::new_checked(&*headers),
        message.split_at_mut_checked(REPORT_BYTES),
    ) else {
        return;
    };
    let packet = Ipv6Packet::new_unchecked(ethernet.payload());
    let is_report = ethernet.ethertype() == EthernetProtocol::Ipv6
        && packet.next_header() == IpProtocol::HopByHop
        && options == OPTIONS
        && report.first() == Some(&Icmpv6Message::MldReport.into());
    if !is_report {
        return;
    }
    let (own, to) = (packet.src_addr(), packet.dst_addr());
    for record in records.chunks_exact_mut(RECORD_BYTES) {
        if let Some(kind) = record.first_mut() {
            *kind = match *kind {
                joins if joins == Record::Leaves as u8 => Record::Joins as u8,
                leaves if leaves == Record::Joins as u8 => Record::Leaves as u8,
                other => other,
            };
        }
    }
    Icmpv6Packet::new_unchecked(message).fill_checksum(&own, &to);
}

/// The group that a query in a packet of IPv6 asks for; unspecified if it asks for all.
pub(crate) fn asked(packet: &[u8]) -> Option<Ipv6Addr> {
    let packet = Ipv6Packet::new_checked(packet).ok()?;
    let payload = packet.payload();
    let (next, length) = (*payload.first()?, *payload.get(1)?);
    if packet.next_header() != IpProtocol::HopByHop || IpProtocol::from(next) != IpProtocol::Icmpv6
    {
        return None;
    }
    // The length counts units of 8 bytes behind the first one: RFC 8200, section 4.3.
    let message = payload.get((usize::from(length) + 1) * 8..)?;
    let query = Icmpv6Packet::new_checked(message).ok()?;
    let is_query = query.msg_type() == Icmpv6Message::MldQuery
        && query.verify_checksum(&packet.src_addr(), &packet.dst_addr());
    let group: [u8; 16] = message
        .get(REPORT_BYTES..REPORT_BYTES + 16)?
        .try_into()
        .ok()?;
    is_query.then(|| Ipv6Addr::from(group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::Icmpv6Repr;

    const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
    const GROUP: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 1, 0xFF00, 1);

    fn records(frame: &[u8]) -> Vec<u8> {
        let (own, to) = (Ipv6Addr::UNSPECIFIED, ROUTERS);
        let message = Icmpv6Packet::new_checked(&frame[62..]).unwrap();
        let checks = ChecksumCapabilities::default();
        Icmpv6Repr::parse(&own, &to, &message, &checks).expect("a sound checksum");
        let records = frame[62 + REPORT_BYTES..].chunks(RECORD_BYTES);
        records.map(|record| record[0]).collect()
    }

    #[test]
    fn a_report_goes_to_the_routers_with_an_alert_and_its_checksum_is_sound() {
        let frame = report(MAC, Ipv6Addr::UNSPECIFIED, Record::Joins, &[GROUP, ROUTERS]).unwrap();
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 0x16]);
        assert_eq!(frame[12..14], [0x86, 0xDD]);
        // Payload of 56 bytes, options of each hop, one hop.
        assert_eq!(frame[18..22], [0, 56, 0, 1]);
        assert_eq!(frame.len(), 54 + 56);
        assert_eq!(records(&frame), [4, 4]);
        assert_eq!(frame[74..90], GROUP.octets());
    }

    #[test]
    fn a_query_names_its_group_and_a_report_none() {
        let report = report(MAC, Ipv6Addr::UNSPECIFIED, Record::Joins, &[GROUP, GROUP]).unwrap();
        assert_eq!(asked(&report[14..]), None);
        let mut query = report[14..].to_vec();
        // The message as a query: type 130, the group behind its first 8 bytes.
        query[48] = 130;
        query[56..72].copy_from_slice(&GROUP.octets());
        assert_eq!(asked(&query), None, "a wrong checksum");
        let mut message = Icmpv6Packet::new_unchecked(&mut query[48..]);
        message.fill_checksum(&Ipv6Addr::UNSPECIFIED, &ROUTERS);
        assert_eq!(asked(&query), Some(GROUP));
        for length in 0..query.len() {
            assert_eq!(asked(&query[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn joins_and_leaves_change_places_and_other_frames_stay() {
        let changed = [(Record::Leaves, 4), (Record::Joins, 3), (Record::Member, 2)];
        for (record, expected) in changed {
            let mut frame = report(MAC, Ipv6Addr::UNSPECIFIED, record, &[GROUP]).unwrap();
            correct(&mut frame);
            assert_eq!(records(&frame), [expected], "{record:?}");
        }
        let whole = report(MAC, Ipv6Addr::UNSPECIFIED, Record::Joins, &[GROUP]).unwrap();
        for length in 0..62 + REPORT_BYTES {
            let mut frame = whole[..length].to_vec();
            correct(&mut frame);
            assert_eq!(frame, whole[..length], "{length} bytes");
        }
        // Another ethertype, another header behind that of IPv6, other options, a query.
        for place in [13, 20, 54, 62] {
            let mut frame = whole.clone();
            frame[place] ^= 1;
            let before = frame.clone();
            correct(&mut frame);
            assert_eq!(frame, before, "byte {place}");
        }
    }
}
