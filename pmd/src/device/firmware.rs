//! Reports of the firmware, taken from a device in service.

use super::Device;
use crate::admin::AdminEvent;
use crate::admin::commands::LinkState;
use crate::bring_up::StageError;
use crate::lan::FirmwareEvent;
use crate::lan::link::{as_configured, wanted_config};
use crate::rdma::Event;
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::link::{link_events, report_mode};
use std::sync::atomic::Ordering;

impl Device {
    /// Takes the firmware's reports since the last call, at most one full ring.
    ///
    /// The firmware reports one change of the link and then no more until it is asked again, which
    /// this does. Its answer is the state by then: it is the last report, unless the reports end with
    /// the same state.
    ///
    /// Control path: it reads registers and, after a change of the link, waits for one command.
    /// Errors: those of the admin queue; a device that was shut down has none.
    ///
    /// Source: ice `ice_main.c`, `ice_link_event`.
    pub fn poll_firmware_events(&self) -> Result<Vec<FirmwareEvent>, StageError> {
        let reported = self.context().admin()?.take_events()?;
        if reported.iter().any(is_of_the_link) {
            self.link_events_due.store(true, Ordering::Release);
        }
        let mut events: Vec<_> = reported.into_iter().map(FirmwareEvent::decode).collect();
        // Taken before the command: a report that comes right after it asks again.
        if self.link_events_due.swap(false, Ordering::AcqRel) {
            self.ask_for_link_events(&mut events);
        }
        Ok(events)
    }

    /// Enables link events again and appends the state of the link. A command that fails is repeated by
    /// the next call.
    fn ask_for_link_events(&self, events: &mut Vec<FirmwareEvent>) {
        let state = match self.link_status(link_events::ENABLE) {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(%error, "link events stay disabled for the time being");
                self.link_events_due.store(true, Ordering::Release);
                return;
            }
        };
        let mut states = events.iter().rev().filter_map(|event| match event {
            FirmwareEvent::Link(state) => Some(*state),
            _ => None,
        });
        if states.next() != Some(state) {
            events.push(FirmwareEvent::Link(state));
        }
        if state.media {
            self.configure_late_phy();
        }
    }

    /// Applies the settings of the PHY that the bring-up could not apply for lack of a module. Their
    /// undo was recorded then.
    fn configure_late_phy(&self) {
        let facts = self.facts();
        let is_done = self.phy_life.swap(self.life, Ordering::AcqRel) == self.life;
        if !facts.phy_waits_for_module || is_done {
            return;
        }
        if let Err(error) = self.request_phy() {
            tracing::warn!(%error, "the PHY stays as it is until the device is brought up again");
        }
    }

    fn request_phy(&self) -> Result<(), StageError> {
        let admin = self.context().admin()?;
        let port = self.facts().switch()?.port;
        let possible = admin.phy_capabilities(report_mode::TOPOLOGY_WITH_MEDIA)?;
        let active = admin.phy_capabilities(report_mode::ACTIVE)?;
        match wanted_config(&possible, &active, self.config().link.speed) {
            Some(wanted) if wanted != as_configured(&active) => {
                Ok(admin.set_phy_config(port, &wanted)?)
            }
            Some(_) => Ok(()),
            None => Err(StageError::unsupported_speed(self.config().link.speed)),
        }
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
        self.link_status(link_events::KEEP)
    }

    fn link_status(&self, events: u16) -> Result<LinkState, StageError> {
        let port = self.facts().switch()?.port;
        Ok(self.context().admin()?.link_status(port, events)?)
    }
}

fn is_of_the_link(event: &AdminEvent) -> bool {
    event.opcode == Opcode::GetLinkStatus
}
