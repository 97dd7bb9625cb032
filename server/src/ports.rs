//! External wires: ports of the model's switch that lead out of the process instead of to a
//! function.
//!
//! The switch itself does no input or output; this module does. Nothing blocks, and each turn is a
//! bounded burst. A slow far end holds back the functions that send to it. A far end that is
//! absent, down or refuses frames loses them: they are counted, and nothing waits for it.

mod capture;
mod datagram;
mod socket_file;
mod tap;
mod udp;

pub use capture::{Capture, CaptureError};
pub use datagram::{DatagramError, DatagramWire};
pub use socket_file::{SocketFile, SocketPathError};
pub use tap::TapWire;
pub use udp::{UDP_WIRE_PORT, UdpEnds, UdpEndsError, UdpError, UdpWire};

use crate::attachment::{Attachment, Readiness};
use ringside_bus::Instant;
use ringside_model::wire::{InjectError, MAX_BYTES_ON_PORT, Switch};
use ringside_model::world::World;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The meaning of a frame from outside whose sender is a function of this model.
pub const OWN_ADDRESS: &str = "frames come in that an address of this model has sent: give each side its own \
     --first; more than two sides are a star or a tree, without a ring of wires";

/// The most frames of one wire, each way, in one turn.
const BURST: usize = 32;

/// Consecutive failed reads after which a wire is given up: its interface was removed.
const MAX_FAILURES: u32 = 16;

/// The result of a read from a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame of that many bytes is at the start of the buffer. If it fills the buffer, it may
    /// have been longer.
    Frame(usize),
    /// No frame is available.
    Nothing,
    /// Reading failed; later reads may succeed.
    Failed,
}

/// The result of a write of a frame to a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The frame was sent.
    Gone,
    /// The wire has no room now; try again later.
    NoRoom,
    /// The far end is absent or down: the frame is lost.
    NoPeer,
    /// The operating system refused it: the frame is lost.
    Refused,
}

/// A carrier of Ethernet frames to and from outside the process.
pub trait Wire: Send {
    /// Its name for reports, such as `tap tap0`.
    fn name(&self) -> String;
    /// Reads one frame, if one is available.
    fn receive(&mut self, buffer: &mut [u8]) -> Received;
    /// Writes one frame, if that is possible without blocking.
    fn send(&mut self, frame: &[u8]) -> Sent;
    /// The descriptor that becomes readable when a frame arrives.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Counts of the frames that a wire carried and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Frames received.
    pub received: u64,
    /// Bytes of received frames.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes of sent frames.
    pub sent_bytes: u64,
    /// Received frames that end inside their Ethernet header.
    pub too_short: u64,
    /// Received frames that are longer than any wire carries.
    pub too_long: u64,
    /// Received frames that name a function of this model as their sender: the far end uses the
    /// same addresses. They are dropped.
    pub own_address: u64,
    /// Reads that failed.
    pub read_failures: u64,
    /// Frames lost because the far end is absent or down.
    pub no_peer: u64,
    /// Frames that the operating system refused.
    pub refused: u64,
}

/// Counters of all wires, readable while the wires are in use.
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

/// All external wires of one world; see the module.
pub struct Ports {
    attached: Vec<Attached>,
    report: WireReport,
    buffer: Vec<u8>,
    own: Vec<[u8; 6]>,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            attached: Vec::new(),
            report: WireReport::default(),
            // one byte more than a frame may have, to detect a longer frame
            buffer: vec![0; MAX_BYTES_ON_PORT + 1],
            own: Vec::new(),
        }
    }
}

impl Ports {
    /// Adds a port with this wire to the switch.
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

    /// Names the addresses of the model's functions: a frame from outside with one of them as its
    /// source is dropped and counted, and the first is logged.
    pub fn refuse_from(&mut self, own: Vec<[u8; 6]>) {
        self.own = own;
    }

    /// Counters of all wires. They stay current while the wires are in use.
    #[must_use]
    pub fn report(&self) -> WireReport {
        self.report.clone()
    }

    /// Moves a burst of frames each way. Returns true if any frame moved or was lost.
    pub fn pump(&mut self, switch: &mut Switch) -> bool {
        let mut worked = false;
        for (index, attached) in self.attached.iter_mut().enumerate() {
            attached.changed = false;
            attached.take_in(switch, &mut self.buffer, &self.own);
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
        self.failures_in_a_row >= MAX_FAILURES
    }

    fn take_in(&mut self, switch: &mut Switch, buffer: &mut [u8], own: &[[u8; 6]]) {
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
            let source = frame.get(6..).and_then(<[u8]>::first_chunk::<6>);
            if source.is_some_and(|source| own.contains(source)) {
                self.counters.own_address += 1;
                // Fewer and fewer, so that both sides do not return each other's for ever.
                if self.counters.own_address.is_power_of_two() {
                    tell_of_own(&mut *self.wire, frame, self.counters.own_address);
                }
                continue;
            }
            match switch.inject_frame(self.port, frame) {
                Ok(()) => {
                    self.counters.received += 1;
                    self.counters.received_bytes += length as u64;
                }
                Err(InjectError::TooShort { .. }) => self.counters.too_short += 1,
                Err(InjectError::TooLong { .. }) => self.counters.too_long += 1,
                // room was checked before
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
            tracing::warn!(wire, "reading keeps failing; the wire is no longer read");
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
                Sent::NoPeer => self.counters.no_peer += 1,
                Sent::Refused => self.counters.refused += 1,
            }
            self.changed = true;
            switch.take_outgoing(self.port);
        }
    }
}

/// Logs the first frame with an own address, and returns this one: the far end, which may only
/// send, sees one of its addresses too.
#[cold]
fn tell_of_own(wire: &mut dyn Wire, frame: &[u8], count: u64) {
    if count == 1 {
        let name = wire.name();
        tracing::error!(wire = name, "{OWN_ADDRESS}");
    }
    // One that is lost is missed only for the message.
    let _ = wire.send(frame);
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
