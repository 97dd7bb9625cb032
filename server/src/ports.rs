//! Wires that lead out of the model: what is at the other end of a port of the switch that is no
//! function.
//!
//! Here is the input and output that the switch does not do. Nothing blocks, and each turn is a
//! bounded burst. A far end that is slow holds back the functions that send to it. One that is
//! absent, down or takes nothing costs frames, which are counted, and is not waited for.

mod capture;
mod datagram;
mod socket_file;
mod tap;

pub use capture::{Capture, CaptureError};
pub use datagram::{DatagramError, DatagramWire};
pub use socket_file::{SocketFile, SocketPathError};
pub use tap::TapWire;

use crate::attachment::{Attachment, Readiness};
use ringside_bus::Instant;
use ringside_model::wire::{FRAME_BYTES_MAX, InjectError, Switch};
use ringside_model::world::World;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Frames of one wire, each way, before others have their turn.
const BURST: usize = 32;

/// Reads that fail one after the other until a wire is given up: its interface has been removed.
const FAILURES_MAX: u32 = 16;

/// The result of a read from a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame of that many bytes is at the start of the buffer; if that is all of the buffer, it
    /// may have been longer.
    Frame(usize),
    /// Nothing is there.
    Nothing,
    /// Reading failed; what comes next may be read.
    Failed,
}

/// The result of a write of a frame to a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Gone,
    /// There is no room now; try again later.
    NoRoom,
    /// Nobody is at the other end, or it is down: the frame is lost.
    NobodyThere,
    /// The system refused it: the frame is lost.
    Refused,
}

/// Something that carries Ethernet frames to and from outside the process.
pub trait Wire: Send {
    /// Its name for reports, such as `tap tap0`.
    fn name(&self) -> String;
    /// Reads one frame, if there is one.
    fn receive(&mut self, buffer: &mut [u8]) -> Received;
    /// Writes one frame, if it can be done at once.
    fn send(&mut self, frame: &[u8]) -> Sent;
    /// The descriptor that becomes readable when a frame arrives.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Counts of the frames that a wire carried and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Frames that came in.
    pub received: u64,
    /// Bytes of those.
    pub received_bytes: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// Frames that came in and end inside their Ethernet header.
    pub too_short: u64,
    /// Frames that came in and are longer than any wire carries.
    pub too_long: u64,
    /// Reads that failed.
    pub read_failures: u64,
    /// Frames that went nowhere because nobody is at the other end, or it is down.
    pub nobody_there: u64,
    /// Frames that the system refused.
    pub refused: u64,
}

/// Counters of all wires, to be read while they are in use.
#[derive(Clone, Debug, Default)]
pub struct WireReport(Arc<Mutex<Vec<(String, WireCounters)>>>);

impl WireReport {
    /// Name and counters of each wire.
    #[must_use]
    pub fn wires(&self) -> Vec<(String, WireCounters)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn put(&self, index: usize, counters: WireCounters) {
        let mut wires = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = wires.get_mut(index) {
            *kept = counters;
        }
    }
}

struct Attached {
    port: usize,
    wire: Box<dyn Wire>,
    counters: WireCounters,
    changed: bool,
    failures_in_a_row: u32,
}

/// All wires of one world; see the module.
pub struct Ports {
    attached: Vec<Attached>,
    report: WireReport,
    buffer: Vec<u8>,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            attached: Vec::new(),
            report: WireReport::default(),
            // one byte more than a frame may have, to see that it has more
            buffer: vec![0; FRAME_BYTES_MAX + 1],
        }
    }
}

impl Ports {
    /// Adds a port to the switch with this wire on it.
    pub fn attach(&mut self, switch: &mut Switch, wire: Box<dyn Wire>) {
        let mut wires = self.report.0.lock().unwrap_or_else(PoisonError::into_inner);
        wires.push((wire.name(), WireCounters::default()));
        self.attached.push(Attached {
            port: switch.add_port(),
            wire,
            counters: WireCounters::default(),
            changed: false,
            failures_in_a_row: 0,
        });
    }

    /// Counters of all wires; stays up to date while the wires are moved.
    #[must_use]
    pub fn report(&self) -> WireReport {
        self.report.clone()
    }

    /// Moves a burst of frames each way; true if any moved or was lost.
    pub fn pump(&mut self, switch: &mut Switch) -> bool {
        let mut worked = false;
        for (index, attached) in self.attached.iter_mut().enumerate() {
            attached.changed = false;
            attached.take_in(switch, &mut self.buffer);
            attached.send_out(switch);
            if attached.changed {
                worked = true;
                self.report.put(index, attached.counters);
            }
        }
        worked
    }
}

impl Attached {
    fn is_given_up(&self) -> bool {
        self.failures_in_a_row >= FAILURES_MAX
    }

    fn take_in(&mut self, switch: &mut Switch, buffer: &mut [u8]) {
        if self.is_given_up() {
            return;
        }
        for _ in 0..BURST.min(switch.room_inside()) {
            let length = match self.wire.receive(buffer) {
                Received::Frame(length) => length,
                Received::Nothing => break,
                Received::Failed => return self.count_failure(),
            };
            self.changed = true;
            self.failures_in_a_row = 0;
            let frame = buffer.get(..length).unwrap_or_default();
            match switch.inject_frame(self.port, frame) {
                Ok(()) => {
                    self.counters.received += 1;
                    self.counters.received_bytes += length as u64;
                }
                Err(InjectError::TooShort { .. }) => self.counters.too_short += 1,
                Err(InjectError::TooLong { .. }) => self.counters.too_long += 1,
                // room was asked for
                Err(InjectError::Full) => break,
            }
        }
    }

    #[cold]
    fn count_failure(&mut self) {
        self.changed = true;
        self.counters.read_failures += 1;
        self.failures_in_a_row += 1;
        if self.is_given_up() {
            let wire = self.wire.name();
            tracing::warn!(
                wire,
                "reading fails again and again; it is not read any more"
            );
        }
    }

    fn send_out(&mut self, switch: &mut Switch) {
        for _ in 0..BURST {
            let Some(frame) = switch.outgoing(self.port) else {
                break;
            };
            match self.wire.send(frame) {
                Sent::Gone => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += frame.len() as u64;
                }
                Sent::NoRoom => break,
                Sent::NobodyThere => self.counters.nobody_there += 1,
                Sent::Refused => self.counters.refused += 1,
            }
            self.changed = true;
            switch.take_outgoing(self.port);
        }
    }
}

impl Attachment for Ports {
    fn turn(&mut self, world: &mut World, _now: Instant) -> bool {
        self.pump(world.switch())
    }

    fn has_news(&self, world: &mut World) -> bool {
        let switch = world.switch();
        self.attached
            .iter()
            .any(|attached| switch.outgoing(attached.port).is_some())
    }

    fn descriptors<'a>(&'a self, into: &mut Vec<(BorrowedFd<'a>, Readiness)>) {
        let wires = self.attached.iter().filter(|wire| !wire.is_given_up());
        into.extend(wires.map(|attached| (attached.wire.descriptor(), Readiness::Readable)));
    }
}

#[cfg(test)]
mod tests;
