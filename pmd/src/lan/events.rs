//! The firmware's reports while the device is in service.

use crate::Device;
use crate::admin::commands::LinkState;
use crate::admin::{AdminError, AdminEvent};
use crate::bring_up::StageError;
use ringside_spec::lan::admin::Opcode;

/// A report of the firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirmwareEvent {
    /// The link changed.
    Link(LinkState),
    /// A report whose content makes no sense, and why.
    Malformed(AdminError),
    /// A report that the driver has no use for.
    Other(AdminEvent),
}

impl FirmwareEvent {
    /// Reads a report; never fails, what is not understood is kept.
    #[must_use]
    pub fn decode(event: AdminEvent) -> Self {
        match event.opcode {
            Opcode::GetLinkStatus => match LinkState::decode(&event.data) {
                Ok(state) => Self::Link(state),
                Err(error) => Self::Malformed(error),
            },
            _ => Self::Other(event),
        }
    }
}

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
