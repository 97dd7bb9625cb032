//! A TCP session of two processes: greetings, steps, messages, failure.

use crate::greeting::{Greeting, GreetingError};
use crate::stream::{Kernel, Stream};
use ringside_clock::{Clock, Deadline};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Reasons why a session did not begin, or ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {reason}; choose an address of this machine and a free port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's message.
        reason: String,
    },
    /// No peer connected in time.
    #[error("no peer connected to {address} within {} ms; start the other side and check the firewall", limit.as_millis())]
    NoPeer {
        /// The address that was listened on.
        address: SocketAddr,
        /// The duration.
        limit: Duration,
    },
    /// The other side cannot be reached.
    #[error("cannot connect to {address} within {} ms: {reason}; start the listening side first and check the address", limit.as_millis())]
    Connect {
        /// The other side's address.
        address: SocketAddr,
        /// The time allowed for the attempt.
        limit: Duration,
        /// The operating system's message.
        reason: String,
    },
    /// The peer is connected and sends nothing.
    #[error("the peer {peer} sent nothing within {} ms; it hangs, or is another program", limit.as_millis())]
    Silent {
        /// The peer.
        peer: SocketAddr,
        /// The time waited.
        limit: Duration,
    },
    /// The peer stopped within a message.
    #[error("the peer {peer} stopped after {received} bytes and sent nothing further within {} ms; it hangs, or is another program", limit.as_millis())]
    Incomplete {
        /// The peer.
        peer: SocketAddr,
        /// Bytes received.
        received: usize,
        /// The time waited.
        limit: Duration,
    },
    /// The peer closed the connection.
    #[error(
        "the peer {peer} closed the connection after {received} bytes; see its own output for the reason"
    )]
    Closed {
        /// The peer.
        peer: SocketAddr,
        /// Bytes of the expected message that were received.
        received: usize,
    },
    /// The connection broke.
    #[error(
        "the connection to the peer {peer} broke: {reason}; check the network and the other side"
    )]
    Broken {
        /// The peer.
        peer: SocketAddr,
        /// The operating system's message.
        reason: String,
    },
    /// The peer's message is malformed, of another version, or too long.
    #[error(transparent)]
    Greeting(GreetingError),
    /// The peer is at another step.
    #[error(
        "the peer {peer} is at another step: byte {found:#04x} instead of {expected:?}; run the same program and version on both sides"
    )]
    OutOfStep {
        /// The peer.
        peer: SocketAddr,
        /// The step of this side.
        expected: Step,
        /// The byte that the peer sent.
        found: u8,
    },
    /// The peer failed and reported the reason.
    #[error("the peer {peer} gave up: {reason}")]
    PeerFailed {
        /// The peer.
        peer: SocketAddr,
        /// Its reason.
        reason: String,
    },
}

/// A point that both sides must reach before either continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The queue pairs are connected.
    Connected = b'R',
    /// Memory is initialised and receives are posted.
    Prepared = b'P',
    /// The side's own requests are complete, and all expected messages have arrived.
    Transferred = b'T',
    /// Ready for a measurement.
    Measuring = b'M',
    /// The measurement is over.
    Ended = b'E',
    /// The side needs nothing of the peer any more.
    Done = b'D',
}

/// Sent by a busy side from time to time; skipped while a step is awaited.
const BEAT: u8 = b'.';
/// Begins the reason of a side that failed.
const FAILED: u8 = b'X';
/// Longest reason text of a side that failed, in bytes.
pub const MAX_REASON: usize = 512;

