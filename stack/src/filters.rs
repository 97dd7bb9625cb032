//! Frames that the port lets in for the stack.

use crate::MacAddress;
use ringside_pmd::lan::{Port, PortError};
use ringside_pmd::rdma::address::multicast_mac;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// All nodes of a link. Source: RFC 4291, section 2.7.1.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);

/// The group in which an address is solicited. Source: RFC 4291, section 2.7.1.
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let group = 0xFF02_0000_0000_0000_0000_0001_FF00_0000;
    Ipv6Addr::from_bits(group | (address.to_bits() & 0xFF_FFFF))
}

/// The filters that the stack has set, with their users.
#[derive(Debug)]
pub(crate) struct Filters {
    port: Port,
    groups: BTreeMap<MacAddress, usize>,
}

impl Filters {
    pub(crate) const fn new(port: Port) -> Self {
        Self {
            port,
            groups: BTreeMap::new(),
        }
    }

    pub(crate) const fn port(&self) -> &Port {
        &self.port
    }

    /// Lets in what concerns an address: solicitations in its groups.
    pub(crate) fn add_address(&mut self, address: IpAddr) -> Result<(), PortError> {
        let IpAddr::V6(address) = address else {
            return Ok(());
        };
        self.add_group(ALL_NODES)?;
        if let Err(error) = self.add_group(solicited_node(address)) {
            self.remove_group(ALL_NODES);
            return Err(error);
        }
        Ok(())
    }

    /// Takes that back.
    pub(crate) fn remove_address(&mut self, address: IpAddr) {
        if let IpAddr::V6(address) = address {
            self.remove_group(solicited_node(address));
            self.remove_group(ALL_NODES);
        }
    }

    fn add_group(&mut self, group: Ipv6Addr) -> Result<(), PortError> {
        let Some(mac) = multicast_mac(group.into()) else {
            return Ok(());
        };
        if !self.groups.contains_key(&mac) {
            self.port.add_address(mac)?;
        }
        *self.groups.entry(mac).or_default() += 1;
        Ok(())
    }

    fn remove_group(&mut self, group: Ipv6Addr) {
        let Some(mac) = multicast_mac(group.into()) else {
            return;
        };
        let Some(users) = self.groups.get_mut(&mac) else {
            return;
        };
        *users = users.saturating_sub(1);
        if *users > 0 {
            return;
        }
        self.groups.remove(&mac);
        if let Err(error) = self.port.remove_address(mac) {
            tracing::warn!(%error, %group, "the port goes on letting a group in");
        }
    }

    /// Removes all of them.
    pub(crate) fn clear(&mut self) {
        let groups: Vec<_> = std::mem::take(&mut self.groups).into_keys().collect();
        for mac in groups {
            if let Err(error) = self.port.remove_address(mac) {
                tracing::debug!(%error, "a filter of the stack goes with the port");
            }
        }
    }
}
