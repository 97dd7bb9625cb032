//! Two processes that meet over TCP: they exchange [`Greeting`]s, connect, work, and part together.
//!
//! One side [listens](Listener), the other [connects](connect). Both then [greet](Session::greet),
//! once for each connection of queue pairs, and [keep step](Session::keep_step): once when their
//! queue pairs are connected, so that no message meets a peer that cannot receive yet, and once when
//! they are done, so that neither takes down what the other still uses.
//!
//! What the peer sends is bounded and checked ([`Greeting::read`]), and each call has one deadline
//! for all that it does, however slowly the bytes come. The peer is not authenticated: listen on an
//! address that only trusted machines reach.

use super::connection::{ExchangeError, Greeting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Why two processes did not meet.
#[derive(Debug, thiserror::Error)]
pub enum MeetingError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {reason}; choose an address of this machine and a free port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        reason: String,
    },
    /// Nobody connected.
    #[error("nobody connected to {address} within {} ms; start the other side and check the firewall", limit.as_millis())]
    Nobody {
        /// Where was listened.
        address: SocketAddr,
        /// How long.
        limit: Duration,
    },
    /// The other side cannot be reached.
    #[error("cannot connect to {address} within {} ms: {reason}; start the listening side first and check the address", limit.as_millis())]
    Connect {
        /// The other side's address.
        address: SocketAddr,
        /// How long was tried.
        limit: Duration,
        /// What the system said.
        reason: String,
    },
    /// The peer is connected and says nothing.
    #[error("the peer {peer} said nothing within {} ms; it hangs, or is something else", limit.as_millis())]
    Silent {
        /// The peer.
        peer: SocketAddr,
        /// How long was waited.
        limit: Duration,
    },
    /// The peer stopped in the middle.
    #[error("the peer {peer} stopped after {received} bytes and sent no more within {} ms; it hangs, or is something else", limit.as_millis())]
    Incomplete {
        /// The peer.
        peer: SocketAddr,
        /// Bytes that came.
        received: usize,
        /// How long was waited.
        limit: Duration,
    },
    /// The peer closed the connection.
    #[error(
        "the peer {peer} closed the connection after {received} bytes; see what it says about the reason"
    )]
    Closed {
        /// The peer.
        peer: SocketAddr,
        /// Bytes of what was awaited that had come.
        received: usize,
    },
    /// The connection broke.
    #[error(
        "the connection to the peer {peer} broke: {reason}; check the network and the other side"
    )]
    Broken {
        /// The peer.
        peer: SocketAddr,
        /// What the system said.
        reason: String,
    },
    /// What the peer says makes no sense, is of another version, or is too much.
    #[error(transparent)]
    Greeting(ExchangeError),
    /// The peer is at another step.
    #[error(
        "the peer {peer} is at another step: byte {found:#04x} instead of {expected:?}; run the same program and version on both sides"
    )]
    OutOfStep {
        /// The peer.
        peer: SocketAddr,
        /// The step of this side.
        expected: Step,
        /// What the peer sent.
        found: u8,
    },
}

/// A point that both sides have to reach before either goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The queue pairs are connected.
    Connected = b'R',
    /// Nothing of the peer's is needed any more.
    Done = b'D',
}

