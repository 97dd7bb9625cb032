//! A datagram socket that has an address: what it sends, and to whom.

use super::pair::Pair;
use super::peers::Peers;
use crate::cm::datagrams::{self, Place, QuestionId};
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

/// Port, queue pair and peers of a socket that has an address.
pub(super) struct Open {
    // The first field goes first: peers are not told of a queue pair that goes.
    pub(super) place: Place,
    pub(super) pair: Pair,
    pub(super) peers: Peers<QuestionId>,
}

// SAFETY: its pointers are to verbs objects of this socket alone, which are used under its lock.
unsafe impl Send for Open {}

impl Open {
    /// The address that a peer gets datagrams from. Errors: `ENETUNREACH`.
    pub(super) fn local_for(&self, to: SocketAddr) -> Result<IpAddr, c_int> {
        match self.place.local().ip() {
            ip if ip.is_unspecified() => datagrams::source_for(to.ip()),
            ip if ip.is_ipv4() == to.is_ipv4() => Ok(ip),
            _ => Err(libc::ENETUNREACH),
        }
    }

    /// Ends the questions whose answers do not matter any more.
    pub(super) fn end_questions(&mut self) {
        let obsolete = self.peers.take_obsolete();
        if !obsolete.is_empty() {
            self.place.end_questions(&obsolete);
        }
    }

    /// True if no datagram is on its way out.
    pub(super) fn is_idle(&self) -> bool {
        self.pair.is_idle() && self.peers.waiting() == 0
    }

    /// Sends what waits and can be sent. True if some of it could not be sent yet.
    pub(super) fn send_waiting(&mut self) -> bool {
        let mut is_left = false;
        for (to, service) in self.peers.ready() {
            let handle = match self.local_for(to) {
                Ok(local) => self.pair.handle(local, to.ip()),
                Err(error) => Err(error),
            };
            let handle = match handle {
                Ok(Some(handle)) => handle,
                Ok(None) => {
                    is_left = true;
                    continue;
                }
                Err(error) => {
                    tracing::debug!(error, peer = %to, "datagrams for a peer are dropped");
                    self.peers.drop_waiting(to);
                    continue;
                }
            };
            while let Some(bytes) = self.peers.first(to) {
                if !self.pair.can_send() {
                    return true;
                }
                let (start, length) = (bytes.as_ptr().cast_mut(), bytes.len());
                let port = self.place.local().port();
                let way = (handle, service);
                // SAFETY: live bytes, which are only read.
                let sent = unsafe {
                    let whole = [(start, length)];
                    self.pair.send(&whole, length as u32, way, port)
                };
                if let Err(error) = sent {
                    tracing::debug!(error, peer = %to, "a datagram is dropped");
                }
                self.peers.remove_first(to);
            }
        }
        is_left
    }
}
