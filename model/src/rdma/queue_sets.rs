//! Queue sets: the handles through which queue pairs send.
//!
//! A leaf of the work scheduler has one, which sends once the leaf is enabled and the port's own
//! scheduler has the queue set. Without, a card's queue pair is ready to send, and nothing leaves.
//! Source: irdma `ws.c`, `irdma_ws_add`; ice `ice_idc.c`, `ice_add_rdma_qset`.

use std::collections::BTreeSet;

/// The state of a queue set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueSet {
    /// It sends.
    Sends,
    /// A leaf has it that is not enabled.
    Disabled,
    /// The port's scheduler does not have it.
    NotInThePort,
    /// Its leaf is gone.
    Former,
    /// No leaf ever had it.
    NeverGiven,
}

/// Queue sets outside of the tree of the work scheduler.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueSets {
    /// Those of the port's scheduler.
    port: BTreeSet<u16>,
    /// Those whose leaves are gone.
    former: BTreeSet<u16>,
}

impl QueueSets {
    /// A reset: no leaf ever had one.
    pub(super) fn forget(&mut self) {
        self.former.clear();
    }

    /// The queue sets of the port's scheduler; those that are new.
    pub(super) fn set_port(&mut self, sets: BTreeSet<u16>) -> Vec<u16> {
        let new = sets.difference(&self.port).copied().collect();
        self.port = sets;
        new
    }

    /// True if the port's scheduler has it.
    pub(super) fn port_has(&self, handle: u16) -> bool {
        self.port.contains(&handle)
    }

    /// A leaf gets it.
    pub(super) fn give(&mut self, handle: u16) {
        self.former.remove(&handle);
    }

    /// Its leaf is gone.
    pub(super) fn take_back(&mut self, handle: u16) {
        self.former.insert(handle);
    }

    /// The state of a queue set, with its leaf: enabled or not.
    pub(super) fn state(&self, handle: u16, leaf: Option<bool>) -> QueueSet {
        match leaf {
            None if self.former.contains(&handle) => QueueSet::Former,
            None => QueueSet::NeverGiven,
            Some(false) => QueueSet::Disabled,
            Some(true) if !self.port_has(handle) => QueueSet::NotInThePort,
            Some(true) => QueueSet::Sends,
        }
    }
}
