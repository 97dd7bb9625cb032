//! The port at which each address was last seen.

use crate::packet::MacAddress;

/// Addresses that are remembered; more push out the oldest.
const MAX_ADDRESSES: usize = 256;

/// See the module. Short, so a search from the most recent is faster than any hash.
#[derive(Debug, Default)]
pub(super) struct MacTable {
    entries: Vec<(MacAddress, usize)>,
    next: usize,
    changes: u64,
}

impl MacTable {
    /// Grows whenever an address becomes known, changes its port or is forgotten.
    #[inline]
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    #[inline]
    pub(super) fn find(&self, address: MacAddress) -> Option<usize> {
        let found = self.entries.iter().find(|(known, _)| *known == address);
        found.map(|(_, port)| *port)
    }

    /// Remembers where `address` sends from; group addresses send nothing.
    #[inline]
    pub(super) fn learn(&mut self, address: MacAddress, port: usize) {
        if let Some((_, known)) = self.entries.iter_mut().find(|(known, _)| *known == address) {
            if *known != port {
                *known = port;
                self.changes += 1;
            }
        } else if !crate::frame::is_group(address) {
            self.add(address, port);
        }
    }

    #[cold]
    fn add(&mut self, address: MacAddress, port: usize) {
        self.changes += 1;
        if self.entries.len() < MAX_ADDRESSES {
            self.entries.push((address, port));
        } else if let Some(oldest) = self.entries.get_mut(self.next) {
            *oldest = (address, port);
            self.next = (self.next + 1) % MAX_ADDRESSES;
        }
    }
}
