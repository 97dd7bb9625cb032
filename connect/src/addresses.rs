//! The own addresses of a connection manager: those of the device's GID table, as it changes.

use ringside_cm::Manager;
use ringside_config::{LocalAddress, entry_towards, towards};
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

    /// The own address that reaches a peer, where no route says which.
    pub(crate) fn towards(&self, peer: IpAddr) -> Option<LocalAddress> {
        towards(&self.all(), peer)
    }

    /// The entry of an own address that reaches a peer: of one address on several VLANs the nearest
    /// one, else the first.
    pub(crate) fn own_towards(&self, own: IpAddr, peer: IpAddr) -> Option<LocalAddress> {
        entry_towards(&self.all(), own, peer)
    }

    fn all(&self) -> Vec<LocalAddress> {
        self.gids.iter().map(|gid| gid.address).collect()
    }
}
