//! The GID table: the addresses that the port's queue pairs may send from.
//!
//! The card has no such table: a queue pair's context and an address handle carry their source
//! address. The table is the driver's, so that programs choose a source by its index, and it
//! changes while the device is in service.

use super::RdmaError;
use ringside_config::LocalAddress;
use std::net::IpAddr;

/// The most entries: as many as a configuration may name.
pub const MAX_GIDS: usize = 64;

/// An entry of the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index; it stays the same as long as the address is there.
    pub index: u16,
    /// The address, with its VLAN.
    pub address: LocalAddress,
}

impl Gid {
    /// The 128 bits of verbs: an IPv6 address, or an IPv4 address mapped into one.
    ///
    /// Verbs: `union ibv_gid`. Source: RFC 4291, section 2.5.5.2.
    #[must_use]
    pub const fn octets(&self) -> [u8; 16] {
        match self.address.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }
}

/// The table. An index that was freed is used again by a later address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gids {
    entries: Vec<Option<LocalAddress>>,
    /// counts additions and removals
    changes: u64,
}

impl Gids {
    pub(crate) fn new(addresses: &[LocalAddress]) -> Self {
        Self {
            entries: addresses.iter().copied().map(Some).collect(),
            changes: 0,
        }
    }

    pub(crate) fn all(&self) -> Vec<Gid> {
        self.iter().collect()
    }

    fn iter(&self) -> impl Iterator<Item = Gid> {
        let entries = self.entries.iter().zip(0_u16..);
        entries.filter_map(|(entry, index)| entry.map(|address| Gid { index, address }))
    }

    /// The addresses, in the order of their indexes.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.iter().map(|gid| gid.address.address).collect()
    }

    /// The number of additions and removals until now.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// The first entry with this address.
    pub(crate) fn of(&self, address: IpAddr) -> Option<Gid> {
        self.iter().find(|gid| gid.address.address == address)
    }

    /// The entry that is used where none is chosen.
    pub(crate) fn first(&self) -> Option<LocalAddress> {
        self.iter().next().map(|gid| gid.address)
    }

    /// The entry with this index.
    pub(crate) fn at(&self, index: u16) -> Result<LocalAddress, RdmaError> {
        let entry = self.entries.get(usize::from(index)).copied().flatten();
        entry.ok_or(RdmaError::NoSuchGidIndex { index })
    }

    pub(crate) fn add(&mut self, address: LocalAddress) -> Result<Gid, RdmaError> {
        check(address)?;
        let ip = address.address;
        let same = |gid: &Gid| gid.address.address == ip && gid.address.vlan == address.vlan;
        if let Some(gid) = self.iter().find(same) {
            return Err(RdmaError::GidExists {
                address: ip,
                index: gid.index,
            });
        }
        let place = match self.entries.iter().position(Option::is_none) {
            Some(place) => place,
            None if self.entries.len() < MAX_GIDS => {
                self.entries.push(None);
                self.entries.len() - 1
            }
            None => {
                return Err(RdmaError::AddressesFull {
                    limit: MAX_GIDS as u32,
                });
            }
        };
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = Some(address);
        }
        self.changes += 1;
        let index = place as u16;
        Ok(Gid { index, address })
    }

    pub(crate) fn remove(&mut self, ip: IpAddr, vlan: Option<u16>) -> Result<Gid, RdmaError> {
        let same = |gid: &Gid| gid.address.address == ip && gid.address.vlan == vlan;
        let found = self.iter().find(same);
        let gid = found.ok_or(RdmaError::NoSuchGid { address: ip, vlan })?;
        if let Some(entry) = self.entries.get_mut(usize::from(gid.index)) {
            *entry = None;
        }
        self.changes += 1;
        Ok(gid)
    }
}

/// Refuses an address that no port can have.
fn check(address: LocalAddress) -> Result<(), RdmaError> {
    address
        .check()
        .map_err(|fault| RdmaError::BadAddress { address, fault })
}

