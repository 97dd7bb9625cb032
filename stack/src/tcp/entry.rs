//! One connection of the stack: moves bytes and states between its socket and its handle.

use super::connection::TcpConnection;
use super::error::TcpError;
use super::shared::{PIPE_BYTES, Phase, Pipe, Shared};
use super::wake::Waker;
use ringside_clock::{Clock, Instant};
use ringside_pmd::Birth;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, State};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of each direction that smoltcp holds: the windows.
pub(super) const WINDOW_BYTES: usize = 16 << 10;
/// The time in which a connection whose handle is gone delivers its bytes and ends.
const ENDING: Duration = Duration::from_secs(10);
/// The time in which the reset of a connection is sent: the peer's MAC address may be unknown.
const RESETTING: Duration = Duration::from_secs(1);
/// The time without an answer after which an established connection breaks. It is longer than the
/// time between two probes of a closed window, which smoltcp lets grow to 60 s (`RTTE_MAX_RTO`): a
/// peer that answers each of them keeps its connection. Source: RFC 9293, section 3.8.6.1.
const SILENCE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(75);
/// The interval at which an idle peer is asked whether it still has the connection.
const KEEP_ALIVE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(10);

/// The socket of a link.
pub(super) type Place = (Option<u16>, SocketHandle);

/// One connection.
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) pipe: Arc<Shared<Pipe>>,
    /// smoltcp was told that this side has finished
    has_finished: bool,
    /// the peer has finished; its last bytes may still be in the socket
    has_end: bool,
    /// the handle is gone, and bytes of the peer were not read
    has_lost: bool,
    /// the end of a connection whose handle is gone
    ends: Option<Instant>,
    /// it is a user of the rule that brings its segments to the stack's queue
    pub(super) is_steered: bool,
}

/// The handle of a connection, without its stack.
pub(super) fn connection(
    local: SocketAddr,
    peer: SocketAddr,
    phase: Phase,
    clock: &Arc<dyn Clock>,
) -> TcpConnection {
    TcpConnection {
        pipe: Arc::new(Shared::new(Pipe::new(phase))),
        local,
        peer,
        clock: Arc::clone(clock),
        waker: Waker::none(),
        birth: Birth::now(),
    }
}

/// The limits of an established connection.
pub(super) fn confirm(socket: &mut Socket<'_>) {
    socket.set_timeout(Some(SILENCE));
    socket.set_keep_alive(Some(KEEP_ALIVE));
}

impl Entry {
    /// The entry of a connection that begins, for its handle; `is_steered` as in [`Entry`].
    pub(super) fn new(place: Place, connection: &TcpConnection, is_steered: bool) -> Self {
        Self {
            place,
            local: connection.local,
            peer: connection.peer,
            pipe: Arc::clone(&connection.pipe),
            has_finished: false,
            has_end: false,
            has_lost: false,
            ends: None,
            is_steered,
        }
    }

    /// The reason of an end that is `usual` of the peer.
    fn end(&self, usual: fn(SocketAddr) -> TcpError, has_address: bool) -> TcpError {
        match has_address {
            true => usual(self.peer),
            false => TcpError::AddressRemoved(self.local.ip()),
        }
    }

    /// Notes that the peer has sent its end, if it has.
    fn note_end(&mut self, socket: &mut Socket<'_>) {
        self.has_end |= matches!(
            socket.state(),
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait
        );
        if self.has_end {
            // The peer learns at once that its end has arrived: this socket may go at any time.
            socket.set_ack_delay(None);
        }
    }

