//! The port's IP stack during a bench of two processes: peers find this side, and this side finds
//! peers.

use crate::failure::Failure;
use anyhow::anyhow;
use ringside_bus::Clock;
use ringside_config::Within;
use ringside_pmd::Device;
use ringside_pmd::rdma::address::MacAddress;
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
