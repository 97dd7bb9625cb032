//! Destination MAC addresses.

/// The addresses of the ARP table, by index.
#[derive(Debug, Default)]
pub(in crate::rdma) struct ArpTable {
    entries: Vec<Option<[u8; 6]>>,
    changes: u64,
}

impl ArpTable {
    /// The address of an entry, if it has one.
    #[inline]
    pub(in crate::rdma) fn get(&self, index: u16) -> Option<[u8; 6]> {
        self.entries.get(usize::from(index)).copied().flatten()
    }

    /// True if the table has this entry, with an address or without.
    pub(in crate::rdma) fn holds(&self, index: u16) -> bool {
        usize::from(index) < self.entries.len()
    }

    /// Sets or removes an address; nothing outside the table.
    pub(in crate::rdma) fn set(&mut self, index: u16, address: Option<[u8; 6]>) {
        if let Some(entry) = self.entries.get_mut(usize::from(index)) {
            *entry = address;
            self.changes += 1;
        }
    }

    /// Goes on with `count` entries, none of which has an address.
    pub(in crate::rdma) fn clear(&mut self, count: u32) {
        self.entries = vec![None; count as usize];
        self.changes += 1;
    }

    /// Every entry in order.
    pub(in crate::rdma) fn entries(&self) -> &[Option<[u8; 6]>] {
        &self.entries
    }

    /// Grows with every change, also when the table is cleared.
    #[inline]
    pub(in crate::rdma) const fn changes(&self) -> u64 {
        self.changes
    }
}
