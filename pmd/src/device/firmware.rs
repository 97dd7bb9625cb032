//! Reports of the firmware, taken from a device in service.

use super::Device;
use crate::admin::commands::LinkState;
use crate::bring_up::StageError;
use crate::lan::FirmwareEvent;

impl Device {
    /// Takes what the firmware reported since the last call, at most one ring full.
    ///
    /// Control path: it reads registers. Errors: those of the admin queue; a device that was shut
    /// down has none.
    pub fn poll_firmware_events(&self) -> Result<Vec<FirmwareEvent>, StageError> {
        let events = self.context().admin()?.take_events()?;
        Ok(events.into_iter().map(FirmwareEvent::decode).collect())
    }

    /// Asks the firmware for the state of the link.
    pub fn link_state(&self) -> Result<LinkState, StageError> {
        let port = self.facts().switch()?.port;
        let keep = ringside_spec::lan::admin::link::link_events::KEEP;
        Ok(self.context().admin()?.link_status(port, keep)?)
    }
}