    /// Moves bytes and states; true if the socket has nothing more to do. `has_address` as the
    /// interface has the own address: its sockets end with it.
    pub(super) fn pump(
        &mut self,
        socket: &mut Socket<'_>,
        has_address: bool,
        now: Instant,
    ) -> bool {
        self.note_end(socket);
        let mut pipe = self.pipe.lock();
        let before = (pipe.inbound.len(), pipe.outbound.len(), pipe.delivered);
        let (was_connecting, was_finished) = (pipe.is_connecting(), pipe.peer_finished);
        if was_connecting && socket.state() == State::Closed {
            pipe.fail(self.end(TcpError::Refused, has_address));
        } else if was_connecting && !matches!(socket.state(), State::SynSent | State::SynReceived) {
            // A request of the peer's own for the same connection is no answer yet: RFC 9293,
            // section 3.5, simultaneous open.
            confirm(socket);
            pipe.phase = Phase::Open;
        }
        // Nothing comes after the end, and smoltcp forgets the bytes of a connection that is over.
        let room = match self.has_end || socket.state() == State::Closed {
            true => PIPE_BYTES + WINDOW_BYTES,
            false => PIPE_BYTES,
        };
        let is_discarded = receive(&mut pipe, socket, room);
        self.has_lost |= is_discarded || (pipe.abandoned && !pipe.inbound.is_empty());
        pipe.peer_finished = self.has_end && socket.recv_queue() == 0;
        send(&mut pipe, socket);
        // A close of a socket whose request has no answer yet would forget the bytes to send.
        let is_finished = (pipe.finished || pipe.abandoned) && !pipe.is_connecting();
        if self.has_lost && !pipe.is_connecting() {
            reset_when_delivered(&pipe, socket);
        } else if is_finished && pipe.outbound.is_empty() && !self.has_finished {
            socket.close();
            self.has_finished = true;
        }
        if self.has_finished && matches!(socket.state(), State::FinWait2 | State::TimeWait) {
            pipe.delivered = true;
        }
        if socket.state() == State::Closed && pipe.phase == Phase::Open {
            // Bytes that the peer has not confirmed stay in a socket that was reset.
            if self.has_finished && self.has_end && socket.send_queue() == 0 {
                pipe.delivered = true;
                pipe.phase = Phase::Over;
            } else {
                pipe.fail(self.end(TcpError::Broken, has_address));
            }
        }
        let is_unwanted = pipe.abandoned && pipe.is_connecting() && pipe.outbound.is_empty();
        if pipe.abandoned || socket.state() == State::Closed {
            let ends = *self.ends.get_or_insert(now.plus(ENDING));
            if now >= ends {
                socket.abort();
            }
        }
        let after = (pipe.inbound.len(), pipe.outbound.len(), pipe.delivered);
        let is_read = pipe.abandoned || socket.recv_queue() == 0;
        let has_changed = before != after
            || was_connecting != pipe.is_connecting()
            || was_finished != pipe.peer_finished
            || socket.state() == State::Closed;
        drop(pipe);
        if has_changed {
            self.pipe.notify();
        }
        // A socket that was aborted has a reset to send, while it knows its peer.
        let is_silent = socket.remote_endpoint().is_none();
        let is_late = self.ends.is_some_and(|ends| now >= ends.plus(RESETTING));
        let is_over = socket.state() == State::Closed && (is_silent || is_late);
        is_unwanted || (is_over && is_read)
    }
}

/// Resets a connection whose handle is gone and of which bytes were not read, once the peer has all
/// that was written: it would take its own bytes for delivered. Source: RFC 9293, section 3.6.1.
fn reset_when_delivered(pipe: &Pipe, socket: &mut Socket<'_>) {
    if pipe.outbound.is_empty() && socket.send_queue() == 0 {
        socket.abort();
    }
}

/// Received bytes go to the handle, `room` at most with those that it has not read. True if the
/// handle is gone and some were discarded.
fn receive(pipe: &mut Pipe, socket: &mut Socket<'_>, room: usize) -> bool {
    let mut is_discarded = false;
    while socket.can_recv() && (pipe.abandoned || pipe.inbound.len() < room) {
        let (is_dropped, room) = (pipe.abandoned, room.saturating_sub(pipe.inbound.len()));
        let inbound = &mut pipe.inbound;
        let taken = socket.recv(|bytes| {
            let count = if is_dropped {
                bytes.len()
            } else {
                bytes.len().min(room)
            };
            if !is_dropped {
                inbound.extend(bytes.iter().take(count));
            }
            (count, count)
        });
        if taken.is_err() {
            break;
        }
        is_discarded |= is_dropped;
    }
    is_discarded
}

/// Written bytes go to the socket, as far as it has room.
fn send(pipe: &mut Pipe, socket: &mut Socket<'_>) {
    while socket.can_send() && !pipe.outbound.is_empty() {
        let (bytes, _) = pipe.outbound.as_slices();
        let Ok(count) = socket.send_slice(bytes) else {
            break;
        };
        if count == 0 {
            break;
        }
        pipe.outbound.drain(..count);
    }
}