/// Waits for a peer at an address.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `address` and no other; port 0 lets the system choose, see [`Listener::address`].
    ///
    /// # Errors
    /// [`MeetingError::Listen`].
    pub fn bind(address: SocketAddr) -> Result<Self, MeetingError> {
        let listen = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, address })
        };
        listen().map_err(|error: io::Error| MeetingError::Listen {
            address,
            reason: error.to_string(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for one peer, at most `limit`.
    ///
    /// # Errors
    /// [`MeetingError::Nobody`], [`MeetingError::Listen`], [`MeetingError::Broken`].
    pub fn accept(&self, limit: Duration) -> Result<Session, MeetingError> {
        let end = Instant::now() + limit;
        let failed = |error: io::Error| MeetingError::Listen {
            address: self.address,
            reason: error.to_string(),
        };
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) => return Session::new(stream, peer),
                // A peer that gave up between its request and now: wait for the next.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock
                            | ErrorKind::Interrupted
                            | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return Err(failed(error)),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(MeetingError::Nobody {
                    address: self.address,
                    limit,
                });
            }
            let timeout = Timespec::try_from(left).ok();
            match poll(
                &mut [PollFd::new(&self.socket, PollFlags::IN)],
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

/// Connects to a peer that listens at `address`, within `limit`.
///
/// # Errors
/// [`MeetingError::Connect`], [`MeetingError::Broken`].
pub fn connect(address: SocketAddr, limit: Duration) -> Result<Session, MeetingError> {
    let failed = |reason: String| MeetingError::Connect {
        address,
        limit,
        reason,
    };
    if limit.is_zero() {
        return Err(failed("there was no time".into()));
    }
    let stream =
        TcpStream::connect_timeout(&address, limit).map_err(|error| failed(error.to_string()))?;
    // TCP lets a socket connect to itself when nobody listens and it got that very port.
    if stream.local_addr().is_ok_and(|own| own == address) {
        return Err(failed("nobody listens there".into()));
    }
    Session::new(stream, address)
}

/// A connection to a peer process.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    peer: SocketAddr,
}

impl Session {
    fn new(stream: TcpStream, peer: SocketAddr) -> Result<Self, MeetingError> {
        let prepare = || {
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)
        };
        prepare().map_err(|error: io::Error| MeetingError::Broken {
            peer,
            reason: error.to_string(),
        })?;
        Ok(Self { stream, peer })
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Tells the peer `ours` and learns its greeting, within `limit`. Both sides call this.
    ///
    /// # Errors
    /// Nothing, too little or nonsense came. The session is of no use any more.
    pub fn greet(&mut self, ours: &Greeting, limit: Duration) -> Result<Greeting, MeetingError> {
        let bytes = ours.encode().map_err(MeetingError::Greeting)?;
        let mut timed = Timed::new(&self.stream, limit);
        let written = timed.write_all(&bytes);
        // A peer that refuses may have said something before it closed: that is not read, as its
        // greeting would be of no use.
        written.map_err(|error| self.failure(&error, 0, limit))?;
        let waited_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Greeting::read(&mut timed, waited_ms).map_err(|error| match error {
            ExchangeError::Stream { error, .. } => self.failure(&error, timed.received, limit),
            other => MeetingError::Greeting(other),
        })
    }

    /// Waits until the peer has reached `step` too, at most `limit`.
    ///
    /// # Errors
    /// It did not, or is at another one.
    pub fn keep_step(&mut self, step: Step, limit: Duration) -> Result<(), MeetingError> {
        let mut timed = Timed::new(&self.stream, limit);
        let mut found = [0];
        timed
            .write_all(&[step as u8])
            .and_then(|()| timed.read_exact(&mut found))
            .map_err(|error| self.failure(&error, timed.received, limit))?;
        let [found] = found;
        if found == step as u8 {
            return Ok(());
        }
        Err(MeetingError::OutOfStep {
            peer: self.peer,
            expected: step,
            found,
        })
    }

    /// The error behind a failed read or write, after `received` bytes of what was awaited.
    fn failure(&self, error: &io::Error, received: usize, limit: Duration) -> MeetingError {
        let peer = self.peer;
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut if received == 0 => {
                MeetingError::Silent { peer, limit }
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => MeetingError::Incomplete {
                peer,
                received,
                limit,
            },
            ErrorKind::UnexpectedEof
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted => MeetingError::Closed { peer, received },
            _ => MeetingError::Broken {
                peer,
                reason: error.to_string(),
            },
        }
    }
}

/// A stream whose reads and writes all together have one deadline.
struct Timed<'a> {
    stream: &'a TcpStream,
    end: Instant,
    received: usize,
}

impl<'a> Timed<'a> {
    fn new(stream: &'a TcpStream, limit: Duration) -> Self {
        Self {
            stream,
            end: Instant::now() + limit,
            received: 0,
        }
    }

    /// The time that is left; none is an error, as the system takes zero for "without end".
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        let length = self.stream.read(into)?;
        self.received += length;
        Ok(length)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
