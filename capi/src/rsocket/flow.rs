//! Accounts of a connection: what may be sent, what was received, what is granted to the peer.
//!
//! Pure: indices and counts, no memory. The peer's numbers are checked.

use super::wire::{Greeting, TARGETS, Target};
use std::collections::VecDeque;

/// Control messages that may be on their way at once.
pub(super) const CONTROLS: u16 = 4;
/// Least room of the send buffer with which a transfer begins.
pub(super) const LOW_WATER: u32 = 2048;
/// Most bytes of one transfer.
pub(super) const MAX_TRANSFER_BYTES: u32 = 65536;

/// A part of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// A ring of bytes that are taken in order and returned in order.
#[derive(Debug)]
struct Ring {
    size: u32,
    at: u32,
    free: u32,
}

impl Ring {
    /// The next bytes, in one part or two.
    fn take(&mut self, length: u32) -> [Part; 2] {
        debug_assert!(length <= self.free);
        let first = Part {
            offset: self.at,
            length: length.min(self.size - self.at),
        };
        let second = Part {
            offset: 0,
            length: length - first.length,
        };
        self.free -= length;
        self.at = (self.at + length) % self.size;
        [first, second]
    }
}

/// The sending side.
#[derive(Debug)]
pub(super) struct Outgoing {
    ring: Ring,
    /// requests that may be posted
    slots: u16,
    most_slots: u16,
    controls: u16,
    /// messages sent, modulo 65536
    number: u16,
    /// the number at which the peer has no receive left
    limit: u16,
    targets: [Target; TARGETS],
    current: usize,
}

impl Outgoing {
    /// `requests` includes control messages.
    pub(super) fn new(requests: u16, buffer_bytes: u32) -> Self {
        let slots = requests.saturating_sub(CONTROLS);
        Self {
            ring: Ring {
                size: buffer_bytes,
                at: 0,
                free: buffer_bytes,
            },
            slots,
            most_slots: slots,
            controls: CONTROLS,
            number: 0,
            limit: 0,
            targets: [Target::default(); TARGETS],
            current: 0,
        }
    }

    pub(super) fn begin(&mut self, greeting: &Greeting) {
        self.limit = greeting.credits;
        self.targets[0] = greeting.buffer;
    }

    pub(super) fn grant(&mut self, limit: u16) {
        self.limit = limit;
    }

    /// The target entry that is used up and that the peer writes next; nothing while it has bytes.
    pub(super) fn exhausted(&self) -> Option<usize> {
        let target = self.targets.get(self.current)?;
        (target.length == 0).then_some(self.current)
    }

    /// The peer wrote the entry that was used up.
    pub(super) fn refill(&mut self, target: Target) {
        if let Some(place) = self.targets.get_mut(self.current) {
            *place = target;
        }
    }

    /// True if a request may be posted that uses the least room of the send buffer.
    pub(super) fn can_post(&self) -> bool {
        self.slots > 0 && self.number != self.limit && self.ring.free >= LOW_WATER
    }

    /// True if data may be sent.
    pub(super) fn can_send(&self) -> bool {
        self.can_post() && self.exhausted().is_none()
    }

    /// The bytes that one transfer may have.
    pub(super) fn room(&self) -> u32 {
        let target = self.targets.get(self.current).copied().unwrap_or_default();
        self.ring.free.min(target.length)
    }

    /// Bytes of the send buffer.
    pub(super) const fn ring_room(&self) -> u32 {
        self.ring.free
    }

    /// Takes bytes of the peer's buffer; they are sent next.
    pub(super) fn aim(&mut self, length: u32) -> Target {
        let Some(target) = self.targets.get_mut(self.current) else {
            return Target::default();
        };
        let aimed = Target { length, ..*target };
        target.address = target.address.wrapping_add(length.into());
        target.length -= length;
        if target.length == 0 {
            self.current = (self.current + 1) % TARGETS;
        }
        aimed
    }

    /// Takes a request, and bytes of the send buffer for it.
    pub(super) fn take(&mut self, buffered: u32) -> [Part; 2] {
        self.slots -= 1;
        self.ring.take(buffered)
    }

    /// A message with immediate data goes: the peer spends a receive.
    pub(super) const fn count_message(&mut self) {
        self.number = self.number.wrapping_add(1);
    }

