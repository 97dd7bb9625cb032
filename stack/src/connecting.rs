//! TCP of a stack: listening and connecting, on its own thread and from others.

use crate::route::hop;
use crate::tcp::{SOCKETS, TcpConnection, TcpError, TcpListener, Waker};
use crate::{ResolveError, Resolver, Stack, StackError};
use ringside_clock::{Clock, Deadline};
use ringside_config::Within;
use ringside_lan::QueueState;
use ringside_pmd::Birth;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which a neighbour's answer is looked for.
const LOOK: Duration = Duration::from_micros(500);

impl Stack {
    /// Listens for TCP connections to an own address, or to all of them if it is unspecified
    /// (0.0.0.0 or ::). Port 0 chooses a free one: see [`TcpListener::address`].
    ///
    /// Up to `backlog` connections wait for [`TcpListener::accept`]; further ones are refused. The
    /// stack has 64 connections at most, of 64 KiB each, and 64 listeners. Control path. Errors:
    /// [`TcpError`].
    pub fn listen_tcp(
        &mut self,
        address: SocketAddr,
        backlog: usize,
        clock: &Arc<dyn Clock>,
    ) -> Result<TcpListener, TcpError> {
        if backlog == 0 || backlog > SOCKETS {
            return Err(TcpError::Backlog {
                given: backlog,
                limit: SOCKETS,
            });
        }
        self.require_service()?;
        let ip = address.ip();
        if !ip.is_unspecified() && !self.addresses.iter().any(|own| own.address == ip) {
            let own = self.addresses.iter().map(|own| own.address.to_string());
            return Err(TcpError::NotOwn {
                address: ip,
                own: own.collect::<Vec<_>>().join(", "),
            });
        }
        let listened = self.tcp.listen(address, backlog, &mut self.filters, clock);
        let (address, backlog) = listened?;
        self.pump_tcp(clock.now());
        Ok(TcpListener {
            backlog,
            address,
            clock: Arc::clone(clock),
            waker: Waker::none(),
            birth: Birth::now(),
        })
    }

    /// Asks for a TCP connection to a peer, from the own address in its network. The connection is
    /// [established](TcpConnection::wait_until_open) once the peer has answered.
    ///
    /// Control path. Errors: [`TcpError`].
    pub fn connect_tcp(
        &mut self,
        peer: SocketAddr,
        clock: &Arc<dyn Clock>,
    ) -> Result<TcpConnection, TcpError> {
        self.require_service()?;
        let ip = peer.ip();
        let is_own = self.addresses.iter().any(|own| own.address == ip);
        if is_own || ip.is_multicast() || ip.is_unspecified() || peer.port() == 0 {
            return Err(TcpError::NotPeer(peer));
        }
        let hop = hop(&self.networks, &self.gateways, ip);
        let hop = hop.ok_or(TcpError::Unreachable {
            peer,
            error: ResolveError::NoRoute(ip),
        })?;
        let from = (hop.own.address, hop.own.vlan);
        let parts = (&mut self.links[..], &mut self.filters);
        self.tcp.connect(from, peer, parts, clock)
    }

    fn require_service(&self) -> Result<(), TcpError> {
        match self.queues.receive.state() {
            QueueState::Running => Ok(()),
            _ => Err(TcpError::OutOfService),
        }
    }

    /// Ends TCP: connections with handles fail and are reset, those without go on until they are
    /// [delivered](Stack::is_ending_tcp).
    pub(crate) fn end_tcp(&mut self) {
        let error = self.require_service().err().unwrap_or(TcpError::Ended);
        self.tcp.fail(&error, &mut self.links);
    }

    /// True while bytes that were written, or the end of a connection, wait for the peer.
    pub(crate) fn is_ending_tcp(&mut self) -> bool {
        self.require_service().is_ok() && self.tcp.is_ending(&mut self.links)
    }
}

impl Resolver {
    /// Listens for TCP connections: see [`Stack::listen_tcp`].
    pub fn listen_tcp(
        &self,
        address: SocketAddr,
        backlog: usize,
        clock: &Arc<dyn Clock>,
    ) -> Result<TcpListener, TcpError> {
        let on_its_thread = Arc::clone(clock);
        let listened = self.with(move |stack| stack.listen_tcp(address, backlog, &on_its_thread));
        let mut listener = listened.map_err(of_thread)??;
        listener.waker = waker(self);
        Ok(listener)
    }

    /// Connects to a peer over TCP, within `limit`: finds its MAC address, asks for the connection,
    /// and waits until it is established.
    ///
    /// Control path. Errors: [`TcpError::Unreachable`], [`TcpError::Refused`],
    /// [`TcpError::Unanswered`], and those of [`Stack::connect_tcp`].
    pub fn connect_tcp(
        &self,
        peer: SocketAddr,
        limit: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Result<TcpConnection, TcpError> {
        let deadline = Deadline::after(&**clock, limit);
        let on_its_thread = Arc::clone(clock);
        loop {
            let found = self.lookup(peer.ip(), Within::All, clock);
            match found {
                Ok(Some(_)) => break,
                Ok(None) | Err(ResolveError::Busy { .. }) if !deadline.passed(&**clock) => {
                    std::thread::sleep(LOOK);
                }
                Ok(None) => return Err(TcpError::Unanswered { peer, limit }),
                Err(ResolveError::OutOfService) => return Err(TcpError::OutOfService),
                Err(ResolveError::Ended) => return Err(TcpError::Ended),
                Err(ResolveError::Late { limit }) => return Err(TcpError::Late { limit }),
                Err(error) => return Err(TcpError::Unreachable { peer, error }),
            }
        }
        let asked = self.with(move |stack| stack.connect_tcp(peer, &on_its_thread));
        let mut connection = asked.map_err(of_thread)??;
        connection.waker = waker(self);
        let left = deadline.end.since(clock.now());
        match connection.wait_until_open(left) {
            Err(TcpError::Unanswered { .. }) => Err(TcpError::Unanswered { peer, limit }),
            Err(other) => Err(other),
            Ok(()) => Ok(connection),
        }
    }
}

/// The error of a request that the stack's thread did not serve.
fn of_thread(error: StackError) -> TcpError {
    match error {
        StackError::Late { limit } => TcpError::Late { limit },
        _ => TcpError::Ended,
    }
}

fn waker(resolver: &Resolver) -> Waker {
    let resolver = resolver.clone();
    Waker::of(move || resolver.wake())
}
