//! Listeners, requests and connections.

use crate::error::{Closed, ConnectError, End};
use crate::lookup::Peer;
use crate::news::{News, Waiting, end_of, refused};
use crate::pair::{self, Settings};
use crate::shared::{Shared, Unfinished, deadline};
use ringside_cm::message::MAX_REJECTION_PRIVATE_BYTES;
use ringside_cm::{ConnectionId, EventKind, ListenerId, Reason, Refused, RequestError};
use ringside_config::Within;
use ringside_pmd::rdma::{Connected, QueuePair};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Listens on a port. Dropping it refuses the requests that were not taken.
pub struct Listener {
    shared: Arc<Shared>,
    id: ListenerId,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Listener({:?})", self.id)
    }
}

impl Listener {
    pub(crate) const fn new(shared: Arc<Shared>, id: ListenerId) -> Self {
        Self { shared, id }
    }

    /// The next request, within `wait`; nothing if none came. Returns nothing at once when the
    /// device is shut down or the manager is dropped, and in a child by fork: [`Listener::closed`]
    /// says so. A failure of the device does not end the wait: requests come again once the manager
    /// is restored.
    #[must_use]
    pub fn next(&self, wait: Duration) -> Option<Request> {
        let limit = deadline(wait);
        let found = self.shared.wait(limit, |state| {
            let found = state.requests.get_mut(&self.id)?.pop_front()?;
            state.manager.request_read(found.id);
            Some(found)
        })?;
        Some(Request {
            shared: Arc::clone(&self.shared),
            waiting: Some(found),
        })
    }

    /// The reason why no further request will come; nothing while the listener is in use.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        let here = self.shared.check_process();
        here.and_then(|()| self.shared.with(|state, now| state.check_open(now)))
            .err()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            return;
        }
        let left = self.shared.with(|state, now| {
            state.manager.unlisten(now, self.id);
            state.requests.remove(&self.id).unwrap_or_default()
        });
        for request in left {
            refuse(&self.shared, request.id, Reason::NO_RESOURCES, Vec::new());
        }
    }
}

/// Refuses, and forgets the connection. Does nothing in a child by fork.
fn refuse(shared: &Shared, id: ConnectionId, reason: Reason, private_data: Vec<u8>) {
    if shared.check_process().is_err() {
        return;
    }
    let refusal = Refused {
        private_data,
        ..Refused::because(reason)
    };
    shared.with(|state, _| {
        if let Err(error) = state.manager.reject(id, &refusal) {
            tracing::debug!(%error, "a request was not refused");
        }
    });
    shared.destroy(id);
}

/// A peer asks for a connection. Dropping it refuses.
pub struct Request {
    shared: Arc<Shared>,
    waiting: Option<Waiting>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Request({:?})", self.peer())
    }
}

impl Request {
    /// Address and port of the peer; nothing once it was answered.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.waiting.as_ref().map(|waiting| waiting.peer)
    }

    /// Private data of the peer's program: 56 bytes, padded with zeros.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.waiting
            .as_ref()
            .map_or(&[], |waiting| &waiting.private_data)
    }

    /// Connects a queue pair to the peer, and waits up to `wait` until the peer is ready. Receives
    /// that the peer's first sends need are posted before.
    ///
    /// Errors: [`ConnectError`]; the queue pair is destroyed, and the peer is told.
    pub fn accept(
        mut self,
        pair: QueuePair,
        settings: &Settings,
        wait: Duration,
    ) -> Result<Connection, ConnectError> {
        let limit = deadline(wait);
        self.shared.check_process()?;
        let waiting = self.waiting.take().ok_or(RequestError::Gone)?;
        let shared = &self.shared;
        let (id, mut agreed) = (waiting.id, waiting.parameters);
        let mut unfinished = Unfinished::new(shared, id);
        let peer = waiting.peer.ip();
        settings.check()?;
        shared.with(|state, now| state.check_pair(now, &pair))?;
        let within = Within::Vlan(agreed.vlan);
        let wanted = Peer {
            address: peer,
            within,
        };
        let mac = shared.resolve(wanted, limit, wait)?.mac;
        let answer = settings.answer(shared.reads, pair.number(), &mut agreed);
        let pair = pair::set(pair, &agreed, mac)?;
        shared.with(|state, now| {
            state.check(now)?;
            let accepted = state.manager.accept(now, id, &answer);
            accepted.map_err(|error| match error {
                // It waited for an answer until the peer gave up.
                RequestError::State { .. } | RequestError::Gone => ConnectError::Ended { peer },
                other => other.into(),
            })
        })?;
        loop {
            match shared.next_event(id, peer, limit, wait)? {
                News::Event(EventKind::Established) => break,
                other => refused(other, peer)?,
            }
        }
        unfinished.keep();
        let shared = Arc::clone(shared);
        let told = waiting.private_data;
        Ok(Connection::new(shared, id, waiting.peer, told, pair))
    }

    /// Refuses, with up to 148 bytes for the peer's program.
    ///
    /// Errors: [`RequestError::TooLong`]; the peer is then refused without private data.
    /// [`RequestError::Gone`], this is a child by fork: the request waits in the parent.
    pub fn reject(mut self, private_data: &[u8]) -> Result<(), RequestError> {
        if self.shared.check_process().is_err() {
            return Err(RequestError::Gone);
        }
        if private_data.len() > MAX_REJECTION_PRIVATE_BYTES {
            return Err(RequestError::TooLong {
                length_bytes: private_data.len(),
                maximum_bytes: MAX_REJECTION_PRIVATE_BYTES,
            });
        }
        if let Some(waiting) = self.waiting.take() {
            let told = private_data.to_vec();
            refuse(&self.shared, waiting.id, Reason::CONSUMER, told);
        }
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            refuse(&self.shared, waiting.id, Reason::CONSUMER, Vec::new());
        }
    }
}