    /// A request is complete.
    pub(super) const fn complete(&mut self, buffered: u32) {
        self.slots += 1;
        self.ring.free += buffered;
    }

    /// Takes a control message; false if too many are on their way.
    pub(super) const fn take_control(&mut self) -> bool {
        let is_free = self.controls > 0;
        if is_free {
            self.controls -= 1;
        }
        is_free
    }

    pub(super) const fn complete_control(&mut self) {
        self.controls += 1;
    }

    pub(super) const fn has_control(&self) -> bool {
        self.controls > 0
    }

    /// True if nothing is on its way.
    pub(super) const fn is_idle(&self) -> bool {
        self.slots == self.most_slots && self.controls == CONTROLS
    }
}

/// The peer breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun {
    /// written bytes that it reports
    pub(super) bytes: u32,
    /// bytes that it may write
    pub(super) granted: u32,
}

/// The receiving side.
#[derive(Debug)]
pub(super) struct Incoming {
    /// bytes of the buffer: two halves
    size: u32,
    /// first unread byte
    at: u32,
    /// bytes of each message that was not read whole
    messages: VecDeque<u32>,
    /// bytes that the peer may write
    granted: u32,
    /// bytes read, and not granted again
    returned: u32,
    /// the half that is granted next
    next_half: u32,
    receives: u16,
    /// messages taken, modulo 65536
    number: u16,
    /// the number at which the peer gets an update
    tell_at: u16,
}

impl Incoming {
    pub(super) fn new(receives: u16, buffer_bytes: u32) -> Self {
        let half = buffer_bytes / 2;
        Self {
            size: buffer_bytes,
            at: 0,
            messages: VecDeque::with_capacity(receives.into()),
            granted: half,
            returned: half,
            next_half: half,
            receives,
            number: 0,
            tell_at: receives / 2,
        }
    }

    /// Takes the peer's report of written bytes.
    pub(super) fn arrived(&mut self, bytes: u32) -> Result<(), Overrun> {
        let Some(left) = self.granted.checked_sub(bytes) else {
            let granted = self.granted;
            return Err(Overrun { bytes, granted });
        };
        self.granted = left;
        match bytes {
            0 => self.count_message(),
            bytes => self.messages.push_back(bytes),
        }
        Ok(())
    }

    /// A message needs nothing more: its receive may be granted again.
    pub(super) const fn count_message(&mut self) {
        self.number = self.number.wrapping_add(1);
    }

    pub(super) fn has_data(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The parts of the buffer with up to `most` unread bytes, from `skip` on; nothing is taken.
    pub(super) fn unread(&self, skip: u32, most: usize) -> Option<Part> {
        let total: u32 = self.messages.iter().sum();
        let left = total.checked_sub(skip).filter(|left| *left > 0)?;
        let offset = (self.at + skip) % self.size;
        let length = left.min(self.size - offset);
        let length = length.min(u32::try_from(most).unwrap_or(u32::MAX));
        (length > 0).then_some(Part { offset, length })
    }

    /// So many bytes were read.
    pub(super) fn consume(&mut self, bytes: u32) {
        self.at = (self.at + bytes) % self.size;
        self.returned += bytes;
        let mut left = bytes;
        while left > 0
            && let Some(first) = self.messages.front_mut()
        {
            if *first > left {
                *first -= left;
                return;
            }
            left -= *first;
            self.messages.pop_front();
            self.count_message();
        }
    }

    /// True if the peer is to get an update of its credits.
    pub(super) const fn owes(&self) -> bool {
        let past = self.number.wrapping_sub(self.tell_at);
        self.returned >= self.size / 2 || past < 0x8000
    }

    /// The update for the peer: the last message that it may send, and the half that it may write
    /// now, if one was read.
    pub(super) const fn settle(&mut self) -> (u16, Option<Part>) {
        self.tell_at = self.number.wrapping_add(self.receives / 2);
        let limit = self.number.wrapping_add(self.receives);
        let half = self.size / 2;
        if self.returned < half {
            return (limit, None);
        }
        let part = Part {
            offset: self.next_half,
            length: half,
        };
        self.returned -= half;
        self.granted += half;
        self.next_half = half - self.next_half;
        (limit, Some(part))
    }
}

#[cfg(test)]
mod tests;
