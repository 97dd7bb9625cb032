//! Local addresses, and the device's table of MAC addresses ("ARP table").

use super::RdmaError;
use super::numbers::{Numbers, within};
use rand::Rng;
use ringside_config::{LocalAddress, NetworkSection, is_of_a_host};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A MAC address, first octet first.
pub type MacAddress = [u8; 6];

/// The modified EUI-64 of a MAC address (RFC 4291, appendix A): the GUID of its RDMA node.
#[must_use]
pub const fn eui_64(mac: MacAddress) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 0x02, b, c, 0xFF, 0xFE, d, e, f]
}

/// The IPv6 link-local address of a MAC address (RFC 4291, appendix A).
#[must_use]
pub const fn link_local(mac: MacAddress) -> Ipv6Addr {
    let [a, b, c, d, e, f, g, h] = eui_64(mac);
    Ipv6Addr::from_octets([0xFE, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h])
}

/// The MAC address in a link-local address that was made of one (RFC 4291, appendix A).
#[must_use]
pub fn mac_of_link_local(address: Ipv6Addr) -> Option<MacAddress> {
    let [0xFE, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xFF, 0xFE, d, e, f] = address.octets() else {
        return None;
    };
    Some([a ^ 0x02, b, c, d, e, f])
}

/// Returns an IPv4 address in 10.0.0.0/8 made from the last three octets of a MAC address, for
/// networks without assigned addresses. The first and the last one there are no host's: for them it
/// is the one beside.
#[must_use]
pub fn private_address(mac: MacAddress) -> Ipv4Addr {
    let [_, _, _, d, e, f] = mac;
    match [d, e, f] {
        [0, 0, 0] => Ipv4Addr::new(10, 0, 0, 1),
        [0xFF, 0xFF, 0xFF] => Ipv4Addr::new(10, 0xFF, 0xFF, 0xFE),
        [d, e, f] => Ipv4Addr::new(10, d, e, f),
    }
}

/// The IPv4 address of a port whose configuration has none: [`private_address`] with its network.
#[must_use]
pub fn automatic_address(section: &NetworkSection, mac: MacAddress) -> Option<LocalAddress> {
    let has_one = section.addresses.iter().any(|own| own.address.is_ipv4());
    (!has_one).then(|| LocalAddress::new(IpAddr::V4(private_address(mac)), 8))
}

/// The addresses of a port: those of the configuration, a private one if none of them is of IPv4,
/// and the link-local one.
#[must_use]
pub fn local_addresses(section: &NetworkSection, mac: MacAddress) -> Vec<LocalAddress> {
    let mut addresses = section.addresses.clone();
    let link_local = LocalAddress::new(IpAddr::V6(link_local(mac)), 64);
    for address in automatic_address(section, mac)
        .into_iter()
        .chain([link_local])
    {
        if !addresses.iter().any(|own| own.address == address.address) {
            addresses.push(address);
        }
    }
    addresses
}

/// An address as the device stores it: the first octet on the wire is the most significant, an IPv4
/// address is the low 32 bits.
#[must_use]
pub(crate) fn as_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A VLAN tag with another priority, 0..=7.
pub(crate) const fn with_priority(tag: u16, level: u8) -> u16 {
    (tag & 0x1FFF) | ((level as u16 & 7) << 13)
}

/// The VLAN tag of packets: `tag` with the priority of the service level, if one is given.
///
/// Errors: [`RdmaError::OutOfRange`] for a level beyond 7, and for VLAN 4095, which is reserved.
/// Source: IEEE 802.1Q, table 9-2.
pub(crate) fn tag_of(tag: Option<u16>, level: Option<u8>) -> Result<Option<u16>, RdmaError> {
    if let Some(level) = level {
        within("the service level", level.into(), 0, 7)?;
    }
    let Some(tag) = tag else {
        return Ok(None);
    };
    within("the number of a VLAN", (tag & 0xFFF).into(), 0, 4094)?;
    Ok(Some(level.map_or(tag, |level| with_priority(tag, level))))
}

/// The number of the VLAN in a tag; `None` for 0, which is no VLAN. The priority is no part of it.
///
/// Errors: [`RdmaError::OutOfRange`] for VLAN 4095.
pub(crate) fn vlan_of(tag: Option<u16>) -> Result<Option<u16>, RdmaError> {
    let number = tag_of(tag, None)?.map(|tag| tag & 0xFFF);
    Ok(number.filter(|number| *number != 0))
}

/// Refuses an address that no single peer has. Errors: [`RdmaError::NotUnicast`].
pub(crate) fn unicast(address: IpAddr) -> Result<(), RdmaError> {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    match address.is_unspecified() || address.is_multicast() || is_broadcast {
        true => Err(RdmaError::NotUnicast { address }),
        false => Ok(()),
    }
}

/// Refuses an address that no station sends from. Errors: [`RdmaError::NotUnicast`].
pub(crate) fn source_address(address: IpAddr) -> Result<IpAddr, RdmaError> {
    match is_of_a_host(address) {
        true => Ok(address),
        false => Err(RdmaError::NotUnicast { address }),
    }
}

/// MAC address of a multicast group (RFC 1112, section 6.4; RFC 2464, section 7); nothing if the
/// address is no group's.
#[must_use]
pub fn multicast_mac(group: IpAddr) -> Option<MacAddress> {
    match group {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            Some([0x01, 0x00, 0x5E, b & 0x7F, c, d])
        }
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        _ => None,
    }
}

/// The entry of the device's table for each MAC address, and its number of users.
#[derive(Debug)]
pub(crate) struct ArpTable {
    numbers: Numbers,
    entries: BTreeMap<MacAddress, Entry>,
}

#[derive(Debug)]
struct Entry {
    index: u16,
    users: u32,
}

/// The steps that give an address an entry, or remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArpChange {
    /// The entry is there, or still needed.
    Nothing(u16),
    /// Write this entry, or delete it.
    Tell(u16),
}

impl ArpTable {
    /// A table for entries `1..count`; entry 0 stays unused.
    pub(crate) fn new(count: u32) -> Self {
        let count = count.min(1 << 12);
        Self {
            numbers: Numbers::new("ARP entries", "rdma.arp_entries", 1..count, count),
            entries: BTreeMap::new(),
        }
    }

    /// One more user of `mac`.
    pub(crate) fn take(
        &mut self,
        mac: MacAddress,
        random: &mut impl Rng,
    ) -> Result<ArpChange, RdmaError> {
        if let Some(entry) = self.entries.get_mut(&mac) {
            entry.users += 1;
            return Ok(ArpChange::Nothing(entry.index));
        }
        let index = self.numbers.take(random)? as u16;
        self.entries.insert(mac, Entry { index, users: 1 });
        Ok(ArpChange::Tell(index))
    }

    /// Removes one user of `mac`; `None` if it has no entry.
    ///
    /// After [`ArpChange::Tell`] the number is free once the device has removed the entry: see
    /// [`ArpTable::forget`].
    pub(crate) fn give(&mut self, mac: MacAddress) -> Option<ArpChange> {
        let entry = self.entries.get_mut(&mac)?;
        entry.users = entry.users.saturating_sub(1);
        let index = entry.index;
        if entry.users > 0 {
            return Some(ArpChange::Nothing(index));
        }
        self.entries.remove(&mac);
        Some(ArpChange::Tell(index))
    }

    /// An entry that the device no longer has.
    pub(crate) fn forget(&mut self, index: u16) {
        self.numbers.give(u32::from(index));
    }
}

#[cfg(test)]
mod tests;
