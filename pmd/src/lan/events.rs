//! The firmware's reports while the device is in service.

use crate::admin::commands::LinkState;
use crate::admin::{AdminError, AdminEvent};
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
    /// Reads a report; never fails, unknown reports are kept.
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
