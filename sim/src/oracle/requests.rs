//! Posted work: requests, receives, messages, and the connections that they are of.

use super::weather::{Moment, Weather};
use crate::memory::Claim;
use ringside_pmd::rdma::{Datagram, Operation, Status};
use std::collections::VecDeque;

/// A completion as the driver's user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number that the request was posted with.
    pub id: u64,
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// Of the send queue.
    pub is_send: bool,
    /// Its result.
    pub status: Status,
    /// Its previous value.
    pub operation: Operation,
    /// Bytes of the message.
    pub byte_length: u32,
    /// The data that came with it.
    pub immediate: Option<u32>,
    /// Key that the message invalidated.
    pub invalidated_key: Option<u32>,
    /// The source of a datagram.
    pub datagram: Option<Datagram>,
}

/// A request of a send queue.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) signalled: bool,
    pub(crate) operation: Operation,
    /// Statuses of which it must end with one; empty: it is right.
    pub(crate) wrong: &'static [Status],
    /// The peer's memory that it names goes while it is outstanding: it may be refused.
    pub(crate) key_dies: bool,
    pub(crate) claims: Vec<Claim>,
    /// Receives that the peer had posted, and messages sent before: for one that needs a receive.
    pub(crate) receives_needed: Option<(u64, u64)>,
    /// When it was posted.
    pub(crate) posted: Moment,
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) claim: Claim,
    pub(crate) length: usize,
    /// A message that nobody took may have been written there.
    pub(crate) used: bool,
}

/// The value that the next receive of the peer must report.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: u64,
    /// Bytes that go into the receive; nothing for a write.
    pub(crate) bytes: Vec<u8>,
    /// The length that the completion reports.
    pub(crate) length: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) invalidates: Option<u32>,
    pub(crate) operation: Operation,
    /// It does not fit: the receive fails.
    pub(crate) too_long: bool,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) number: u32,
    pub(crate) retries: u8,
    pub(crate) not_ready_retries: u8,
    /// A shared receive queue feeds it.
    pub(crate) fed: bool,
    /// It has failed, or was failed or destroyed.
    pub(crate) torn: bool,
    pub(crate) sends: VecDeque<Request>,
    pub(crate) receives: VecDeque<Receive>,
    /// Messages that the other end has not received yet.
    pub(crate) under_way: VecDeque<Message>,
    pub(crate) messages_sent: u64,
    pub(crate) receives_posted: u64,
}

impl End {
    pub(crate) fn new(number: u32, (retries, not_ready_retries): (u8, u8), fed: bool) -> Self {
        Self {
            number,
            retries,
            not_ready_retries,
            fed,
            torn: false,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            under_way: VecDeque::new(),
            messages_sent: 0,
            receives_posted: 0,
        }
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.sends.iter().any(|request| request.signalled)
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ends: [End; 2],
    /// A wrong request was posted: both ends fail. Or one whose key dies: both may.
    pub(crate) wrong: bool,
    /// Uses of memory of which nobody knows how they ended; over once both ends are gone.
    pub(super) stale: Vec<Claim>,
    /// Sides whose device did not confirm that their end is gone.
    pub(super) unconfirmed: [bool; 2],
}

impl Link {
    pub(crate) fn new(ends: [End; 2]) -> Self {
        Self {
            ends,
            wrong: false,
            stale: Vec::new(),
            unconfirmed: [false; 2],
        }
    }

    pub(super) fn end(&self, end: usize) -> &End {
        let [first, second] = &self.ends;
        if end == 0 { first } else { second }
    }

    /// True if the queue pair of an end may have failed. What fails the other end does not fail
    /// this one: it hears no more answers, which fails it if it waits for one.
    pub(crate) fn may_have_failed(&self, end: usize, weather: &Weather) -> bool {
        let own = self.end(end);
        let unanswered = |request: &Request| {
            self.may_lack_receives(end, request) || self.may_be_silent(end, weather, request.posted)
        };
        let harmed = weather.harm_at(end).is_any();
        self.wrong || own.torn || harmed || own.sends.iter().any(unanswered)
    }

    /// True if frames were lost since the oldest request of an end was posted that has not
    /// completed, or since `before` if that is earlier.
    pub(crate) fn has_lost(&self, end: usize, weather: &Weather, before: Moment) -> bool {
        let oldest = self.end(end).sends.front();
        let since = oldest.map_or(before, |request| request.posted);
        weather.lost_since(since).max(weather.lost_since(before)) > 0
    }

    /// True if the other end may not have answered `end`; that takes more losses than retries since
    /// the request was posted, or an end that is gone.
    pub(super) fn may_be_silent(&self, end: usize, weather: &Weather, posted: Moment) -> bool {
        let lost = |end: usize, since: Moment| {
            weather.lost_since(since) > u64::from(self.end(end).retries)
        };
        let peer = self.end(1 - end);
        // It may have failed by itself, and nobody has heard of it yet.
        let may_have_failed = peer.sends.iter().any(|request| {
            self.may_lack_receives(1 - end, request) || lost(1 - end, request.posted)
        });
        let harmed = weather.harm.iter().any(|harm| harm.is_any());
        self.wrong || peer.torn || may_have_failed || harmed || lost(end, posted)
    }

    /// True if the other end may have had no receive for a request, more often than is allowed.
    pub(super) fn may_lack_receives(&self, end: usize, request: &Request) -> bool {
        let Some((posted, before)) = request.receives_needed else {
            return false;
        };
        self.end(end).not_ready_retries < 7 && (self.end(1 - end).fed || posted <= before)
    }
}

/// The owner of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Send { link: u32, end: usize },
    Receive { link: u32, end: usize },
    Pool { side: usize },
    DatagramSend { side: usize },
    DatagramReceive { side: usize },
}
