//! Sending and receiving datagrams.

use super::peers::Room;
use super::{Core, Datagram, Waits, check_peer, worker};
use crate::cm::datagrams;
use crate::rsocket::gather::{Piece, total};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A datagram that was read.
#[derive(Clone, Copy, Debug)]
pub(in crate::rsocket) struct Received {
    /// bytes that the program has
    pub(in crate::rsocket) bytes: usize,
    /// bytes of the whole datagram
    pub(in crate::rsocket) length: usize,
    /// nothing once the program has ended its receiving
    pub(in crate::rsocket) from: Option<SocketAddr>,
}

/// # Safety
/// The pieces are memory of the program.
unsafe fn gathered(pieces: &[Piece]) -> Vec<u8> {
    let mut all = Vec::new();
    for (start, length) in pieces.iter().filter(|(_, length)| *length > 0) {
        // SAFETY: the caller's promise.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(*start, *length) });
    }
    all
}

impl Datagram {
    fn waits(core: &Core, flags: c_int, limit: Option<Duration>) -> Waits {
        match limit {
            _ if flags & libc::MSG_DONTWAIT != 0 || core.options.is_nonblocking => Waits::Not,
            Some(limit) => Waits::For(limit),
            None => Waits::ForEver,
        }
    }

    /// Sends the pieces as one datagram. Returns its length.
    ///
    /// Errors: `EMSGSIZE` for one longer than a packet, `EDESTADDRREQ` without a peer, `EPIPE` once
    /// the program has ended its sending.
    ///
    /// # Safety
    /// The pieces are memory of the program.
    pub(in crate::rsocket) unsafe fn send(
        &self,
        pieces: &[Piece],
        flags: c_int,
        to: Option<Option<SocketAddr>>,
    ) -> Result<usize, c_int> {
        if flags & libc::MSG_OOB != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let mut core = self.core();
        let to = match to {
            Some(given) => datagrams::meant(self.checked(&core, given)?)?,
            None => core.connected.ok_or(libc::EDESTADDRREQ)?,
        };
        check_peer(to)?;
        if core.writes_ended {
            return Err(libc::EPIPE);
        }
        let length = total(pieces);
        if length > self.opened(&mut core)?.pair.longest as usize {
            return Err(libc::EMSGSIZE);
        }
        let waits = Self::waits(&core, flags, core.options.send_wait);
        self.wait(core, waits, |core| {
            // SAFETY: the caller's promise.
            let sent = unsafe { self.try_send(core, pieces, length as u32, to) };
            match sent {
                Ok(true) => Some(Ok(length)),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            }
        })
    }

    /// Sends a datagram, or keeps it until its way is known. False if there is no room.
    ///
    /// # Safety
    /// The pieces are memory of the program, `length` bytes altogether.
    unsafe fn try_send(
        &self,
        core: &mut Core,
        pieces: &[Piece],
        length: u32,
        to: SocketAddr,
    ) -> Result<bool, c_int> {
        if core.writes_ended {
            return Err(libc::EPIPE);
        }
        if let Some(error) = core.failed {
            return Err(error);
        }
        let now = Instant::now();
        let service = self.plan(core, to, now)?;
        let open = self.opened(core)?;
        if let Some(service) = service {
            if !open.pair.can_send() {
                return Ok(false);
            }
            let local = open.local_for(to)?;
            if let Some(handle) = open.pair.handle(local, to.ip())? {
                let port = open.place.local().port();
                // SAFETY: the caller's promise; a handle of this pair.
                unsafe { open.pair.send(pieces, length, (handle, service), port) }?;
                return Ok(true);
            }
            worker::send_waiting(self.myself.clone());
        }
        // SAFETY: the caller's promise.
        let room = open.peers.keep(to, now, || unsafe { gathered(pieces) });
        Ok(room == Room::Taken)
    }

    /// Receives one datagram; what the pieces do not take is dropped. It stays with `MSG_PEEK`.
    ///
    /// # Safety
    /// The pieces are memory of the program.
    pub(in crate::rsocket) unsafe fn receive(
        &self,
        pieces: &[Piece],
        flags: c_int,
    ) -> Result<Received, c_int> {
        if flags & libc::MSG_OOB != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let mut core = self.core();
        self.opened(&mut core)?;
        let waits = Self::waits(&core, flags, core.options.receive_wait);
        self.wait(core, waits, |core| {
            let Some(first) = core.arrived.front().copied() else {
                let nothing = Received {
                    bytes: 0,
                    length: 0,
                    from: None,
                };
                return core.reads_ended.then_some(Ok(nothing));
            };
            let open = core.open.as_mut()?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { open.pair.copy(&first, pieces) };
            if flags & libc::MSG_PEEK == 0 {
                core.arrived.pop_front();
                if let Err(error) = open.pair.give_back(&first) {
                    core.failed = Some(error);
                }
            }
            Some(Ok(Received {
                bytes,
                length: first.length as usize,
                from: Some(first.from),
            }))
        })
    }
}
