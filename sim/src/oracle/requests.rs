//! Posted work: requests, receives, messages, and their connections.

use super::weather::{Moment, Weather};
use crate::memory::Claim;
use ringside_pmd::rdma::{Datagram, Operation, Status};
use std::collections::VecDeque;

/// A completion in the form that the user of the driver receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number that the request was posted with.
    pub id: u64,
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// True for the send queue.
    pub is_send: bool,
    /// Its status.
    pub status: Status,
    /// Its operation.
    pub operation: Operation,
    /// Bytes of the message.
    pub byte_length: u32,
    /// The immediate data of the message.
    pub immediate: Option<u32>,
    /// Key that the message invalidated.
    pub invalidated_key: Option<u32>,
    /// The source of a datagram.
    pub datagram: Option<Datagram>,
    /// True if the sender of the message requested an event.
    pub solicited: bool,
}

/// A request of a send queue.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) signalled: bool,
    pub(crate) operation: Operation,
    /// The statuses of which one must be its result, because it is wrong; empty if it is valid.
    pub(crate) wrong: &'static [Status],
    /// The peer's memory that it names is deregistered while it is outstanding: it may be refused.
    pub(crate) key_dies: bool,
    pub(crate) claims: Vec<Claim>,
    /// For a request that needs a receive: the receives that the peer had posted, and the messages
    /// sent before.
    pub(crate) receives_needed: Option<(u64, u64)>,
    /// The moment when it was posted.
    pub(crate) posted: Moment,
}

impl Request {
    /// True if the peer's queue pair refuses it, and fails. A mistake in the request's own memory
    /// does not reach the peer.
    pub(super) fn is_refused_by_peer(&self) -> bool {
        let own = [Status::LocalProtection];
        self.wrong.iter().any(|status| !own.contains(status))
    }
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) claim: Claim,
    pub(crate) length: usize,
    /// A message that was never polled may have been written there.
    pub(crate) used: bool,
}

/// The message that the next receive of the peer must report.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: u64,
    /// Bytes that are placed in the receive; empty for a write.
    pub(crate) bytes: Vec<u8>,
    /// The length that the completion reports.
    pub(crate) length: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) invalidates: Option<u32>,
    pub(crate) operation: Operation,
    /// Its sender requested an event.
    pub(crate) solicited: bool,
    /// It is longer than the receive: the receive fails.
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
    /// It has failed, or was failed or destroyed on purpose.
    pub(crate) torn: bool,
    /// A completion of its send queue, and one of its receives, was no success: none after it is.
    pub(super) sends_failed: bool,
    pub(super) receives_failed: bool,
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
            sends_failed: false,
            receives_failed: false,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            under_way: VecDeque::new(),
            messages_sent: 0,
            receives_posted: 0,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ends: [End; 2],
    /// Ends that a wrong request fails, or may fail: its own, and the other one if that refuses it.
    pub(crate) wrong: [bool; 2],
    /// Uses of memory with an unknown result; over once both ends are destroyed.
    pub(super) stale: Vec<Claim>,
    /// Sides whose device did not confirm the destruction of their end.
    pub(super) unconfirmed: [bool; 2],
}

impl Link {
    pub(crate) fn new(ends: [End; 2]) -> Self {
        Self {
            ends,
            wrong: [false; 2],
            stale: Vec::new(),
            unconfirmed: [false; 2],
        }
    }

    pub(super) fn end(&self, end: usize) -> &End {
        let [first, second] = &self.ends;
        if end == 0 { first } else { second }
    }

    /// True if a wrong request was posted, at either end.
    pub(crate) const fn is_wrong(&self) -> bool {
        self.wrong[0] || self.wrong[1]
    }

    pub(super) fn is_wrong_at(&self, end: usize) -> bool {
        self.wrong.get(end) == Some(&true)
    }

    /// True if the queue pair of an end may have failed. A failure of the other end does not fail
    /// this end directly: it gets no more answers, and fails if it waits for one.
    pub(crate) fn may_have_failed(&self, end: usize, weather: &Weather) -> bool {
        let own = self.end(end);
        let unanswered = |request: &Request| {
            self.may_lack_receives(end, request) || self.may_be_silent(end, weather, request.posted)
        };
        let harmed = weather.harm_at(end).is_any();
        self.is_wrong_at(end) || own.torn || harmed || own.sends.iter().any(unanswered)
    }

    /// True if frames were lost since the oldest outstanding request of an end was posted, or since
    /// `before` if that is earlier.
    pub(crate) fn has_lost(&self, end: usize, weather: &Weather, before: Moment) -> bool {
        let oldest = self.end(end).sends.front();
        let since = oldest.map_or(before, |request| request.posted);
        weather.lost_since(since).max(weather.lost_since(before)) > 0
    }

    /// True if the other end may not have answered `end`. That takes more losses than retries since
    /// the request was posted, or a destroyed end.
    pub(super) fn may_be_silent(&self, end: usize, weather: &Weather, posted: Moment) -> bool {
        let lost = |end: usize, since: Moment| {
            weather.lost_since(since) > u64::from(self.end(end).retries)
        };
        let peer = self.end(1 - end);
        // It may have failed by itself, and the failure was not reported yet.
        let may_have_failed = peer.sends.iter().any(|request| {
            self.may_lack_receives(1 - end, request) || lost(1 - end, request.posted)
        });
        let harmed = weather.harm.iter().any(|harm| harm.is_any());
        self.is_wrong_at(1 - end) || peer.torn || may_have_failed || harmed || lost(end, posted)
    }

    /// True if the other end may have had no receive for a request, more often than the retries
    /// allow.
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
