//! The port's IP stack during a bench of two processes: peers find this side, and this side finds
//! peers.

use crate::failure::{Failure, with_remedies};
use anyhow::{Context, anyhow};
use ringside_bus::Clock;
use ringside_config::{Config, Within};
use ringside_pmd::Device;
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::{Endpoint, Gid, RdmaError};
use ringside_stack::{Resolver, Stack, StackError, StackThread};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

type Clocked = (Stack, Arc<dyn Clock>);

/// A thread that starts the stack's, made before the calling thread is pinned: a thread has the
/// cores of the one that started it, and the stack's must not share the polling one's core.
pub(super) struct Starter<'s> {
    stack: SyncSender<Clocked>,
    started: ScopedJoinHandle<'s, Option<Result<StackThread, StackError>>>,
}

/// The longest wait for a DHCP server.
const LEASE_WAIT: Duration = Duration::from_secs(5);
/// The time between two looks for its answer.
const LEASE_STEP: Duration = Duration::from_millis(10);

/// The stack of a device in service. Ends before the device is shut down.
pub(crate) struct Neighbours {
    stack: Result<(StackThread, Arc<dyn Clock>), String>,
    /// of the address that a DHCP server granted
    leased: Option<Gid>,
}

impl<'s> Starter<'s> {
    /// Errors: the system refuses the thread.
    pub(super) fn spawn<'e>(scope: &'s Scope<'s, 'e>) -> Result<Self, Failure> {
        let (stack, given): (_, Receiver<Clocked>) = sync_channel(1);
        let thread = std::thread::Builder::new().name("stack-starter".into());
        let started = thread.spawn_scoped(scope, move || {
            let (stack, clock) = given.recv().ok()?;
            Some(StackThread::start(stack, clock))
        });
        let started = started.context("starting a thread for the port's IP stack")?;
        Ok(Self { stack, started })
    }

    /// Opens the device's port and starts the stack. A device that has none for it measures
    /// without: the peer then has to know the MAC address.
    pub(super) fn start(self, device: &Device) -> Neighbours {
        let clock = device.function().clock();
        let started = Stack::of_device(device).map(|stack| {
            // A starter that has ended gave no thread.
            let _ = self.stack.send((stack, Arc::clone(&clock)));
            drop(self.stack);
            self.started.join().ok().flatten()
        });
        let stack = match started {
            Ok(Some(Ok(thread))) => Ok((thread, clock)),
            Ok(Some(Err(error))) => Err(with_remedies(error.to_string())),
            Err(error) => Err(error.to_string()),
            Ok(None) => Err("the thread that starts the IP stack's panicked".to_owned()),
        };
        let leased = None;
        Neighbours { stack, leased }
    }
}

/// True if the configuration names an IPv4 address of the port.
pub(crate) fn has_own_ipv4(config: &Config) -> bool {
    let addresses = &config.network.addresses;
    addresses.iter().any(|own| own.address.is_ipv4())
}

