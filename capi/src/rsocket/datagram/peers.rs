//! The peers of a datagram socket: the queue pairs behind their addresses, and the datagrams that
//! wait until those are known.

use crate::cm::datagrams::{Answer, Service};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time after which a queue pair that was not heard of is asked for again: the peer may have closed
/// its socket, and made another one.
pub(super) const REFRESH: Duration = Duration::from_millis(250);
/// Time after which a question without an answer is asked again: it was lost. A host holds one for
/// 300 ms.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// Time after which datagrams that still wait are dropped.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// Time for which no call waits for a peer that has refused.
const DISLIKE: Duration = Duration::from_secs(1);
/// Datagrams that wait for one peer.
pub(super) const MAX_WAITING: usize = 64;
/// Peers that a socket remembers.
pub(super) const MAX_PEERS: usize = 1024;

/// A question that is open.
struct Asked<Q> {
    at: Instant,
    /// nothing until the connection manager has it
    question: Option<Q>,
}

struct Peer<Q> {
    service: Option<Service>,
    /// two queue pairs were named: the peer's host has to be asked which one is there now
    is_contested: bool,
    /// the last time that the peer was heard of
    heard: Instant,
    asked: Option<Asked<Q>>,
    refused: Option<Instant>,
    used: Instant,
    waiting: VecDeque<Vec<u8>>,
    /// since when the first of them waits
    since: Instant,
}

/// The way of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// the queue pair, if the datagram may be sent now
    pub(super) service: Option<Service>,
    /// the queue pair has to be asked for, now or meanwhile
    pub(super) asks: bool,
}

/// The fate of a datagram that cannot be sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// it is sent later, or dropped as datagrams may be
    Taken,
    /// too many wait already
    Full,
}

/// Peers by address. `Q` names a question to the connection manager.
pub(super) struct Peers<Q> {
    all: HashMap<SocketAddr, Peer<Q>>,
    waiting: usize,
    /// questions whose answers do not matter any more, and that are still open
    obsolete: Vec<Q>,
}

impl<Q> Peer<Q> {
    /// True if its queue pair was not asked for, or too long ago.
    fn may_be_asked(&self, now: Instant) -> bool {
        let asked = self.asked.as_ref();
        asked.is_none_or(|asked| now >= asked.at + PAUSE)
    }

    /// True if no call waits for it: it has refused a short time ago.
    fn is_disliked(&self, now: Instant) -> bool {
        self.refused.is_some_and(|at| now < at + DISLIKE)
    }

    /// Counts it as asked; returns the question before that.
    fn ask(&mut self, now: Instant) -> Option<Q> {
        let new = Asked {
            at: now,
            question: None,
        };
        self.asked.replace(new)?.question
    }

    /// Ends its question; returns it if it is open.
    fn end_question(&mut self) -> Option<Q> {
        self.asked.take()?.question
    }
}

impl<Q: Copy + PartialEq> Peers<Q> {
    /// None.
    pub(super) fn new() -> Self {
        Self {
            all: HashMap::new(),
            waiting: 0,
            obsolete: Vec::new(),
        }
    }

