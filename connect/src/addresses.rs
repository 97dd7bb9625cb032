//! The own addresses of a connection manager: those of the device's GID table, as it changes.

use ringside_cm::Manager;
use ringside_config::LocalAddress;
use ringside_pmd::rdma::{Gid, ProtectionDomain};
use std::net::IpAddr;

/// The GID table as it was at the last look.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    gids: Vec<Gid>,
    /// the table's count of changes then
    changes: Option<u64>,
}

impl Addresses {
    /// Reads the table if it has changed, and tells the manager of the difference.
    pub(crate) fn follow(&mut self, domain: &ProtectionDomain, manager: &mut Manager) {
        // Counted first: a change in between is seen at the next look.
        let changes = Some(domain.gid_changes());
        if changes == self.changes {
            return;
        }
        let former = std::mem::replace(&mut self.gids, domain.gids());
        self.changes = changes;
        for gone in former.iter().filter(|gid| !self.gids.contains(gid)) {
            manager.remove_address(gone.address.address, gone.address.vlan);
        }
        for gid in &self.gids {
            manager.add_address(gid.address.address, gid.address.vlan);
        }
    }

    /// A recovered device has a table of its own: the next look reads it.
    pub(crate) fn look_again(&mut self) {
        self.changes = None;
    }

    /// The addresses, each of them once.
    pub(crate) fn list(&self) -> Vec<IpAddr> {
        let mut list = Vec::with_capacity(self.gids.len());
        for gid in &self.gids {
            if !list.contains(&gid.address.address) {
                list.push(gid.address.address);
            }
        }
        list
    }

    /// The own address that reaches a peer, where no route says which: the one of the longest
    /// prefix that holds the peer, else one of its family, link-local if the peer's is.
    pub(crate) fn towards(&self, peer: IpAddr) -> Option<LocalAddress> {
        let near = self
            .gids
            .iter()
            .filter(|gid| gid.address.is_neighbour(peer));
        // Of those with equal prefixes the first.
        if let Some(gid) = near.rev().max_by_key(|gid| gid.address.prefix_bits) {
            return Some(gid.address);
        }
        let narrow = |ip: &IpAddr| matches!(ip, IpAddr::V6(six) if six.is_unicast_link_local());
        let own = self.gids.iter().map(|gid| gid.address);
        let mut same = own.filter(|own| own.address.is_ipv4() == peer.is_ipv4());
        let fitting = same
            .clone()
            .find(|own| narrow(&own.address) == narrow(&peer));
        fitting.or_else(|| same.next())
    }
}
