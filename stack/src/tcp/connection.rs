//! Handles of connections and listeners, for the threads of a program.

use super::error::TcpError;
use super::shared::{Backlog, PIPE_BYTES, Phase, Pipe, Shared};
use super::wake::Waker;
use ringside_clock::{Clock, Deadline};
use ringside_pmd::Birth;
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A TCP connection over the port's own queues.
///
/// The stack moves its bytes: [`Stack::poll`](crate::Stack::poll), or its
/// [`StackThread`](crate::StackThread). Each call has a limit of time, measured by the clock that
/// the connection was made with; a limit of zero does not wait. At most 32 KiB wait in each
/// direction, of which 16 KiB are in the send window.
///
/// Dropping it finishes it in the background: bytes that were written are still delivered, for at
/// most 10 s. Bytes of the peer that were not read are discarded, also those that arrive later: the
/// connection is then reset, so that the peer does not take them for delivered. A failure of the
/// device ends it ([`TcpError::OutOfService`]), also if the device is recovered.
pub struct TcpConnection {
    pub(super) pipe: Arc<Shared<Pipe>>,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) waker: Waker,
    /// A child of a fork has the connection but not its stack.
    pub(crate) birth: Birth,
}

impl std::fmt::Debug for TcpConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpConnection")
            .field("local", &self.local)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl TcpConnection {
    /// The own address.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Waits until the connection is established.
    ///
    /// A connection of a listener or of [`Resolver::connect_tcp`](crate::Resolver::connect_tcp) is.
    /// Errors: [`TcpError::Refused`], [`TcpError::Unanswered`] after `limit`; those of
    /// [`TcpConnection::read`].
    pub fn wait_until_open(&self, limit: Duration) -> Result<(), TcpError> {
        let peer = self.peer;
        let opened = self.wait(limit, |pipe| match &pipe.phase {
            Phase::Connecting => None,
            Phase::Open | Phase::Over => Some(Ok(())),
            Phase::Failed(error) => Some(Err(error.clone())),
        });
        opened.unwrap_or(Err(TcpError::Unanswered { peer, limit }))
    }

    /// Reads at least one byte and at most `into` holds; 0 if the peer has finished, or `into` is
    /// empty.
    ///
    /// Bytes that arrived before a failure are returned first. Errors: [`TcpError::Silent`] after
    /// `limit`, [`TcpError::Broken`], [`TcpError::AddressRemoved`], [`TcpError::OutOfService`],
    /// [`TcpError::Ended`].
    pub fn read(&mut self, into: &mut [u8], limit: Duration) -> Result<usize, TcpError> {
        let was_full = Cell::new(false);
        let read = self.take(into, limit, |inbound, count| {
            was_full.set(inbound.len() >= PIPE_BYTES);
            drop(inbound.drain(..count));
        });
        if was_full.get() {
            // More bytes wait in the stack, and the peer for its window.
            self.waker.wake();
        }
        read
    }

    /// The same, and leaves the bytes for the next read.
    pub fn peek(&self, into: &mut [u8], limit: Duration) -> Result<usize, TcpError> {
        self.take(into, limit, |_, _| {})
    }

    fn take(
        &self,
        into: &mut [u8],
        limit: Duration,
        taken: impl Fn(&mut VecDeque<u8>, usize),
    ) -> Result<usize, TcpError> {
        if into.is_empty() {
            return Ok(0);
        }
        let peer = self.peer;
        let read = self.wait(limit, |pipe| {
            let count = pipe.inbound.len().min(into.len());
            if count > 0 {
                for (place, byte) in into.iter_mut().zip(&pipe.inbound) {
                    *place = *byte;
                }
                taken(&mut pipe.inbound, count);
                return Some(Ok(count));
            }
            if pipe.peer_finished {
                return Some(Ok(0));
            }
            pipe.failure().map(Err)
        });
        read.unwrap_or(Err(TcpError::Silent { peer, limit }))
    }

    /// Hands at least one byte of `from` to the stack, and returns the number; 0 if `from` is
    /// empty.
    ///
    /// Errors: [`TcpError::Stalled`] after `limit`, [`TcpError::Finished`], [`TcpError::Broken`],
    /// [`TcpError::AddressRemoved`], [`TcpError::OutOfService`], [`TcpError::Ended`].
    pub fn write(&mut self, from: &[u8], limit: Duration) -> Result<usize, TcpError> {
        if from.is_empty() {
            return Ok(0);
        }
        let peer = self.peer;
        let written = self.wait(limit, |pipe| {
            if let Some(error) = pipe.failure() {
                return Some(Err(error));
            }
            if pipe.finished {
                return Some(Err(TcpError::Finished(peer)));
            }
            if pipe.phase == Phase::Over {
                return Some(Err(TcpError::Broken(peer)));
            }
            let room = PIPE_BYTES.saturating_sub(pipe.outbound.len());
            let count = room.min(from.len());
            pipe.outbound.extend(from.iter().take(count));
            (count > 0).then_some(Ok(count))
        });
        self.waker.wake();
        written.unwrap_or(Err(TcpError::Stalled { peer, limit }))
    }

    /// Writes all bytes; `limit` is the time for all of them.
    ///
    /// Errors: those of [`TcpConnection::write`]; a part may have been sent.
    pub fn write_all(&mut self, from: &[u8], limit: Duration) -> Result<(), TcpError> {
        let deadline = Deadline::after(&*self.clock, limit);
        let mut rest = from;
        while !rest.is_empty() {
            let left = deadline.end.since(self.clock.now());
            let count = self.write(rest, left).map_err(|error| match error {
                TcpError::Stalled { peer, .. } => TcpError::Stalled { peer, limit },
                other => other,
            })?;
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Finishes sending: the peer reads all that was written, and then the end. Receiving goes on.
    pub fn finish(&mut self) {
        if self.birth.is_here() {
            self.pipe.lock().finished = true;
            self.waker.wake();
        }
    }

    /// Finishes sending, and waits until the peer has confirmed all bytes; then the connection ends
    /// as if it were dropped.
    ///
    /// Errors: [`TcpError::Stalled`] after `limit`; those of [`TcpConnection::read`].
    pub fn close(mut self, limit: Duration) -> Result<(), TcpError> {
        self.finish();
        let peer = self.peer;
        let confirmed = self.wait(limit, |pipe| match pipe.delivered {
            true => Some(Ok(())),
            false => pipe.failure().map(Err),
        });
        confirmed.unwrap_or(Err(TcpError::Stalled { peer, limit }))
    }

    fn wait<T>(
        &self,
        limit: Duration,
        look: impl FnMut(&mut Pipe) -> Option<Result<T, TcpError>>,
    ) -> Option<Result<T, TcpError>> {
        if !self.birth.is_here() {
            return Some(Err(TcpError::Ended));
        }
        self.pipe.wait(&*self.clock, limit, look)
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        if self.birth.is_here() {
            self.pipe.lock().abandoned = true;
            self.waker.wake();
        }
    }
}

/// Waits for TCP connections at an address of the port. Dropping it refuses further ones.
pub struct TcpListener {
    pub(crate) backlog: Arc<Shared<Backlog<TcpConnection>>>,
    pub(crate) address: SocketAddr,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) waker: Waker,
    pub(crate) birth: Birth,
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpListener")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl TcpListener {
    /// The address and the port number that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for one connection, at most `limit`.
    ///
    /// Errors: [`TcpError::NoPeer`] after `limit`, [`TcpError::OutOfService`],
    /// [`TcpError::Ended`].
    pub fn accept(&self, limit: Duration) -> Result<TcpConnection, TcpError> {
        if !self.birth.is_here() {
            return Err(TcpError::Ended);
        }
        let address = self.address;
        let accepted = self.backlog.wait(&*self.clock, limit, |backlog| {
            let next = backlog.ready.pop_front().map(Ok);
            next.or_else(|| backlog.end.clone().map(Err))
        });
        let mut connection = accepted.unwrap_or(Err(TcpError::NoPeer { address, limit }))?;
        // There is room for a further connection.
        self.waker.wake();
        connection.waker = self.waker.clone();
        Ok(connection)
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        if self.birth.is_here() {
            // Connections that were not taken end without the lock.
            let ready = {
                let mut backlog = self.backlog.lock();
                backlog.abandoned = true;
                std::mem::take(&mut backlog.ready)
            };
            drop(ready);
            self.waker.wake();
        }
    }
}
