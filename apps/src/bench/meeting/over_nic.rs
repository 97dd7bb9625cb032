//! The exchange over the port's own stack, for hosts whose only link is the card.

use super::attempts::Attempts;
use super::neighbours::Neighbours;
use crate::failure::Failure;
use ringside_bus::Clock;
use ringside_pmd::Device;
use ringside_rendezvous::{Session, Stream};
use ringside_stack::{ResolveError, TcpConnection, TcpError, TcpListener};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Peers that wait for the bench at once: it serves the first.
const BACKLOG: usize = 1;

/// The time for one request for a connection, at most: a host that was down may be up at the next.
const ATTEMPT: Duration = Duration::from_secs(4);

/// A TCP connection of the port's own stack.
struct OverNic(TcpConnection);

/// The kinds that a session tells apart; its messages name the peer.
fn kind(error: TcpError) -> io::Error {
    match error {
        TcpError::Silent { .. } | TcpError::Stalled { .. } => ErrorKind::TimedOut.into(),
        TcpError::Broken(_) => ErrorKind::ConnectionReset.into(),
        other => io::Error::other(other),
    }
}

impl Stream for OverNic {
    fn read(&mut self, into: &mut [u8], limit: Duration) -> io::Result<usize> {
        self.0.read(into, limit).map_err(kind)
    }

    fn peek(&mut self, into: &mut [u8], limit: Duration) -> io::Result<usize> {
        self.0.peek(into, limit).map_err(kind)
    }

    fn write(&mut self, from: &[u8], limit: Duration) -> io::Result<usize> {
        self.0.write(from, limit).map_err(kind)
    }

    fn finish(&mut self) {
        self.0.finish();
    }
}

fn session(connection: TcpConnection, clock: &Arc<dyn Clock>) -> Session {
    let peer = connection.peer();
    Session::over(Box::new(OverNic(connection)), peer, Arc::clone(clock))
}

/// Listens at an address of the port.
pub(super) fn listen(neighbours: &Neighbours, address: SocketAddr) -> Result<TcpListener, Failure> {
    let (resolver, clock) = neighbours.resolver()?;
    let listener = resolver.listen_tcp(address, BACKLOG, clock);
    listener.map_err(Failure::usage)
}

/// The addresses at which peers reach the listener, as --connect takes them.
pub(super) fn shown(device: &Device, listener: &TcpListener) -> Result<String, Failure> {
    let address = listener.address();
    if !address.ip().is_unspecified() {
        return Ok(address.to_string());
    }
    let own = device.gids().map_err(Failure::operation)?;
    let own = own.iter().map(|gid| gid.address.address);
    let places = own.map(|ip| SocketAddr::new(ip, address.port()).to_string());
    Ok(places.collect::<Vec<_>>().join(" "))
}

/// Waits for one peer, for what is left of `wait`.
pub(super) fn accept(
    neighbours: &Neighbours,
    listener: &TcpListener,
    (left, wait): (Duration, Duration),
) -> Result<Session, Failure> {
    let (_, clock) = neighbours.resolver()?;
    let connection = listener.accept(left).map_err(|error| match error {
        TcpError::NoPeer { address, .. } => TcpError::NoPeer {
            address,
            limit: wait,
        },
        error => error,
    })?;
    Ok(session(connection, clock))
}

/// Connects to the first of the addresses that answers, within `wait`.
pub(super) fn reach(
    neighbours: &Neighbours,
    peers: &[SocketAddr],
    wait: Duration,
) -> Result<Session, Failure> {
    let (resolver, clock) = neighbours.resolver()?;
    let attempts = Attempts {
        peers,
        wait,
        longest: ATTEMPT,
    };
    let connect = |peer, limit| resolver.connect_tcp(peer, limit, clock);
    let reached = attempts.first(connect, may_pass);
    let connection = reached.map_err(|error| explained(error, wait))?;
    Ok(session(connection, clock))
}

/// True for an error that the start of the other side, or of its link, ends.
fn may_pass(error: &TcpError) -> bool {
    match error {
        TcpError::Refused(_) | TcpError::Unanswered { .. } | TcpError::Broken(_) => true,
        TcpError::Unreachable { error, .. } => matches!(
            error,
            ResolveError::NoAnswer { .. } | ResolveError::Busy { .. }
        ),
        _ => false,
    }
}

/// The error, with the time of all attempts.
fn explained(error: TcpError, wait: Duration) -> Failure {
    match error {
        TcpError::Unanswered { peer, .. } => {
            let limit = wait;
            Failure::operation(TcpError::Unanswered { peer, limit })
        }
        error if may_pass(&error) => {
            let further = format!("tried for {} s over the port itself", wait.as_secs());
            Failure::operation(error).and(&further)
        }
        error => Failure::operation(error),
    }
}