    /// The peer of an address. Forgets the one that was not used for the longest time if there is
    /// no room.
    fn peer(&mut self, address: SocketAddr, now: Instant) -> &mut Peer<Q> {
        if self.all.len() >= MAX_PEERS && !self.all.contains_key(&address) {
            let idle = self.all.iter().filter(|(_, peer)| peer.waiting.is_empty());
            let oldest = idle.min_by_key(|(_, peer)| peer.used);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                let removed = self.all.remove(&oldest);
                let question = removed.and_then(|mut peer| peer.end_question());
                self.obsolete.extend(question);
            }
        }
        self.all.entry(address).or_insert_with(|| Peer {
            service: None,
            is_contested: false,
            heard: now,
            asked: None,
            refused: None,
            used: now,
            waiting: VecDeque::new(),
            since: now,
        })
    }

    /// The way of the next datagram to an address. A question that it asks for counts as asked.
    pub(super) fn plan(&mut self, address: SocketAddr, now: Instant) -> Plan {
        let peer = self.peer(address, now);
        peer.used = now;
        let is_stale = peer.service.is_none() || now >= peer.heard + REFRESH;
        let asks = is_stale && peer.may_be_asked(now);
        let service = peer.service.filter(|_| peer.waiting.is_empty());
        let replaced = if asks { peer.ask(now) } else { None };
        self.obsolete.extend(replaced);
        Plan { service, asks }
    }

    /// The connection manager has the question.
    pub(super) fn asked(&mut self, address: SocketAddr, question: Q) {
        let peer = self.all.get_mut(&address);
        match peer.and_then(|peer| peer.asked.as_mut()) {
            Some(asked) => asked.question = Some(question),
            None => self.obsolete.push(question),
        }
    }

    /// Takes the questions that were replaced, or whose peers were given up or forgotten: they are
    /// to be ended.
    pub(super) fn take_obsolete(&mut self) -> Vec<Q> {
        std::mem::take(&mut self.obsolete)
    }

    /// The question could not be asked.
    pub(super) fn not_asked(&mut self, address: SocketAddr) {
        if let Some(peer) = self.all.get_mut(&address) {
            peer.asked = None;
        }
    }

    /// Keeps a datagram until the peer's queue pair is known.
    pub(super) fn keep(
        &mut self,
        address: SocketAddr,
        now: Instant,
        datagram: impl FnOnce() -> Vec<u8>,
    ) -> Room {
        let peer = self.peer(address, now);
        if peer.waiting.len() >= MAX_WAITING {
            return if peer.is_disliked(now) {
                Room::Taken
            } else {
                Room::Full
            };
        }
        if peer.waiting.is_empty() {
            peer.since = now;
        }
        peer.waiting.push_back(datagram());
        self.waiting += 1;
        Room::Taken
    }

    /// True if a datagram to an address is sent, kept or dropped: its call need not wait.
    pub(super) fn takes(&self, address: SocketAddr, now: Instant) -> bool {
        self.all
            .get(&address)
            .is_none_or(|peer| peer.waiting.len() < MAX_WAITING || peer.is_disliked(now))
    }

    /// Datagrams that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// A datagram came from there: this is its queue pair. Where another one was known, either may
    /// be that of a socket which is closed: datagrams wait until the peer's host has answered.
    pub(super) fn heard(&mut self, address: SocketAddr, service: Service, now: Instant) {
        let peer = self.peer(address, now);
        peer.is_contested |= peer.service.is_some_and(|known| known != service);
        if peer.is_contested {
            peer.service = None;
            return;
        }
        peer.service = Some(service);
        peer.heard = now;
        peer.refused = None;
    }

    /// The peer's host has answered, or has not in a long time. Returns false for a question that
    /// is not the last one: its answer says nothing any more.
    pub(super) fn answered(
        &mut self,
        (address, question): (SocketAddr, Q),
        answer: Answer,
        now: Instant,
    ) -> bool {
        let peer = self.all.get_mut(&address);
        let asked = peer.and_then(|peer| peer.asked.take_if(|one| one.question == Some(question)));
        if asked.is_some() {
            self.settle(address, answer, now);
        }
        asked.is_some()
    }

    /// The queue pair of a peer is known, or it has none; it is not asked for any more.
    fn settle(&mut self, address: SocketAddr, answer: Answer, now: Instant) {
        let Some(peer) = self.all.get_mut(&address) else {
            return;
        };
        self.obsolete.extend(peer.end_question());
        peer.is_contested = false;
        peer.service = answer;
        if answer.is_some() {
            peer.heard = now;
            peer.refused = None;
        } else {
            peer.refused = Some(now);
            self.drop_waiting(address);
        }
    }

    /// Drops the datagrams that wait for a peer.
    pub(super) fn drop_waiting(&mut self, address: SocketAddr) {
        if let Some(peer) = self.all.get_mut(&address) {
            self.waiting -= peer.waiting.len();
            peer.waiting.clear();
        }
    }

    /// Drops the datagrams that have waited for too long. True if there were some.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let late = |peer: &Peer<Q>| !peer.waiting.is_empty() && now >= peer.since + PATIENCE;
        let late = self.all.iter().filter(|(_, peer)| late(peer));
        let late: Vec<SocketAddr> = late.map(|(address, _)| *address).collect();
        for address in &late {
            tracing::debug!(peer = %address, "datagrams for a peer that is not found are dropped");
            self.settle(*address, None, now);
        }
        !late.is_empty()
    }

    /// Peers for which datagrams wait, and whose queue pairs have to be asked for again. They count
    /// as asked.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<SocketAddr> {
        let waiting = self
            .all
            .iter_mut()
            .filter(|(_, peer)| !peer.waiting.is_empty() && peer.service.is_none());
        let late = waiting.filter(|(_, peer)| peer.may_be_asked(now));
        let late = late.map(|(address, peer)| {
            self.obsolete.extend(peer.ask(now));
            *address
        });
        late.collect()
    }

    /// Peers for which datagrams wait that can be sent.
    pub(super) fn ready(&self) -> Vec<(SocketAddr, Service)> {
        let waiting = self.all.iter().filter(|(_, peer)| !peer.waiting.is_empty());
        let known = waiting.filter_map(|(address, peer)| Some((*address, peer.service?)));
        known.collect()
    }

    /// The datagram that has waited longest for a peer.
    pub(super) fn first(&self, address: SocketAddr) -> Option<&[u8]> {
        let peer = self.all.get(&address)?;
        peer.waiting.front().map(Vec::as_slice)
    }

    /// The first datagram was sent.
    pub(super) fn remove_first(&mut self, address: SocketAddr) {
        if let Some(peer) = self.all.get_mut(&address)
            && peer.waiting.pop_front().is_some()
        {
            self.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
