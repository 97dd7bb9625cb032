//! The port's IP stack: it answers for the device's addresses, and finds the MAC addresses of
//! peers.

use ringside_bus::Clock;
use ringside_connect::Within;
use ringside_pmd::Device;
use ringside_pmd::rdma::Destination;
use ringside_pmd::rdma::address::MacAddress;
use ringside_stack::{ResolveError, Resolver, Stack, StackThread};
use std::error::Error;
use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Between two looks whether a neighbour has answered.
const STEP: Duration = Duration::from_micros(200);

/// A stack on the port's only receive and transmit queue, on a thread of its own. It ends with the
/// process, or with [`Network::end`].
pub(crate) struct Network {
    thread: Mutex<Option<StackThread>>,
    resolver: Resolver,
    clock: Arc<dyn Clock>,
    /// the address of a DHCP server that is in the GID table
    leased: Mutex<Option<ringside_config::LocalAddress>>,
}

fn number_of(error: &ResolveError) -> c_int {
    match error {
        ResolveError::NoAnswer { .. } => libc::ETIMEDOUT,
        _ => libc::EHOSTUNREACH,
    }
}

impl Network {
    /// Opens the port, and starts a stack with the addresses of the GID table.
    pub(crate) fn start(device: &Device) -> Result<Self, Box<dyn Error>> {
        let stack = Stack::of_device(device)?;
        let clock = device.function().clock();
        // The program's own threads handle its signals.
        let before = crate::signals::block_signals();
        let thread = StackThread::start(stack, Arc::clone(&clock));
        crate::signals::restore_signals(&before);
        let thread = thread?;
        Ok(Self {
            resolver: thread.resolver(),
            thread: Mutex::new(Some(thread)),
            clock,
            leased: Mutex::default(),
        })
    }

    /// Ends the stack, and frees its queues and packets.
    pub(crate) fn end(&self) {
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
        loop {
            match self.look(address, within) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => std::thread::sleep(STEP),
                Err(error) => {
                    tracing::warn!(%error, "no way to a peer");
                    return Err(number_of(&error));
                }
            }
        }
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
        match self.look(address, within) {
            Ok(found) => Ok(found.map(|found| found.mac)),
            // There is room for a question again once another one is answered.
            Err(ResolveError::Busy { .. }) => Ok(None),
            Err(error) => {
                tracing::debug!(%error, "no way to a peer");
                Err(number_of(&error))
            }
        }
    }

    fn look(&self, address: IpAddr, within: Within) -> Result<Option<Destination>, ResolveError> {
        match within {
            Within::All => self.resolver.lookup(address, &self.clock),
            Within::Vlan(vlan) => self.resolver.lookup_on(address, vlan, &self.clock),
        }
    }

    /// Announces the addresses again: other stations may have missed that while the link was down.
    pub(crate) fn announce_again(&self) {
        self.resolver.announce_again(&self.clock);
    }

    /// Brings the address of a DHCP server into the GID table, and takes one that is lost out of
    /// it.
    pub(crate) fn follow_lease(&self, device: &Device) {
        let Ok(now) = self.resolver.with(|stack| stack.leased()) else {
            return;
        };
        let mut leased = self.leased.lock().unwrap_or_else(PoisonError::into_inner);
        if *leased == now {
            return;
        }
        if let Some(old) = leased.take()
            && let Err(error) = device.remove_address(old.address, old.vlan)
        {
            tracing::warn!(%error, "an address that is lost stays in the GID table");
        }
        if let Some(new) = now {
            match device.add_address(new) {
                Ok(_) => *leased = now,
                Err(error) => tracing::warn!(%error, "an address has no place in the GID table"),
            }
        }
    }
}
