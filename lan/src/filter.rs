//! The pair of rings by which flow director rules are programmed: descriptors with packets go out,
//! reports come back.
//!
//! Control path: one rule at a time, each waited for. Source: reference e810-lan-data, section 3;
//! DPDK ice `ice_fdir_programming`.

use crate::control::Service;
use crate::ring::{Ring, RingError};
use ringside_bus::clock::wait_for;
use ringside_bus::{Clock, DmaBuffer, Doorbell};
use ringside_spec::lan::receive::FilterStatus;
use ringside_spec::lan::transmit::{DataCommand, FilterAction, FilterIdentity};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use thiserror::Error;

/// Descriptors of both rings.
pub const FILTER_RING_ENTRIES: u16 = 64;
/// Bytes of the packet that describes the packets of a rule.
pub const FILTER_PACKET_BYTES: usize = 512;
/// Memory that the packets take: one to a pair of descriptors.
pub const FILTER_PACKETS_BYTES: usize = FILTER_RING_ENTRIES as usize / 2 * FILTER_PACKET_BYTES;
/// Bits of a descriptor's second word that mean that the device is done with it.
const KIND: u64 = 0xF;
/// The time between two reads of a ring.
const STEP: Duration = Duration::from_micros(10);

/// The reason why a rule was not programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// The device has no profile for packets of the rule's kind.
    #[error("the device has no profile for the rule's packets; this is a bug of the driver")]
    NoProfile,
    /// The device refused it: there is no room, or no rule to remove.
    #[error("the device refused the rule: its table is full, or has no rule to remove")]
    Refused,
    /// The device took the descriptors and did not report.
    #[error("the device did not {what} within {waited_ms} ms; recover the device")]
    NotReported {
        /// The purpose of the rule.
        what: &'static str,
        /// Time that was waited, in milliseconds.
        waited_ms: u128,
    },
    /// An earlier rule was not reported: the rules in the device are not known.
    #[error("the device did not report an earlier rule; recover the device")]
    Lost,
    /// The device is out of service.
    #[error("the device is out of service: recover it, then add the rules again")]
    OutOfService,
    /// A packet that does not fit.
    #[error("a packet of {0} bytes is not possible: a rule's packet has 512 at most")]
    Packet(usize),
}

/// Memory of a [`FilterQueue`].
#[derive(Debug)]
pub struct FilterMemory {
    /// Transmit ring: 16 bytes a descriptor.
    pub ring: DmaBuffer,
    /// Receive ring: 32 bytes a descriptor.
    pub reports: DmaBuffer,
    /// [`FILTER_PACKETS_BYTES`] bytes.
    pub packets: DmaBuffer,
}

/// A transmit ring of programming descriptors, and the receive ring of their reports.
///
/// Dropping it frees its memory if the device has certainly stopped using it; otherwise the memory
/// is kept until a reset of the device.
pub struct FilterQueue {
    ring: Ring<2>,
    reports: Ring<4>,
    packets: Option<DmaBuffer>,
    doorbell: Doorbell,
    reports_tail: Doorbell,
    service: Arc<Service>,
    next: u16,
    report: u16,
    lost: bool,
}

impl FilterQueue {
    /// A pair of rings that the device does not use yet.
    ///
    /// Errors: [`RingError`], memory that is too small or not aligned.
    pub fn new(
        memory: FilterMemory,
        doorbell: Doorbell,
        reports_tail: Doorbell,
        service: Arc<Service>,
    ) -> Result<Self, RingError> {
        let FilterMemory {
            ring,
            reports,
            packets,
        } = memory;
        let ring = Ring::new(ring, FILTER_RING_ENTRIES)?;
        let reports = Ring::new(reports, FILTER_RING_ENTRIES)?;
        if packets.length() < FILTER_PACKETS_BYTES {
            return Err(RingError::Memory {
                descriptors: FILTER_RING_ENTRIES,
                needed: FILTER_PACKETS_BYTES,
            });
        }
        ring.zero();
        reports.zero();
        Ok(Self {
            ring,
            reports,
            packets: Some(packets),
            doorbell,
            reports_tail,
            service,
            next: 0,
            report: 0,
            lost: false,
        })
    }

    /// Offers the report ring to the device; both queues are in service.
    pub fn start(&self) {
        self.reports_tail.ring((FILTER_RING_ENTRIES - 1).into());
    }

