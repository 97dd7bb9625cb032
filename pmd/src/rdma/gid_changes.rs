//! Changes of the GID table while the device is in service, and their reports.

use super::RdmaError;
use super::engine::Engine;
use super::event::Event;
use super::gids::Gid;
use ringside_config::LocalAddress;
use std::net::IpAddr;

impl Engine {
    /// Adds an address, and reports it.
    pub(crate) fn add_gid(&self, address: LocalAddress) -> Result<Gid, RdmaError> {
        let gid = self.gids().add(address)?;
        self.tell_gid_change(gid)?;
        Ok(gid)
    }

    /// Removes an address, and reports it.
    pub(crate) fn remove_gid(&self, address: IpAddr, vlan: Option<u16>) -> Result<Gid, RdmaError> {
        let gid = self.gids().remove(address, vlan)?;
        self.tell_gid_change(gid)?;
        Ok(gid)
    }

    /// Reports a change of the table, and resumes the thread that takes events.
    fn tell_gid_change(&self, gid: Gid) -> Result<(), RdmaError> {
        let mut state = self.open_state()?;
        state.service.pending_events.push(Event::GidChange {
            index: gid.index,
            address: gid.address.address,
        });
        for interrupt in &state.service.interrupts {
            interrupt.wake();
        }
        Ok(())
    }
}