/// Waits for a peer at an address.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on `address` only. Port 0 lets the system choose a port, see [`Listener::address`].
    /// `clock` measures all deadlines, including those of its sessions.
    ///
    /// # Errors
    /// [`SessionError::Listen`].
    pub fn bind(address: SocketAddr, clock: Arc<dyn Clock>) -> Result<Self, SessionError> {
        let listen = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let bound = listen();
        let (socket, address) = bound.map_err(|error: io::Error| SessionError::Listen {
            address,
            reason: error.to_string(),
        })?;
        Ok(Self {
            socket,
            address,
            clock,
        })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for one peer, at most `limit`.
    ///
    /// # Errors
    /// [`SessionError::NoPeer`], [`SessionError::Listen`], [`SessionError::Broken`].
    pub fn accept(&self, limit: Duration) -> Result<Session, SessionError> {
        let deadline = Deadline::after(&*self.clock, limit);
        let failed = |error: io::Error| SessionError::Listen {
            address: self.address,
            reason: error.to_string(),
        };
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) => return Session::new(stream, peer, Arc::clone(&self.clock)),
                // The peer gave up between its request and now: wait for the next one.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock
                            | ErrorKind::Interrupted
                            | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return Err(failed(error)),
            }
            let left = deadline.end.since(self.clock.now());
            if left.is_zero() {
                return Err(SessionError::NoPeer {
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

/// Connects to a peer that listens at `address`, within `limit`. `clock` measures the deadlines of
/// the session.
///
/// # Errors
/// [`SessionError::Connect`], [`SessionError::Broken`].
pub fn connect(
    address: SocketAddr,
    limit: Duration,
    clock: Arc<dyn Clock>,
) -> Result<Session, SessionError> {
    let failed = |reason: String| SessionError::Connect {
        address,
        limit,
        reason,
    };
    if limit.is_zero() {
        return Err(failed("there was no time".into()));
    }
    let stream =
        TcpStream::connect_timeout(&address, limit).map_err(|error| failed(error.to_string()))?;
    // TCP lets a socket connect to itself if no process listens and the socket got that port.
    if stream.local_addr().is_ok_and(|own| own == address) {
        return Err(failed("no process listens there".into()));
    }
    Session::new(stream, address, clock)
}

/// A connection to a peer process.
pub struct Session {
    stream: Box<dyn Stream>,
    peer: SocketAddr,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Session {
    fn new(
        stream: TcpStream,
        peer: SocketAddr,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SessionError> {
        let prepare = || {
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)
        };
        prepare().map_err(|error: io::Error| SessionError::Broken {
            peer,
            reason: error.to_string(),
        })?;
        Ok(Self::over(Box::new(Kernel(stream)), peer, clock))
    }

    /// A session over a connection that another stack has made. `clock` measures its deadlines.
    #[must_use]
    pub fn over(stream: Box<dyn Stream>, peer: SocketAddr, clock: Arc<dyn Clock>) -> Self {
        Self {
            stream,
            peer,
            clock,
        }
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends `ours` to the peer and receives its greeting, within `limit`. Both sides call this.
    ///
    /// # Errors
    /// The greeting did not arrive, is incomplete, or is malformed. The session is unusable after
    /// that.
    pub fn greet(&mut self, ours: &Greeting, limit: Duration) -> Result<Greeting, SessionError> {
        let bytes = ours.encode().map_err(SessionError::Greeting)?;
        let mut timed = Timed::new(&mut *self.stream, &*self.clock, limit);
        let written = timed.write_all(&bytes);
        // A peer that refuses may have sent data before it closed. It is not read: its greeting
        // would be of no use.
        written.map_err(|error| failure(self.peer, &error, 0, limit))?;
        let waited_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Greeting::read(&mut timed, waited_ms).map_err(|error| match error {
            GreetingError::Stream { error, .. } => {
                failure(self.peer, &error, timed.received, limit)
            }
            other => SessionError::Greeting(other),
        })
    }

    /// Waits until the peer has reached `step` too, at most `limit`.
    ///
    /// # Errors
    /// The peer did not reach it, is at another step, or [failed](SessionError::PeerFailed).
    pub fn synchronise(&mut self, step: Step, limit: Duration) -> Result<(), SessionError> {
        let mut timed = Timed::new(&mut *self.stream, &*self.clock, limit);
        let exchanged = timed
            .write_all(&[step as u8])
            .and_then(|()| read_past_beats(&mut timed));
        let found = exchanged.map_err(|error| failure(self.peer, &error, timed.received, limit))?;
        if found == step as u8 {
            return Ok(());
        }
        if found == FAILED {
            return Err(self.failure_reason(limit));
        }
        Err(SessionError::OutOfStep {
            peer: self.peer,
            expected: step,
            found,
        })
    }

    /// Sends a message of the application, within `limit`.
    ///
    /// # Errors
    /// The connection broke, or the peer does not receive the message.
    pub fn send(&mut self, message: &[u8], limit: Duration) -> Result<(), SessionError> {
        let mut timed = Timed::new(&mut *self.stream, &*self.clock, limit);
        let told = timed.write_all(message);
        told.map_err(|error| failure(self.peer, &error, 0, limit))
    }

    /// Receives a message of the application, as long as `into`, within `limit`.
    ///
    /// # Errors
    /// The message did not arrive.
    pub fn receive(&mut self, into: &mut [u8], limit: Duration) -> Result<(), SessionError> {
        let mut timed = Timed::new(&mut *self.stream, &*self.clock, limit);
        let heard = timed.read_exact(into);
        heard.map_err(|error| failure(self.peer, &error, timed.received, limit))
    }

    /// Reports to the peer that this side is alive. Call it about once a second during long work.
    ///
    /// # Errors
    /// The connection broke, or the peer has not read for very long.
    pub fn keep_alive(&mut self) -> Result<(), SessionError> {
        self.send(&[BEAT], Duration::from_millis(100))
    }

    /// Copies the next bytes of the peer without consuming them, as many as are there and have
    /// room; 0 once the peer has closed the connection, or if there is none.
    pub fn peek_several(&mut self, into: &mut [u8]) -> usize {
        self.stream.peek(into, Duration::ZERO).unwrap_or(0)
    }

    /// Returns the next byte of the peer without consuming it; waits at most `at_most`, which may
    /// be zero. A byte of [`Session::keep_alive`] is consumed and returned.
    ///
    /// # Errors
    /// The connection is closed, or the peer [failed](SessionError::PeerFailed).
    pub fn peek(&mut self, at_most: Duration) -> Result<Option<u8>, SessionError> {
        let mut first = [0];
        let length = match self.stream.peek(&mut first, at_most) {
            Ok(length) => length,
            Err(error) if is_late(&error) => return Ok(None),
            Err(error) => return Err(failure(self.peer, &error, 0, at_most)),
        };
        let limit = Duration::from_millis(100);
        match (length, first) {
            (0, _) => Err(SessionError::Closed {
                peer: self.peer,
                received: 0,
            }),
            (_, [BEAT]) => {
                self.receive(&mut first, limit)?;
                Ok(Some(BEAT))
            }
            (_, [FAILED]) => {
                self.receive(&mut first, limit)?;
                Err(self.failure_reason(limit))
            }
            (_, [other]) => Ok(Some(other)),
        }
    }

    /// Reports to the peer that this side failed, and the reason, cut to [`MAX_REASON`] bytes. Ends
    /// the session. A closed connection is not a further error.
    pub fn fail(mut self, reason: &str) {
        let text = shortened(reason, MAX_REASON);
        let mut message = vec![FAILED];
        message.extend(u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
        message.extend(text.as_bytes());
        let _ = self.send(&message, Duration::from_secs(1));
        // Closing with unread bytes of the peer would reset the connection and discard the reason:
        // read until the peer has closed, or until the deadline.
        self.stream.finish();
        let mut timed = Timed::new(&mut *self.stream, &*self.clock, Duration::from_secs(1));
        let mut sink = [0; 512];
        while timed.read(&mut sink).is_ok_and(|length| length > 0) {}
    }

    /// Reads the reason that follows the byte [`FAILED`].
    fn failure_reason(&mut self, limit: Duration) -> SessionError {
        let mut timed = Timed::new(&mut *self.stream, &*self.clock, limit);
        let mut read = || -> io::Result<String> {
            let mut length = [0; 2];
            timed.read_exact(&mut length)?;
            let length = usize::from(u16::from_be_bytes(length)).min(MAX_REASON);
            let mut text = vec![0; length];
            timed.read_exact(&mut text)?;
            Ok(printable(&String::from_utf8_lossy(&text)))
        };
        let reason = read().unwrap_or_else(|_| "it gave no reason".to_owned());
        SessionError::PeerFailed {
            peer: self.peer,
            reason,
        }
    }
}

/// Returns the error of a failed read or write, after `received` bytes of the expected message.
fn failure(peer: SocketAddr, error: &io::Error, received: usize, limit: Duration) -> SessionError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut if received == 0 => {
            SessionError::Silent { peer, limit }
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => SessionError::Incomplete {
            peer,
            received,
            limit,
        },
        ErrorKind::UnexpectedEof
        | ErrorKind::BrokenPipe
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted => SessionError::Closed { peer, received },
        _ => SessionError::Broken {
            peer,
            reason: error.to_string(),
        },
    }
}

/// Returns at most the first `most` bytes of a text, whole characters only.
fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev();
    let end = end.into_iter().find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or(0)).unwrap_or("")
}

/// Returns a peer's text in a form that is safe on a terminal: without control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(shown).collect()
}

fn read_past_beats(from: &mut impl Read) -> io::Result<u8> {
    let mut found = [BEAT];
    while found == [BEAT] {
        from.read_exact(&mut found)?;
    }
    let [found] = found;
    Ok(found)
}

/// True for an operation that did not end within its limit.
fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// A stream whose reads and writes share one deadline.
struct Timed<'a> {
    stream: &'a mut dyn Stream,
    clock: &'a dyn Clock,
    deadline: Deadline,
    received: usize,
}

impl<'a> Timed<'a> {
    fn new(stream: &'a mut dyn Stream, clock: &'a dyn Clock, limit: Duration) -> Self {
        Self {
            stream,
            clock,
            deadline: Deadline::after(clock, limit),
            received: 0,
        }
    }

    /// Returns the remaining time.
    fn left(&self) -> Duration {
        self.deadline.end.since(self.clock.now())
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left();
        let length = self.stream.read(into, left)?;
        self.received += length;
        Ok(length)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let left = self.left();
        self.stream.write(from, left)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
