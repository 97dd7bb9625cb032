//! Faults of a function, and its driver's faults: breaches and remarks.

use super::FunctionModel;
use crate::faults::Fault;
use crate::strict::Breach;

impl FunctionModel {
    /// Adds a fault.
    pub fn inject(&mut self, fault: Fault) {
        self.pending = true;
        if self.happens_once(fault) {
            return;
        }
        self.faults.push(fault);
        self.fault_began(fault);
        self.changed();
    }

    /// Ends all faults of the function.
    pub fn clear_faults(&mut self) {
        for fault in std::mem::take(&mut self.faults) {
            self.fault_ended(fault);
        }
        self.rdma.end_stall();
        self.changed();
    }

    /// Ends one fault of the function.
    pub fn clear_fault(&mut self, fault: Fault) {
        if self.faults.contains(&fault) {
            self.faults.retain(|known| *known != fault);
            self.fault_ended(fault);
        }
        if fault == Fault::ProtocolEngineStall {
            self.rdma.end_stall();
        }
        self.changed();
    }

    /// The faults are others than before.
    fn changed(&mut self) {
        self.refresh();
        self.firmware.link_may_have_changed();
        self.pending = true;
    }

    /// The faults that the function has.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Every breach so far.
    #[must_use]
    pub fn breaches(&self) -> Vec<Breach> {
        self.ledger.breaches()
    }

    /// Every remark so far: accesses that the model does not do as a card would.
    #[must_use]
    pub fn remarks(&self) -> Vec<Breach> {
        self.ledger.remarks()
    }
}