    /// Frees the memory of queues that the device has stopped.
    pub fn free(mut self) {
        drop((self.ring.take_buffer(), self.reports.take_buffer()));
        self.packets = None;
    }

    /// Makes the device execute one programming descriptor, and waits for its report.
    ///
    /// `packet` is one of the packets that the rule is for, as the device would send it: at most
    /// [`FILTER_PACKET_BYTES`], completed with zeros. Control path.
    /// Errors: [`FilterError`]. After [`FilterError::NotReported`] nothing more is programmed.
    pub fn program(
        &mut self,
        action: FilterAction,
        identity: FilterIdentity,
        packet: &[u8],
        clock: &dyn Clock,
        limit: Duration,
    ) -> Result<(), FilterError> {
        if !self.service.in_service() {
            return Err(FilterError::OutOfService);
        }
        if self.lost {
            return Err(FilterError::Lost);
        }
        let slot = usize::from(self.next / 2) * FILTER_PACKET_BYTES;
        let mut bytes = [0; FILTER_PACKET_BYTES];
        let place = bytes.get_mut(..packet.len());
        place
            .ok_or(FilterError::Packet(packet.len()))?
            .copy_from_slice(packet);
        let packets = self.packets.as_ref().ok_or(FilterError::Lost)?;
        if !packets.write(slot, &bytes) {
            return Err(FilterError::Packet(packet.len()));
        }
        let address = packets.iova().0 + slot as u64;
        let command = DataCommand::ZERO
            .with_end_of_packet(true)
            .with_report_status(true)
            .with_dummy(true)
            .with_buffer_bytes(FILTER_PACKET_BYTES as u64);
        let at = usize::from(self.next) * 2;
        let words = self.ring.words();
        for (offset, word) in [action.0, identity.0, address, command.0]
            .into_iter()
            .enumerate()
        {
            words.store(at + offset, word);
        }
        self.next = self.ring.after(self.ring.after(self.next));
        fence(Ordering::Release);
        self.doorbell.ring(self.next.into());
        let done = self.wait(at + 3, clock, limit);
        let status = done.and_then(|()| self.take_report(clock, limit));
        self.lost = matches!(status, Err(FilterError::NotReported { .. }));
        match status? {
            status if status.no_profile() => Err(FilterError::NoProfile),
            status if status.failed() => Err(FilterError::Refused),
            _ => Ok(()),
        }
    }

    /// Waits until the device wrote the descriptor back whose second word is at `word`.
    fn wait(&self, word: usize, clock: &dyn Clock, limit: Duration) -> Result<(), FilterError> {
        let words = self.ring.words();
        let done = || (words.load_acquire(word) & KIND == DataCommand::DONE.0).then_some(());
        until(done, "take a programming descriptor", clock, limit)
    }

    fn take_report(
        &mut self,
        clock: &dyn Clock,
        limit: Duration,
    ) -> Result<FilterStatus, FilterError> {
        let words = self.reports.words();
        let word = usize::from(self.report) * 4 + 1;
        let look = || {
            let status = FilterStatus(words.load_acquire(word));
            status.done().then_some(status)
        };
        let status = until(look, "report a rule", clock, limit)?;
        words.store(word, 0);
        // One descriptor stays the driver's: a full ring differs from an empty one.
        let tail = self.report;
        self.report = self.reports.after(self.report);
        self.reports_tail.ring(tail.into());
        Ok(status)
    }
}

fn until<T>(
    look: impl Fn() -> Option<T>,
    what: &'static str,
    clock: &dyn Clock,
    limit: Duration,
) -> Result<T, FilterError> {
    let found = wait_for(clock, limit, STEP, || {
        Ok::<_, std::convert::Infallible>(look())
    });
    let Ok(found) = found;
    found.ok_or(FilterError::NotReported {
        what,
        waited_ms: limit.as_millis(),
    })
}

impl Drop for FilterQueue {
    fn drop(&mut self) {
        // In a child by fork: the queue is its parent's.
        if self.ring.is_elsewhere() {
            return;
        }
        let all = [
            self.ring.take_buffer(),
            self.reports.take_buffer(),
            self.packets.take(),
        ];
        for memory in all.into_iter().flatten() {
            self.service.keep_memory(memory);
        }
    }
}

impl std::fmt::Debug for FilterQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterQueue")
            .field("next", &self.next)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
