//! Reports of the firmware, taken from a device in service.

use super::Device;
use crate::admin::commands::LinkState;
use crate::admin::{AdminError, AdminEvent};
use crate::bring_up::StageError;
use crate::lan::FirmwareEvent;
use crate::lan::link::{as_configured, wanted_config};
use crate::rdma::Event;
use ringside_spec::lan::admin::link::{link_events, report_mode};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Calls that ask a busy PHY before the next report of the link.
const PHY_ATTEMPTS: u32 = 50;

/// Settings of the PHY that wait for a module.
#[derive(Debug, Default)]
pub(super) struct LatePhy {
    /// the period of service that the others are of
    life: AtomicU32,
    is_due: AtomicBool,
    attempts: AtomicU32,
}

impl LatePhy {
    /// Begins with what the bring-up of this period of service has found.
    fn begin(&self, life: u32, waits: bool, has_media: bool) {
        if self.life.swap(life, Ordering::AcqRel) != life {
            self.is_due.store(waits, Ordering::Release);
            self.grant(has_media);
        }
    }

    /// Notes whether a module is in the port.
    fn see(&self, has_media: bool) {
        if !has_media {
            self.is_due.store(true, Ordering::Release);
        }
        self.grant(has_media);
    }

    fn grant(&self, has_media: bool) {
        let attempts = if has_media { PHY_ATTEMPTS } else { 0 };
        self.attempts.store(attempts, Ordering::Release);
    }

    /// True if the settings are to be requested now.
    fn takes_attempt(&self) -> bool {
        let take = |left: u32| left.checked_sub(1);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.is_due.load(fetch) && self.attempts.fetch_update(set, fetch, take).is_ok()
    }
}

impl Device {
    /// Takes the firmware's reports since the last call, at most one full ring.
    ///
    /// The firmware reports one change of the link and then no more until it is asked again, which
    /// this does. Its answer is the state by then: it is the last report, unless the reports end
    /// with the same state.
    ///
    /// Control path: it reads registers and, after a change of the link, waits for a command; for
    /// three more when a module came, whose PHY is configured.
    /// Errors: those of the admin queue; a device that was shut down has none.
    ///
    /// Source: ice `ice_main.c`, `ice_link_event`.
    pub fn poll_firmware_events(&self) -> Result<Vec<FirmwareEvent>, StageError> {
        let facts = self.facts();
        let has_media = facts.link.is_some_and(|link| link.media);
        self.late_phy
            .begin(self.life, facts.phy_waits_for_module, has_media);
        let admin = self.context().admin()?;
        let discarded = admin.events_discarded();
        let reported = admin.take_events()?;
        // A report that could not be read may have been one of the link.
        let is_new = reported.iter().any(is_of_the_link) || admin.events_discarded() != discarded;
        let mut events: Vec<_> = reported.into_iter().map(FirmwareEvent::decode).collect();
        // Taken before the command: a report that comes right after it asks again.
        if self.link_events_due.swap(false, Ordering::AcqRel) || is_new {
            self.ask_for_link_events(is_new, &mut events);
        }
        self.configure_late_phy();
        Ok(events)
    }

    /// Enables link events again and appends the state of the link. A command that fails is
    /// repeated by the next call.
    fn ask_for_link_events(&self, is_new: bool, events: &mut Vec<FirmwareEvent>) {
        let state = match self.link_status(link_events::ENABLE) {
            Ok(state) => state,
            Err(error) => {
                match is_new {
                    true => {
                        tracing::warn!(%error, "link events stay disabled for the time being");
                    }
                    false => tracing::debug!(%error, "link events are still disabled"),
                }
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
        for event in &*events {
            if let FirmwareEvent::Link(state) = event {
                self.late_phy.see(state.media);
            }
        }
    }

    /// Applies the settings of the PHY to a module that came in service: a PHY loses them with the
    /// module. A PHY that is busy is asked again by later calls.
    ///
    /// Source: ice `ice_main.c`, `ice_check_media_subtask`.
    fn configure_late_phy(&self) {
        if !self.late_phy.takes_attempt() {
            return;
        }
        match self.request_phy() {
            Err(StageError::Admin(AdminError::Refused {
                code: ReturnCode::Busy,
                ..
            })) => tracing::debug!("the PHY is busy"),
            Err(error) => {
                tracing::warn!(%error, "the PHY stays as it is until another module comes");
                self.late_phy.is_due.store(false, Ordering::Release);
            }
            Ok(()) => self.late_phy.is_due.store(false, Ordering::Release),
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
