//! Detection of malicious drivers: the registers that name the first event.
//!
//! Source: ice `ice_main.c`, `ice_handle_mdd_event`.

use super::FunctionModel;
use ringside_spec::lan::registers::reset::{
    FUNCTION_MALICIOUS_TRANSMIT_DATA, MALICIOUS_TRANSMIT_DATA, MaliciousEvent,
};

impl FunctionModel {
    /// Sets the registers for the queues that were stopped; an event that was not cleared stays.
    #[cold]
    pub(super) fn name_malicious(&mut self) {
        let function = self.settings.pci_function;
        for (queue, kind) in std::mem::take(&mut self.causes.malicious) {
            let event = MaliciousEvent::ZERO
                .with_queue(queue.into())
                .with_function(function.into())
                .with_kind(kind.into())
                .with_valid(true);
            if !MaliciousEvent(self.registers.get(MALICIOUS_TRANSMIT_DATA)).valid() {
                self.registers.set(MALICIOUS_TRANSMIT_DATA, event.0);
            }
            self.registers.set(FUNCTION_MALICIOUS_TRANSMIT_DATA, 1);
        }
    }

    /// Address and length of the ring of a transmit queue: for tests that damage a descriptor
    /// between driver and device.
    #[must_use]
    pub fn transmit_ring(&self, queue: u16) -> Option<(ringside_bus::Iova, u16)> {
        self.lan.transmit_ring(queue)
    }
}
