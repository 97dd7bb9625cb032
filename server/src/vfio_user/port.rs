//! The socket of one function, and its client.

use super::connection::{Connection, Outcome};
use super::counters::PortCounters;
use super::mappings::Allowance;
use super::{ServerError, ServerSettings};
use crate::attachment::Readiness;
use crate::ports::SocketFile;
use ringside_bus::vfio_user::{Received, Stream, owner};
use ringside_bus::{Clock, Instant, Iova, TscClock};
use ringside_model::device::Request;
use ringside_model::world::World;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// The most messages of one client in one turn.
const BURST: usize = 32;

/// The interval at which a port looks for a client, or with one for another.
const ACCEPT_EVERY: Duration = Duration::from_millis(1);

/// The interval after an accept that failed, such as for want of descriptors: the client still
/// waits, and its listener would end each sleep immediately.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Clients that can be refused at the same time; more wait.
const MAX_TURNED_AWAY: usize = 4;

/// The time in which a refused client must send its first message.
const TURNED_AWAY_FOR: Duration = Duration::from_secs(1);

/// Device or resource busy.
const EBUSY: u32 = 16;

/// The socket of one function; see the module.
pub(super) struct Port {
    index: usize,
    /// removed before the listener is closed, see [`SocketFile`]
    file: SocketFile,
    listener: UnixListener,
    doorbell_page: bool,
    allowance: Allowance,
    refused_through_client: bool,
    connection: Option<Connection>,
    turned_away: Vec<(Stream, Instant)>,
    next_accept: Instant,
    /// the last accept failed, and a client may wait
    is_short: bool,
    counters: PortCounters,
}

impl Port {
    pub(super) fn bind(
        index: usize,
        path: &Path,
        settings: &ServerSettings,
    ) -> Result<Self, ServerError> {
        let (listener, file) = SocketFile::make(path, |path| {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?;
        Ok(Self {
            index,
            file,
            listener,
            doorbell_page: settings.doorbell_page,
            allowance: Allowance::of_function(
                settings.sockets.len(),
                settings.accept_shrinkable_memory,
            ),
            refused_through_client: settings.refused_through_client,
            connection: None,
            turned_away: Vec::new(),
            next_accept: Instant(0),
            is_short: false,
            counters: PortCounters::default(),
        })
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    pub(super) const fn counters(&self) -> PortCounters {
        self.counters
    }

    /// Sockets whose readiness matters.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Readiness)> {
        let connection = self.connection.as_ref().map(Connection::socket);
        let turned_away = self
            .turned_away
            .iter()
            .map(|(stream, _)| (stream.as_fd(), Readiness::Readable));
        // A listener with more waiting clients than can be refused would end each sleep
        // immediately.
        let full = self.turned_away.len() >= MAX_TURNED_AWAY;
        let listener =
            (!full && !self.is_short).then(|| (self.listener.as_fd(), Readiness::Readable));
        connection.into_iter().chain(turned_away).chain(listener)
    }

    /// Processes a burst of messages and new clients. True if there were any. With a clock, each
    /// message arrives at its own time: a client that reads the device's clock may send the next
    /// one as soon as it has the answer.
    pub(super) fn look(
        &mut self,
        world: &mut World,
        now: Instant,
        clock: Option<&TscClock>,
    ) -> bool {
        let mut worked = false;
        let mut quiet = true;
        if let Some(connection) = &mut self.connection {
            for _ in 0..BURST {
                if let Some(clock) = clock {
                    world.advance(clock.now());
                }
                match connection.take_one(world, self.index, &mut self.counters) {
                    Outcome::Answered => worked = true,
                    Outcome::Nothing => break,
                    Outcome::Ended => {
                        self.end(world);
                        worked = true;
                        break;
                    }
                }
            }
            quiet = !worked;
        }
        if self.refused_through_client {
            self.tell_refused(world);
        }
        // A client that connects while another is connected may be its successor. The end of the
        // old one is found first, because its socket has been read to the end by then.
        // Between two looks for one lies a while also where there is none: system calls for the
        // functions without a client would hold up those that work.
        if (self.connection.is_none() || quiet) && now >= self.next_accept {
            self.next_accept = now.plus(ACCEPT_EVERY);
            worked |= self.accept(world, now);
            self.turn_away(now);
        }
        worked
    }

    /// Repeats the accesses that were refused here through the client.
    fn tell_refused(&mut self, world: &mut World) {
        let refused = world.take_refused(self.index);
        let Some(connection) = &mut self.connection else {
            return;
        };
        for access in refused {
            if matches!(connection.try_through_client(access), Outcome::Ended) {
                self.end(world);
                return;
            }
        }
    }

    fn accept(&mut self, world: &mut World, now: Instant) -> bool {
        if self.connection.is_some() && self.turned_away.len() >= MAX_TURNED_AWAY {
            return false;
        }
        let socket = match self.listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.is_short = false;
                return false;
            }
            Err(error) => {
                let path = self.file.path().display();
                match self.is_short {
                    true => tracing::debug!(%error, %path, "a client cannot be accepted"),
                    false => {
                        tracing::warn!(%error, %path, "a client cannot be accepted; trying again")
                    }
                }
                self.is_short = true;
                self.next_accept = now.plus(ACCEPT_AGAIN);
                return false;
            }
        };
        self.is_short = false;
        if self.connection.is_none() {
            return self.welcome(socket, world);
        }
        let Ok(stream) = Stream::new(socket) else {
            return false;
        };
        self.counters.turned_away += 1;
        self.turned_away.push((stream, now.plus(TURNED_AWAY_FOR)));
        true
    }

    /// Accepts a client if there is none; false if its socket cannot be used.
    pub(super) fn welcome(&mut self, socket: UnixStream, world: &mut World) -> bool {
        let Ok(stream) = Stream::new(socket) else {
            return false;
        };
        self.counters.clients += 1;
        match Connection::new(stream, self.doorbell_page, self.allowance) {
            Ok(connection) => {
                if let Some(page) = connection.doorbell_page() {
                    world.share_doorbell_page(self.index, page.clone());
                }
                self.connection = Some(connection);
            }
            Err(error) => tracing::warn!(%error, "no memory for a doorbell page"),
        }
        true
    }

    /// Answers clients whose function has a client already with a refusal, which names its process,
    /// and disconnects them.
    fn turn_away(&mut self, now: Instant) {
        let connection = self.connection.as_ref();
        self.turned_away.retain_mut(|(stream, until)| {
            match stream.receive() {
                Ok(Received::Nothing) => now < *until,
                Ok(Received::Message(message)) => {
                    // The client is disconnected either way; an unsent refusal is lost.
                    let owner = connection.and_then(|one| owner::peer(one.socket().0));
                    let line = owner.as_ref().map(owner::encode).unwrap_or_default();
                    let _ = stream.send(message.header.refusal_with(EBUSY, &line), &[]);
                    false
                }
                Ok(Received::Closed) | Err(_) => false,
            }
        });
    }

    /// The client disconnected: its function is reset and its memory unmapped.
    fn end(&mut self, world: &mut World) {
        self.connection = None;
        let _ = world.handle(self.index, Request::Reset);
        let everything = Request::UnmapDma {
            iova: Iova(0),
            length: u64::MAX,
        };
        // Refused if there was none.
        let _ = world.handle(self.index, everything);
        tracing::info!(
            function = self.index,
            "a client disconnected; its function was reset"
        );
    }
}
