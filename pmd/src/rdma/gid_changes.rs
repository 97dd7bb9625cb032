//! Changes of the GID table while the device is in service, and their reports.

use super::RdmaError;
use super::engine::Engine;
use super::event::Event;
use super::gids::{Gid, Gids};
use ringside_config::LocalAddress;
use std::net::IpAddr;

impl Engine {
    /// Adds an address, and reports it.
    pub(crate) fn add_gid(&self, address: LocalAddress) -> Result<Gid, RdmaError> {
        self.change_gids(|gids| gids.add(address))
    }

    /// Removes an address, and reports it.
    pub(crate) fn remove_gid(&self, address: IpAddr, vlan: Option<u16>) -> Result<Gid, RdmaError> {
        self.change_gids(|gids| gids.remove(address, vlan))
    }

    /// Changes the table, reports the change, and resumes the thread that takes events. A device
    /// out of service refuses, and the table is unchanged.
    fn change_gids(
        &self,
        change: impl FnOnce(&mut Gids) -> Result<Gid, RdmaError>,
    ) -> Result<Gid, RdmaError> {
        let mut state = self.open_state()?;
        let gid = change(&mut self.gids())?;
        state.report_later([Event::GidChange {
            index: gid.index,
            address: gid.address.address,
        }]);
        Ok(gid)
    }
}
