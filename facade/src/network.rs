//! The IP stack of an opened device: it answers ARP and neighbour discovery for the port's
//! addresses, and finds the MAC addresses of peers.

use ringside_bus::Clock;
use ringside_config::LocalAddress;
use ringside_connect::{Lookup, NextHop, Peer, StartError, Within};
use ringside_pmd::lan::Port;
use ringside_pmd::rdma::{Destination, RdmaError};
use ringside_stack::host::{HostError, HostInterface};
use ringside_stack::{
    ResolveError, Resolver, ServeError, Stack, StackError, StackThread, TcpConnection, TcpError,
    TcpListener,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Reasons why the IP stack did not start, or did not resolve a peer.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The stack did not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The stack ended, or its thread did not start.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The device is out of service, or refused the change of its GID table.
    #[error(transparent)]
    Device(#[from] RdmaError),
    /// The connection manager did not start.
    #[error(transparent)]
    ConnectionManager(#[from] StartError),
    /// The address has no route, or its next hop did not answer.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The host has no interface over the port.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A TCP connection was not made, or an address cannot be listened on.
    #[error(transparent)]
    Tcp(#[from] TcpError),
}

/// A running stack, on the port's only receive and transmit queue.
pub(crate) struct Network {
    thread: StackThread,
    clock: Arc<dyn Clock>,
    /// the period of service of the device that it belongs to
    life: u32,
}

/// Resolves addresses and connects by a stack that others may use, or end, at the same time.
pub(crate) struct Asker {
    resolver: Resolver,
    clock: Arc<dyn Clock>,
}

impl Asker {
    /// Resolves an address; waits for the neighbour's answer.
    pub(crate) fn resolve(&self, address: IpAddr) -> Result<Destination, ResolveError> {
        self.resolver.resolve(address, Within::All, &self.clock)
    }

    /// Listens for TCP connections.
    pub(crate) fn listen_tcp(
        &self,
        address: SocketAddr,
        backlog: usize,
    ) -> Result<TcpListener, TcpError> {
        self.resolver.listen_tcp(address, backlog, &self.clock)
    }

    /// Connects over TCP; waits for the peer.
    pub(crate) fn connect_tcp(
        &self,
        peer: SocketAddr,
        limit: Duration,
    ) -> Result<TcpConnection, TcpError> {
        self.resolver.connect_tcp(peer, limit, &self.clock)
    }
}

impl Network {
    /// Opens the port with one queue of each kind, and starts a stack with the addresses of the GID
    /// table on it, except the one that a DHCP server granted to a former stack.
    pub(crate) fn start(
        device: &ringside_pmd::Device,
        former: Option<LocalAddress>,
    ) -> Result<Self, NetworkError> {
        let clock = device.function().clock();
        let stack = Stack::of_device_without(device, former)?;
        let thread = StackThread::start(stack, Arc::clone(&clock))?;
        let life = device.life();
        Ok(Self {
            thread,
            clock,
            life,
        })
    }

    /// The period of service of the device that it belongs to; it ends with that.
    pub(crate) const fn life(&self) -> u32 {
        self.life
    }

    /// The port that it runs on, and its MTU in bytes.
    pub(crate) fn port(&self) -> Result<(Port, u16), StackError> {
        let resolver = self.thread.resolver();
        resolver.with(|stack| (stack.port().clone(), stack.mtu()))
    }

    /// Gives the host's interface, attached to the port, the frames to groups that the stack sends.
    pub(crate) fn give_groups_to(&self, host: &HostInterface) -> Result<(), HostError> {
        Ok(host.hear_groups_of(&self.thread.resolver())?)
    }

    /// A handle that resolves addresses while the stack runs.
    pub(crate) fn asker(&self) -> Asker {
        Asker {
            resolver: self.thread.resolver(),
            clock: Arc::clone(&self.clock),
        }
    }

    /// True if the stack resolves nothing more: its thread or its queues have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.resolver().has_ended(&self.clock)
    }

    /// True once the stack's thread has panicked. Does not wait.
    pub(crate) fn has_panicked(&self) -> bool {
        self.thread.has_panicked()
    }

    /// Has the stack's thread panic, as by a packet that it fails at.
    #[cfg(test)]
    pub(crate) fn fail(&self) {
        let panicked = self.thread.resolver().with(|_| panic!("for a test"));
        assert!(matches!(panicked, Err::<(), _>(StackError::Ended)));
    }

    /// Returns a lookup of next hops for the connection manager. It works from any thread while
    /// the stack runs, and does not wait for answers.
    pub(crate) fn finder(&self) -> impl Fn(Peer) -> Lookup<NextHop> + Send + Sync + 'static {
        let (resolver, clock) = (self.thread.resolver(), Arc::clone(&self.clock));
        move |Peer { address, within }| {
            match resolver.lookup(address, within, &clock) {
                Ok(Some(found)) => Lookup::Found(NextHop {
                    mac: found.mac,
                    local_address: found.local_address,
                    vlan: found.vlan_tag,
                }),
                // There is room for a question again once another one is answered.
                Ok(None) | Err(ResolveError::Busy { .. }) => Lookup::Asked,
                Err(error) => {
                    tracing::debug!(%address, %error, "no next hop for the connection manager");
                    Lookup::Unknown
                }
            }
        }
    }

    /// Announces the addresses again, from any thread and without waiting.
    pub(crate) fn announce_again(&self) {
        self.thread.resolver().announce_again(&self.clock);
    }

    /// Adds an address that the stack answers for; a leased one it has already.
    pub(crate) fn add(&self, address: LocalAddress) -> Result<(), StackError> {
        let now = self.clock.now();
        let resolver = self.thread.resolver();
        resolver.with(
            move |stack| match is_leased(stack, address.address, address.vlan) {
                true => Ok(()),
                false => stack.add_address(address, now),
            },
        )?
    }

    /// The address that a DHCP server granted. Does not ask the stack's thread.
    pub(crate) fn leased(&self) -> Option<LocalAddress> {
        self.thread.resolver().leased().ok().flatten()
    }

    /// Removes an address that the stack answers for on a VLAN; a leased one stays.
    pub(crate) fn remove(&self, address: IpAddr, vlan: Option<u16>) -> Result<(), StackError> {
        let resolver = self.thread.resolver();
        resolver.with(move |stack| match stack.leave_to_lease(address, vlan) {
            true => Ok(()),
            false => stack.remove_address(address, vlan),
        })?
    }
}

/// True for the address that a DHCP server granted. The stack answers for it while the lease lasts,
/// in the GID table or not.
fn is_leased(stack: &Stack, address: IpAddr, vlan: Option<u16>) -> bool {
    let leased = stack.leased();
    leased.is_some_and(|leased| leased.address == address && leased.vlan == vlan)
}