impl Neighbours {
    /// The reason why the port answers no ARP.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.stack.as_ref().err().map(String::as_str)
    }

    /// Waits until a DHCP server has granted an address, 5 s at most, and brings it into the GID
    /// table. Errors: none has, or the table has no room.
    pub(super) fn await_lease(&mut self, device: &Device) -> Result<(), Failure> {
        let (resolver, _) = self.resolver()?;
        let end = Instant::now() + LEASE_WAIT;
        let address = loop {
            let leased = resolver.with(|stack| stack.leased());
            if let Some(address) = leased.map_err(Failure::operation)? {
                break address;
            }
            if Instant::now() >= end {
                return Err(Failure::operation(anyhow!(
                    "no DHCP server has granted an address within {} s, which network.dhcp = true \
                     asks for: check that one serves the card's network, or name the address in \
                     network.addresses",
                    LEASE_WAIT.as_secs()
                )));
            }
            std::thread::sleep(LEASE_STEP);
        };
        self.leased = Some(match device.add_address(address) {
            Err(RdmaError::GidExists { index, .. }) => Gid { index, address },
            added => added.map_err(Failure::operation)?,
        });
        Ok(())
    }

    /// The GID that queue pairs send from, instead of the first one: that of the address which a
    /// DHCP server granted, if the configuration names no IPv4 address.
    pub(crate) fn source(&self, device: &Device) -> Option<Gid> {
        self.leased.filter(|_| !has_own_ipv4(device.config()))
    }

    /// The stack, for calls that wait by its clock.
    pub(super) fn resolver(&self) -> Result<(Resolver, &Arc<dyn Clock>), Failure> {
        match &self.stack {
            Ok((thread, clock)) => Ok((thread.resolver(), clock)),
            Err(trouble) => Err(Failure::operation(anyhow!(
                "the port has no IP stack for the exchange: {trouble}"
            ))),
        }
    }

    /// The MAC address that frames to a peer go to: the one that it names, unless it is in no
    /// network of the device, and a router leads to it.
    pub(super) fn next_hop(&self, device: &Device, peer: &Endpoint) -> MacAddress {
        let near = |gid: &Gid| gid.address.is_neighbour(peer.address);
        match device.gids() {
            Ok(gids) if !gids.iter().any(near) => self.mac_of(peer.address).unwrap_or(peer.mac),
            _ => peer.mac,
        }
    }

    /// The MAC address of a peer or of the gateway to it; asks by ARP or neighbour discovery, 3 s
    /// at most.
    pub(crate) fn mac_of(&self, address: IpAddr) -> Result<MacAddress, Failure> {
        match &self.stack {
            Ok((thread, clock)) => {
                let found = thread.resolver().resolve(address, Within::All, clock);
                found.map(|found| found.mac).map_err(Failure::operation)
            }
            Err(trouble) => Err(Failure::operation(anyhow!("{trouble}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_model::Stepped;
    use ringside_testkit::{bring_up, config_without_package, world_settings};

    fn served(
        world: &Stepped,
        index: u16,
        address: &str,
        gateway: &[&str],
    ) -> (Device, Neighbours) {
        let mut config = config_without_package();
        config.network.addresses = vec![address.parse().unwrap()];
        let gateways = gateway.iter().map(|one| one.parse().unwrap());
        config.network.gateways = gateways.collect();
        let device = bring_up(world, index, &config);
        let clock = device.function().clock();
        let stack = Stack::of_device(&device).unwrap();
        let thread = StackThread::start(stack, Arc::clone(&clock)).unwrap();
        let neighbours = Neighbours {
            stack: Ok((thread, clock)),
            leased: None,
        };
        (device, neighbours)
    }

    #[test]
    fn frames_for_a_peer_behind_a_router_go_to_the_router() {
        let world = Stepped::new(&world_settings(2));
        let (near, of_near) = served(&world, 0, "192.0.2.1/24", &["192.0.2.254"]);
        let (router, of_router) = served(&world, 1, "192.0.2.254/24", &[]);
        let peer = |address: &str| Endpoint {
            address: address.parse().unwrap(),
            mac: [2, 0, 0, 0, 0, 9],
            queue_pair: 4,
            start_psn: 1,
            path_mtu: 1024,
        };
        let hop = |served: &Neighbours, device, address| served.next_hop(device, &peer(address));
        let mac = router.facts().mac().unwrap();
        assert_eq!(hop(&of_near, &near, "198.51.100.1"), mac);
        assert_eq!(hop(&of_near, &near, "192.0.2.9"), [2, 0, 0, 0, 0, 9]);
        // No router leads there: both may be on one wire all the same.
        assert_eq!(hop(&of_router, &router, "198.51.100.1"), [2, 0, 0, 0, 0, 9]);
        drop((of_near, of_router));
        for device in [near, router] {
            assert!(device.shutdown().failures.is_empty());
        }
    }
}
