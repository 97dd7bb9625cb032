//! The port's IP stack during a bench of two processes: peers find this side, and this side finds
//! peers.

use crate::failure::Failure;
use anyhow::anyhow;
use ringside_bus::Clock;
use ringside_config::Within;
use ringside_pmd::Device;
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::{Endpoint, Gid};
use ringside_stack::{Resolver, Stack, StackThread};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

type Clocked = (Stack, Arc<dyn Clock>);

/// A thread that starts the stack's, made before the calling thread is pinned: a thread has the
/// cores of the one that started it, and the stack's must not share the polling one's core.
pub(super) struct Starter<'s> {
    stack: SyncSender<Clocked>,
    started: ScopedJoinHandle<'s, Option<StackThread>>,
}

/// The stack of a device in service. Ends before the device is shut down.
pub(crate) struct Neighbours(Result<(StackThread, Arc<dyn Clock>), String>);

impl<'s> Starter<'s> {
    pub(super) fn spawn<'e>(scope: &'s Scope<'s, 'e>) -> Self {
        let (stack, given): (_, Receiver<Clocked>) = sync_channel(1);
        let started = scope.spawn(move || {
            let (stack, clock) = given.recv().ok()?;
            StackThread::start(stack, clock).ok()
        });
        Self { stack, started }
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
        Neighbours(match started {
            Ok(Some(thread)) => Ok((thread, clock)),
            Ok(None) => Err("no thread for the IP stack".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }
}

impl Neighbours {
    /// The reason why the port answers no ARP.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// The stack, for calls that wait by its clock.
    pub(super) fn resolver(&self) -> Result<(Resolver, &Arc<dyn Clock>), Failure> {
        match &self.0 {
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
        match &self.0 {
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
        (device, Neighbours(Ok((thread, clock))))
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
