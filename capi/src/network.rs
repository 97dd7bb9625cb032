//! The port's IP stack: it answers for the device's addresses, and finds the MAC addresses of
//! peers.

use ringside_bus::Clock;
use ringside_bus::signals::BlockedSignals;
use ringside_config::LocalAddress;
use ringside_connect::Within;
use ringside_pmd::Device;
use ringside_pmd::rdma::Destination;
use ringside_pmd::rdma::address::MacAddress;
use ringside_stack::host::{HostError, HostInterface};
use ringside_stack::{LeasedGid, ResolveError, Resolver, Stack, StackThread};
use std::error::Error;
use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// A stack on the port's only receive and transmit queue, on a thread of its own. It ends with the
/// process, or with [`Network::end`].
pub(crate) struct Network {
    thread: Mutex<Option<StackThread>>,
    /// the host's interface, attached to the port of the stack
    host: Option<Arc<Mutex<HostInterface>>>,
    resolver: Resolver,
    clock: Arc<dyn Clock>,
    /// the address of a DHCP server in the GID table, which outlives this stack
    leased: Arc<Mutex<LeasedGid>>,
}

fn number_of(error: &ResolveError) -> c_int {
    match error {
        ResolveError::NoAnswer { .. } => libc::ETIMEDOUT,
        _ => libc::EHOSTUNREACH,
    }
}

/// The MAC address of a way that was looked up.
fn shown(found: Result<Option<Destination>, ResolveError>) -> Result<Option<MacAddress>, c_int> {
    match found {
        Ok(found) => Ok(found.map(|found| found.mac)),
        // There is room for a question again once another one is answered.
        Err(ResolveError::Busy { .. }) => Ok(None),
        Err(error) => {
            tracing::debug!(%error, "no way to a peer");
            Err(number_of(&error))
        }
    }
}

/// Attaches the host's interface, if there is one, to a stack and its port.
fn attach(
    host: Option<&Mutex<HostInterface>>,
    stack: &Resolver,
    (port, mtu): (&ringside_pmd::lan::Port, u16),
) -> Result<(), HostError> {
    let Some(host) = host else {
        return Ok(());
    };
    let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
    host.attach(port, mtu)?;
    Ok(host.hear_groups_of(stack)?)
}

impl Network {
    /// Opens the port, and starts a stack with the addresses of the GID table, except `leased`;
    /// attaches the host's interface to the port.
    pub(crate) fn start(
        device: &Device,
        host: Option<Arc<Mutex<HostInterface>>>,
        leased: Arc<Mutex<LeasedGid>>,
    ) -> Result<Self, Box<dyn Error>> {
        let stack = {
            let mut gid = leased.lock().unwrap_or_else(PoisonError::into_inner);
            Stack::of_device_following(device, &mut gid)?
        };
        let clock = device.function().clock();
        let (port, mtu) = (stack.port().clone(), stack.mtu());
        // The program's own threads handle its signals.
        let blocked = BlockedSignals::new();
        let thread = StackThread::start(stack, Arc::clone(&clock));
        let attached = thread
            .as_ref()
            .map(|thread| attach(host.as_deref(), &thread.resolver(), (&port, mtu)))
            .ok();
        drop(blocked);
        let thread = thread?;
        if let Some(Err(error)) = attached {
            crate::diagnosis::say(&device.function().address().to_string(), &error.to_string());
        }
        Ok(Self {
            resolver: thread.resolver(),
            thread: Mutex::new(Some(thread)),
            host,
            clock,
            leased,
        })
    }

    /// Ends the stack, and frees its queues and packets.
    pub(crate) fn end(&self) {
        if let Some(host) = &self.host {
            host.lock().unwrap_or_else(PoisonError::into_inner).detach();
        }
        self.stop();
    }

    /// Tells routers and switches that the process leaves its multicast groups, for its end.
    pub(crate) fn leave_groups(&self) {
        self.resolver.leave_groups(&self.clock);
    }

    /// Ends the stack's thread alone: the host's interface may be attached to a later stack's port.
    pub(crate) fn stop(&self) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(thread);
    }

    /// True if the stack resolves nothing more: its thread or its queues have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.resolver.has_ended(&self.clock)
    }

    /// The way to a peer; asks by ARP or neighbour discovery, and waits for the answer, 3 s at
    /// most.
    ///
    /// # Errors
    /// `ETIMEDOUT` without an answer, `EHOSTUNREACH` without a route.
    pub(crate) fn resolve(&self, address: IpAddr, within: Within) -> Result<Destination, c_int> {
        let found = self.resolver.resolve(address, within, &self.clock);
        found.map_err(|error| {
            tracing::warn!(%error, "no way to a peer");
            number_of(&error)
        })
    }

    /// Looks for the MAC address of a peer; asks for it if it is new, and does not wait: `None`
    /// until the answer comes.
    ///
    /// # Errors
    /// As from [`Self::resolve`].
    pub(crate) fn find(
        &self,
        address: IpAddr,
        within: Within,
    ) -> Result<Option<MacAddress>, c_int> {
        shown(self.resolver.lookup(address, within, &self.clock))
    }

    /// As [`Self::find`] for many peers, with one question to the stack's thread. The results are
    /// in the order of the addresses.
    pub(crate) fn find_all(
        &self,
        addresses: Vec<(IpAddr, Within)>,
    ) -> Vec<Result<Option<MacAddress>, c_int>> {
        let found = self.resolver.lookup_all(addresses, &self.clock);
        found.into_iter().map(shown).collect()
    }

    /// The own address that packets to a peer have; `None` without a way to it.
    pub(crate) fn source_towards(&self, peer: IpAddr) -> Option<LocalAddress> {
        self.resolver.source_towards(peer)
    }

    /// Announces the addresses again: other stations may have missed that while the link was down.
    pub(crate) fn announce_again(&self) {
        self.resolver.announce_again(&self.clock);
    }

    /// Brings the address of a DHCP server into the GID table, and takes one that is lost out of
    /// it. True if there is one. Does not ask the stack's thread, which may be busy for a while.
    pub(crate) fn follow_lease(&self, device: &Device) -> bool {
        // Locked first: another thread may have looked earlier.
        let mut leased = self.leased.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(now) = self.resolver.leased() else {
            return false;
        };
        leased.follow(now, device, self.clock.now());
        now.is_some()
    }
}