/// A connection. Dropping it ends it, and tells the peer.
#[derive(Debug)]
pub struct Connection {
    /// The queue pair, ready to send.
    pub queue_pair: QueuePair<Connected>,
    /// The connection as its manager sees it.
    pub bond: Bond,
}

impl Connection {
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: ConnectionId,
        peer: SocketAddr,
        private_data: Vec<u8>,
        queue_pair: QueuePair<Connected>,
    ) -> Self {
        let bond = Bond {
            shared,
            id,
            peer,
            private_data,
            end: None,
        };
        Self { queue_pair, bond }
    }

    /// Address and port of the peer.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.bond.peer
    }

    /// Private data of the peer's program: 196 bytes of an answer, 56 of a request, padded with
    /// zeros.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.bond.private_data
    }

    /// See [`Bond::wait_for_end`].
    pub fn wait_for_end(&mut self, wait: Duration) -> bool {
        self.bond.wait_for_end(wait)
    }

    /// See [`Bond::end`].
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.bond.end()
    }

    /// Ends the connection and destroys the queue pair. See [`Bond::disconnect`].
    pub fn disconnect(self, wait: Duration) -> bool {
        self.bond.disconnect(wait)
    }
}

/// A connection as its manager sees it, apart from the queue pair: a program may keep the two in
/// different places. Dropping it ends the connection, and tells the peer.
pub struct Bond {
    shared: Arc<Shared>,
    id: ConnectionId,
    peer: SocketAddr,
    private_data: Vec<u8>,
    end: Option<End>,
}

impl std::fmt::Debug for Bond {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Bond({}, {:?})", self.peer, self.id)
    }
}

impl Bond {
    /// Waits up to `wait` for the end of the connection. True once it is over; [`Bond::end`] says
    /// why. In a child by fork it is over.
    pub fn wait_for_end(&mut self, wait: Duration) -> bool {
        let limit = deadline(wait);
        let id = self.id;
        if let Err(closed) = self.shared.check_process() {
            self.end.get_or_insert(End::Closed(closed));
        }
        while self.end.is_none() {
            match self.shared.wait(limit, |state| state.next_event(id)) {
                Some(news) => self.end = end_of(&news),
                None => return false,
            }
        }
        true
    }

    /// The reason for its end, once [`Bond::wait_for_end`] has returned true; nothing before.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// Ends the connection: the peer is told, and confirms within `wait`. Requests that are
    /// outstanding may be lost: wait for their completions first.
    ///
    /// Returns false if the peer did not confirm in time; the connection is over all the same.
    pub fn disconnect(mut self, wait: Duration) -> bool {
        if self.wait_for_end(Duration::ZERO) {
            return true;
        }
        let id = self.id;
        let asked = self
            .shared
            .with(|state, now| state.manager.disconnect(now, id));
        asked.is_err() || self.wait_for_end(wait)
    }
}

impl Drop for Bond {
    fn drop(&mut self) {
        self.shared.destroy(self.id);
    }
}
