//! Starts and ends the IP stack of a device that is shared.

use super::neighbours::{Demand, Neighbours};
use super::served::{Driver, Served};
use crate::network::NetworkError;
use ringside_pmd::lan::{OpenPort, PortError, PortSettings};
use std::sync::{MutexGuard, PoisonError, TryLockError};

impl Served {
    /// The stack. Only in the process that opened the device: in a child by fork the lock may be
    /// held permanently. No thread waits for exclusive use of the device while it holds this.
    pub(crate) fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        let place = &self.neighbours;
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the stack because the configuration wants it. A device that cannot open packet
    /// queues, such as one in safe mode, is opened without.
    ///
    /// Errors: [`NetworkError`], if the configuration names an interface of the host: without the
    /// stack it would carry nothing.
    pub(crate) fn offer_neighbours(&self) -> Result<(), NetworkError> {
        let mut neighbours = self.neighbours();
        let Err(error) = neighbours.start(&self.driver(), Demand::Offered) else {
            return Ok(());
        };
        if neighbours.has_host() {
            return Err(error);
        }
        tracing::warn!(%error, "the port answers no ARP: network.serve has no effect");
        Ok(())
    }

    /// Starts the stack again after a recovery, if it ran before.
    pub(crate) fn restart_neighbours(&self) {
        let mut neighbours = self.neighbours();
        let demand = neighbours.demand();
        if demand == Demand::Nothing {
            return;
        }
        if let Err(error) = neighbours.start_anyway(&self.driver(), demand) {
            tracing::warn!(
                %error,
                "the port answers no ARP after the recovery; call serve_network once the cause is gone"
            );
        }
    }

    /// The stack; `None` while another thread has it: that one may execute control commands
    /// meanwhile, so the housekeeping thread does not wait for it.
    fn free_neighbours(&self) -> Option<MutexGuard<'_, Neighbours>> {
        match self.neighbours.try_lock() {
            Ok(neighbours) => Some(neighbours),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Starts a stack again whose thread has panicked. Not on a device that has failed: its
    /// recovery starts the stack.
    pub(crate) fn revive_neighbours(&self) {
        let Some(mut neighbours) = self.free_neighbours() else {
            return;
        };
        let device = self.driver();
        if !neighbours.has_panicked() || device.failure().is_some() {
            return;
        }
        let demand = neighbours.demand();
        if let Err(error) = neighbours.start_anyway(&device, demand) {
            tracing::debug!(%error, "the port answers no ARP still; trying again");
        }
    }

    /// Announces the addresses of a running stack again, and returns true. False if another thread
    /// has the stack.
    #[must_use]
    pub(crate) fn announce_again(&self) -> bool {
        let Some(neighbours) = self.free_neighbours() else {
            return false;
        };
        if let Some(running) = neighbours.running() {
            running.announce_again();
        }
        true
    }
}

impl Driver<'_> {
    /// Opens the port for packets: see [`ringside_pmd::Device::open_port`]. An IP stack that runs
    /// only because of `network.serve` ends for it, and no recovery starts it again. One that the
    /// program started, by [`Device::serve_network`](crate::Device::serve_network) or by a call
    /// that resolves or connects, keeps the port.
    ///
    /// Control path. Errors: [`PortError`]; the stack then still runs.
    pub fn open_port(&self, settings: &PortSettings) -> Result<OpenPort, PortError> {
        let device: &ringside_pmd::Device = self;
        let opened = device.open_port(settings);
        if !matches!(opened, Err(PortError::AlreadyOpen)) || !self.served.birth.is_here() {
            return opened;
        }
        let mut neighbours = self.served.neighbours();
        if neighbours.demand() != Demand::Offered {
            return opened;
        }
        neighbours.end();
        device.open_port(settings).inspect_err(|_| {
            if let Err(error) = neighbours.start_anyway(device, Demand::Offered) {
                tracing::warn!(%error, "the port answers no ARP any more");
            }
        })
    }
}
