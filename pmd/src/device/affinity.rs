//! Binds the connected interrupts of a card to cores, as the configuration asks.

use super::Device;
use ringside_bus::DeviceAddress;
use ringside_bus::affinity::InterruptTable;

impl Device {
    /// Binds all connected interrupts: the kernel may have set up all of them again to connect one.
    /// A binding that fails is a warning: the device works without.
    pub(super) fn bind_interrupts(&self) {
        let DeviceAddress::Pci { .. } = self.function().address() else {
            return;
        };
        let Ok(engine) = self.engine() else {
            return;
        };
        let address = self.function().address().to_string();
        let table = InterruptTable::default();
        for (vector, event_queue) in engine.connected_vectors() {
            let Some(core) = self.config().core_of_interrupt(event_queue) else {
                continue;
            };
            match table.bind(&address, vector, core) {
                Ok(number) => tracing::info!(%address, vector, number, core, "interrupt bound"),
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }
}
