//! Read requests whose responses are still to be sent, in order of PSN.

use crate::config::PathMtu;
use crate::packet::Psn;

/// Bytes of the responder's memory that a read response carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBytes<G> {
    /// the result of [`ResponderHost::grant`](super::ResponderHost::grant) for the whole read
    pub grant: G,
    /// the first byte
    pub address: u64,
    /// 1..=path MTU, or those of all packets of a run
    pub length_bytes: u32,
}

/// A read whose response is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read<G> {
    /// number of the next response packet
    pub(super) next: Psn,
    /// number of the first; the response starts there
    pub(super) first: Psn,
    /// the next byte
    pub(super) address: u64,
    /// bytes still to send
    pub(super) remaining_bytes: u32,
    /// packets still to send, at least 1
    pub(super) remaining_packets: u32,
    /// none for an empty read
    pub(super) grant: Option<G>,
    pub(super) message_sequence_number: u32,
    /// requested again after the whole response was sent
    pub(super) is_repetition: bool,
}

impl<G> Read<G> {
    /// The number after the last response packet.
    fn end(&self) -> Psn {
        self.next.plus(self.remaining_packets)
    }
}

/// One packet of a response.
pub(super) struct Part<G> {
    pub(super) psn: Psn,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// number of packets
    pub(super) packets: u32,
    /// packets of the response after it
    pub(super) packets_left: u32,
    pub(super) bytes: Option<RemoteBytes<G>>,
    pub(super) message_sequence_number: u32,
}

/// A ring of reads, sorted by the PSN of their next packet.
///
/// The peer may have `limit` reads outstanding. A request that comes again is no further read: the
/// limit does not count repetitions, and as many of them have a place of their own.
#[derive(Debug)]
pub(super) struct ReadQueue<G> {
    ring: Box<[Option<Read<G>>]>,
    head: usize,
    length: usize,
    /// those of `length` that are repetitions
    repetitions: usize,
    limit: usize,
}

impl<G: Copy> ReadQueue<G> {
    pub(super) fn new(limit: usize) -> Self {
        let capacity = (2 * limit).max(1).next_power_of_two();
        Self {
            ring: vec![None; capacity].into_boxed_slice(),
            head: 0,
            length: 0,
            repetitions: 0,
            limit,
        }
    }

    /// Changes the number of reads that the peer may have outstanding. Those that it has stay.
    pub(super) fn set_limit(&mut self, limit: usize) {
        // The ring may have more room than the limit lets in, and more reads.
        if 2 * limit <= self.ring.len() {
            self.limit = limit;
            return;
        }
        let mut wider = Self::new(limit);
        for place in 0..self.length {
            if let Some(read) = self.get(place) {
                wider.push(*read);
            }
        }
        *self = wider;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// True if the peer has as many reads outstanding as it may.
    pub(super) fn is_full(&self) -> bool {
        self.length - self.repetitions >= self.limit
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.repetitions = 0;
    }

    fn index(&self, place: usize) -> usize {
        (self.head + place) & (self.ring.len() - 1)
    }

    fn get(&self, place: usize) -> Option<&Read<G>> {
        self.ring.get(self.index(place)).and_then(Option::as_ref)
    }

    /// Adds a read after all others. The caller has checked [`ReadQueue::is_full`].
    pub(super) fn push(&mut self, read: Read<G>) {
        self.insert(self.length, read);
    }

    /// True if the response packet `psn` is still going to be sent.
    pub(super) fn covers(&self, psn: Psn) -> bool {
        (0..self.length)
            .filter_map(|place| self.get(place))
            .any(|read| {
                let after = psn.distance_from(read.next);
                after >= 0 && i64::from(after) < i64::from(read.remaining_packets)
            })
    }

    /// Sends a response again from the packet `again.next` on. If it is still being sent, it goes
    /// back to that packet. Otherwise `again` becomes a repetition. Returns false, and does
    /// nothing, if there are too many of them.
    pub(super) fn repeat(&mut self, mut again: Read<G>) -> bool {
        let under_way = (0..self.length).find(|place| {
            self.get(*place)
                .is_some_and(|read| read.end() == again.end())
        });
        again.is_repetition = true;
        if let Some(read) = under_way.and_then(|place| self.remove(place)) {
            again.is_repetition = read.is_repetition;
            again.message_sequence_number = read.message_sequence_number;
        } else if self.repetitions >= self.limit {
            return false;
        }
        self.push_in_order(again);
        true
    }

    /// Adds a read before those with a later next packet.
    fn push_in_order(&mut self, read: Read<G>) {
        let place = (0..self.length)
            .find(|place| {
                self.get(*place)
                    .is_some_and(|other| other.next.distance_from(read.next) > 0)
            })
            .unwrap_or(self.length);
        self.insert(place, read);
    }

    fn insert(&mut self, place: usize, read: Read<G>) {
        assert!(self.length < self.ring.len(), "the caller checks for room");
        for moved in (place..self.length).rev() {
            let (from, to) = (self.index(moved), self.index(moved + 1));
            self.ring[to] = self.ring[from];
        }
        let index = self.index(place);
        self.repetitions += usize::from(read.is_repetition);
        self.ring[index] = Some(read);
        self.length += 1;
    }

    fn remove(&mut self, place: usize) -> Option<Read<G>> {
        let index = self.index(place);
        let removed = self.ring.get_mut(index)?.take()?;
        for moved in place + 1..self.length {
            let (from, to) = (self.index(moved), self.index(moved - 1));
            self.ring[to] = self.ring[from];
        }
        self.repetitions -= usize::from(removed.is_repetition);
        self.length -= 1;
        Some(removed)
    }

    /// Takes the next packet of the oldest response, or a run of up to `run_bytes` of full ones.
    pub(super) fn next_part(&mut self, mtu: PathMtu, run_bytes: u32) -> Option<Part<G>> {
        if self.length == 0 {
            return None;
        }
        let index = self.index(0);
        let read = self.ring.get_mut(index)?.as_mut()?;
        // The last packet travels by itself.
        let full = read.remaining_packets.saturating_sub(1).max(1);
        let packets = mtu.full_packets(run_bytes).min(full);
        let length_bytes = read.remaining_bytes.min(mtu.bytes() * packets);
        let part = Part {
            packets_left: read.remaining_packets - packets,
            psn: read.next,
            is_first: read.next == read.first,
            is_last: read.remaining_packets == 1,
            packets,
            bytes: read.grant.map(|grant| RemoteBytes {
                grant,
                address: read.address,
                length_bytes,
            }),
            message_sequence_number: read.message_sequence_number,
        };
        read.next = read.next.plus(packets);
        read.address = read.address.wrapping_add(u64::from(length_bytes));
        read.remaining_bytes -= length_bytes;
        read.remaining_packets -= packets;
        if read.remaining_packets == 0 {
            self.repetitions -= usize::from(read.is_repetition);
            self.head = self.index(1);
            self.length -= 1;
        }
        Some(part)
    }
}
