//! Reports of the firmware, taken from a device in service.

use super::Device;
use crate::admin::commands::LinkState;
use crate::bring_up::StageError;
use crate::lan::FirmwareEvent;
use crate::rdma::Event;

impl Device {
    /// Takes the firmware's reports since the last call, at most one full ring.
    ///
    /// Control path: it reads registers. Errors: those of the admin queue; a device that was shut
    /// down has none.
    pub fn poll_firmware_events(&self) -> Result<Vec<FirmwareEvent>, StageError> {
        let events = self.context().admin()?.take_events()?;
        Ok(events.into_iter().map(FirmwareEvent::decode).collect())
    }

    /// Takes the firmware's reports, and appends [`Event::PortUp`] or [`Event::PortDown`] for each
    /// change of the link since `is_up`, which is `None` before the first call. The other reports
    /// are dropped.
    ///
    /// Control path. Errors: those of [`Device::poll_firmware_events`].
    pub fn poll_port_events(
        &self,
        is_up: &mut Option<bool>,
        events: &mut Vec<Event>,
    ) -> Result<(), StageError> {
        let reported = self.poll_firmware_events()?;
        if is_up.is_none() {
            *is_up = Some(self.link_state()?.up);
            return Ok(());
        }
        for report in reported {
            let FirmwareEvent::Link(state) = report else {
                continue;
            };
            if is_up.replace(state.up) != Some(state.up) {
                events.push(if state.up {
                    Event::PortUp
                } else {
                    Event::PortDown
                });
            }
        }
        Ok(())
    }

    /// Asks the firmware for the state of the link.
    pub fn link_state(&self) -> Result<LinkState, StageError> {
        let port = self.facts().switch()?.port;
        let keep = ringside_spec::lan::admin::link::link_events::KEEP;
        Ok(self.context().admin()?.link_status(port, keep)?)
    }
}
