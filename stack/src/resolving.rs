//! Look-ups of the next hop, on the stack's own thread.

use crate::martian::is_broadcast;
use crate::neighbours::Found;
use crate::route::{Hop, hop};
use crate::{LocalAddress, MacAddress, ResolveError, Stack};
use ringside_clock::{Clock, Instant};
use ringside_config::Within;
use ringside_lan::QueueState;
use ringside_pmd::rdma::Destination;
use std::net::IpAddr;
use std::time::Duration;

/// The time between two polls of the queues during a wait for an answer.
const STEP: Duration = Duration::from_micros(20);

impl Stack {
    /// The way to an address, as RDMA needs it, in these networks as if the stack had no others;
    /// `None` while the answer of a neighbour is waited for: then poll, and ask again. Another VLAN
    /// may have another host with the same address. A group is sent to from the first address of
    /// its IP version, on that one's VLAN.
    ///
    /// Errors: [`ResolveError`].
    pub fn lookup(
        &mut self,
        address: IpAddr,
        within: Within,
        now: Instant,
    ) -> Result<Option<Destination>, ResolveError> {
        if self.queues.receive.state() != QueueState::Running {
            return Err(ResolveError::OutOfService);
        }
        if address.is_unspecified() || is_broadcast(address) {
            return Err(ResolveError::NotUnicast(address));
        }
        if address.to_canonical().is_loopback() {
            return Err(ResolveError::Loopback(address));
        }
        let there = self.networks.iter().filter(|own| within.holds(own));
        let from: Vec<LocalAddress> = there.copied().collect();
        if let Some(group) = Destination::group(address) {
            // A group is one of a VLAN: that of the address that it is sent to from.
            let own = from
                .iter()
                .find(|own| own.address.is_ipv4() == address.is_ipv4());
            return Ok(Some(Destination {
                local_address: own.map(|own| own.address),
                vlan_tag: own.and_then(|own| own.vlan),
                ..group
            }));
        }
        if let Some(own) = from.iter().find(|own| own.address == address) {
            return Ok(Some(self.destination(address, self.mac, own)));
        }
        let Some(Hop { next, own }) = hop(&from, &self.gateways, address) else {
            return Err(ResolveError::NoRoute(address));
        };
        if next == address && own.is_end(address) {
            return Err(ResolveError::NotUnicast(address));
        }
        match self.neighbours.find((own.vlan, next), own.address, now) {
            Found::Mac(mac) => Ok(Some(self.destination(address, mac, &own))),
            Found::Pending => Ok(None),
            Found::Full => Err(ResolveError::Busy {
                limit: crate::neighbours::UNKNOWN,
            }),
            Found::Failed { probes, waited } => Err(ResolveError::NoAnswer {
                address,
                next_hop: next,
                probes,
                waited,
            }),
        }
    }

    /// As [`Self::lookup`] in all networks, and waits for the answer: as long as the settings'
    /// requests take.
    pub fn resolve(
        &mut self,
        address: IpAddr,
        clock: &dyn Clock,
    ) -> Result<Destination, ResolveError> {
        loop {
            if let Some(found) = self.lookup(address, Within::All, clock.now())? {
                return Ok(found);
            }
            if self.poll(clock.now()) == 0 {
                clock.pause(STEP);
            }
        }
    }

    fn destination(&self, address: IpAddr, mac: MacAddress, own: &LocalAddress) -> Destination {
        Destination {
            local_address: Some(own.address),
            vlan_tag: own.vlan,
            ..Destination::new(address, mac)
        }
    }

    /// Forgets the state of a neighbour, so that it is queried again; false if it has none.
    pub fn forget(&mut self, address: IpAddr, vlan: Option<u16>) -> bool {
        self.neighbours.forget((vlan, address))
    }
}