#[cfg(test)]
mod tests {
    use super::{Gid, Gids, MAX_GIDS};
    use crate::rdma::RdmaError;
    use ringside_config::LocalAddress;

    fn address(text: &str) -> LocalAddress {
        text.parse().expect("an address")
    }

    #[test]
    fn an_index_stays_with_its_address_and_a_freed_one_is_used_again() {
        let mut gids = Gids::new(&[address("10.0.0.1/8"), address("fe80::1/64")]);
        let added = gids.add(address("192.0.2.1/24@7")).unwrap();
        assert_eq!(added.index, 2);
        gids.remove("10.0.0.1".parse().unwrap(), None).unwrap();
        assert_eq!(gids.at(2).unwrap(), address("192.0.2.1/24@7"));
        assert_eq!(gids.at(0), Err(RdmaError::NoSuchGidIndex { index: 0 }));
        assert_eq!(gids.add(address("2001:db8::1/64")).unwrap().index, 0);
        assert_eq!(gids.all().len(), 3);
    }

    #[test]
    fn an_address_is_there_once_on_each_vlan_and_removed_where_it_is() {
        let mut gids = Gids::new(&[address("10.0.0.1/8")]);
        let ip = "10.0.0.1".parse().unwrap();
        let twice = gids.add(address("10.0.0.1/8"));
        assert_eq!(
            twice,
            Err(RdmaError::GidExists {
                address: ip,
                index: 0
            })
        );
        assert_eq!(gids.add(address("10.0.0.1/8@5")).unwrap().index, 1);
        let vlan = Some(6);
        let missing = gids.remove(ip, vlan).unwrap_err();
        assert_eq!(missing, RdmaError::NoSuchGid { address: ip, vlan });
        assert!(missing.to_string().contains("VLAN 6"), "{missing}");
        assert_eq!(gids.remove(ip, Some(5)).unwrap().index, 1);
        assert_eq!(gids.addresses(), [ip]);
    }

    #[test]
    fn the_table_has_an_end_and_takes_unicast_addresses_alone() {
        let mut gids = Gids::default();
        for last in 0..MAX_GIDS {
            gids.add(address(&format!("10.0.1.{}/8", last + 1)))
                .unwrap();
        }
        let full = gids.add(address("10.0.2.1/8")).unwrap_err();
        assert_eq!(
            full.to_string(),
            "all 64 addresses of the port are in use: remove one first"
        );
        for (ip, text) in [
            ("239.1.1.1", "a port has unicast addresses"),
            ("127.0.0.1", "a port has unicast addresses"),
            ("::", "a port has unicast addresses"),
            (
                "::ffff:10.0.0.1",
                "it stands for an IPv4 address: write 10.0.0.1",
            ),
        ] {
            let refused = gids.add(LocalAddress::new(ip.parse().unwrap(), 8));
            let text = format!("no port has the address {ip}/8: {text}");
            assert_eq!(refused.unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn a_prefix_or_a_vlan_that_does_not_exist_is_refused_with_the_range() {
        let mut gids = Gids::default();
        let v4 = LocalAddress::new([10, 0, 0, 1].into(), 33);
        let v6 = LocalAddress::new("fd00::5".parse().unwrap(), 129);
        let tagged = LocalAddress::new([10, 0, 0, 1].into(), 24).on_vlan(4095);
        for (address, text) in [
            (v4, "10.0.0.1/33: its prefix has 1 to 32 bits"),
            (v6, "fd00::5/129: its prefix has 1 to 128 bits"),
            (tagged, "10.0.0.1/24@4095: a VLAN is 1 to 4094"),
        ] {
            let text = format!("no port has the address {text}");
            assert_eq!(gids.add(address).unwrap_err().to_string(), text);
        }
        assert!(gids.all().is_empty());
    }

    #[test]
    fn an_ipv4_address_is_mapped() {
        let gid = Gid {
            index: 0,
            address: address("192.0.2.1/24"),
        };
        let octets = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 1];
        assert_eq!(gid.octets(), octets);
    }
}
