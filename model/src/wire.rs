//! The wire: a learning switch whose ports are functions.
//!
//! A frame travels as parsed headers and a payload that stays in the sender's memory; it becomes
//! bytes only for a capture tap, or where [`crate::WorldSettings::frames_as_bytes`] asks for it.

mod ethernet;
mod frame;
mod table;

pub use ethernet::EthernetFrame;
pub use frame::{
    Frame, INLINE_BYTES_MAX, PIECES_MAX, Payload, PayloadError, Pieces, SerialiseError,
};

use crate::faults::Fault;
use crate::function::FunctionModel;
use crate::packet::{MacAddress, ParseError};
use ringside_bus::{DmaSpace, Instant};
use std::collections::VecDeque;
use table::MacTable;

/// Frames that a port may send before the next port has its turn.
const BURST: usize = 32;

/// Frames that may wait to come in from outside.
const INJECTED_MAX: usize = 4096;

const MILLION: u64 = 1_000_000;

/// Sees every frame that a port sends: time, port, bytes without frame check sequence.
pub type Tap = Box<dyn FnMut(Instant, usize, &[u8]) + Send>;

/// What the switch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// Frames that were given to a port, once for each port.
    pub delivered: u64,
    /// Frames whose destination was not known, or a group: given to all other ports.
    pub flooded: u64,
    /// Frames that a fault swallowed.
    pub dropped: u64,
    /// Frames that could not be turned into bytes or back.
    pub malformed: u64,
}

/// See the module.
pub struct Switch {
    ports: usize,
    frames_as_bytes: bool,
    table: MacTable,
    tap: Option<Tap>,
    loss: Option<Loss>,
    injected: VecDeque<(usize, Frame)>,
    counters: SwitchCounters,
    scratch: Vec<u8>,
}

/// A seeded choice of frames to lose.
struct Loss {
    per_million: u32,
    state: u64,
}

impl Loss {
    /// Xorshift64*: small, and the same everywhere. Source: S. Vigna, "An experimental exploration
    /// of Marsaglia's xorshift generators, scrambled".
    fn strikes(&mut self) -> bool {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let draw = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((draw * MILLION) >> 32) < u64::from(self.per_million)
    }
}

impl Switch {
    /// A switch of `ports` ports that knows nobody.
    #[must_use]
    pub fn new(ports: usize, frames_as_bytes: bool) -> Self {
        Self {
            ports,
            frames_as_bytes,
            table: MacTable::default(),
            tap: None,
            loss: None,
            injected: VecDeque::new(),
            counters: SwitchCounters::default(),
            scratch: Vec::new(),
        }
    }

    /// Shows every frame to `tap` from now on; `None` ends that.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.tap = tap;
    }

    /// What it did so far.
    #[must_use]
    pub const fn counters(&self) -> SwitchCounters {
        self.counters
    }

    /// Puts a fault on the wire; faults of a function are not its business and ignored.
    pub fn inject(&mut self, fault: Fault) {
        if let Fault::DropFrames { per_million, seed } = fault {
            // zero is the one state that the generator never leaves
            self.loss = (per_million > 0).then_some(Loss {
                per_million,
                state: seed.max(1),
            });
        }
    }

    /// A frame from outside, as if `port` had sent it.
    ///
    /// # Errors
    /// What is wrong with its bytes. A full queue drops it and counts that.
    pub fn inject_frame(&mut self, port: usize, bytes: &[u8]) -> Result<(), ParseError> {
        let frame = Frame::parse(bytes)?;
        if self.injected.len() < INJECTED_MAX {
            self.injected.push_back((port, frame));
        } else {
            self.counters.dropped += 1;
        }
        Ok(())
    }

    /// Forwards what came from outside; true if there was anything.
    pub fn step(
        &mut self,
        functions: &mut [FunctionModel],
        spaces: &[DmaSpace],
        now: Instant,
    ) -> bool {
        let mut worked = false;
        for _ in 0..BURST {
            let Some((port, frame)) = self.injected.pop_front() else {
                break;
            };
            self.forward(port, &frame, functions, spaces, now);
            worked = true;
        }
        worked
    }

    /// Lets function `index` send a burst; true if it sent anything.
    pub fn transmit_from(
        &mut self,
        index: usize,
        functions: &mut [FunctionModel],
        spaces: &[DmaSpace],
        now: Instant,
    ) -> bool {
        let mut worked = false;
        for _ in 0..BURST {
            let Some(sender) = functions.get_mut(index) else {
                break;
            };
            let next = sender.next_frame(spaces, now);
            let Some(frame) = &next else {
                break;
            };
            worked = true;
            self.forward(index, frame, functions, spaces, now);
        }
        worked
    }

    /// Nothing in the switch waits for time to pass.
    #[must_use]
    pub const fn next_timer(&self) -> Option<Instant> {
        None
    }

    #[inline]
    fn forward(
        &mut self,
        from: usize,
        frame: &Frame,
        functions: &mut [FunctionModel],
        spaces: &[DmaSpace],
        now: Instant,
    ) {
        // Two ports of one function's own address: its internal switch turns the frame around.
        let destination = frame.packet.path.destination;
        if let Some(own) = functions.get_mut(from)
            && own.loops_back(destination)
        {
            own.receive(frame, spaces, now);
            self.counters.delivered += 1;
            return;
        }
        if self.loss.as_mut().is_some_and(Loss::strikes) {
            self.counters.dropped += 1;
            return;
        }
        if self.frames_as_bytes || self.tap.is_some() {
            self.forward_as_bytes(from, frame, functions, spaces, now);
        } else {
            self.deliver(from, frame, functions, spaces, now);
        }
    }

    #[cold]
    fn forward_as_bytes(
        &mut self,
        from: usize,
        frame: &Frame,
        functions: &mut [FunctionModel],
        spaces: &[DmaSpace],
        now: Instant,
    ) {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        match frame.serialise(spaces, &mut bytes) {
            Ok(()) => {
                if let Some(tap) = &mut self.tap {
                    tap(now, from, &bytes);
                }
                if !self.frames_as_bytes {
                    self.deliver(from, frame, functions, spaces, now);
                } else {
                    match Frame::parse(&bytes) {
                        Ok(frame) => self.deliver(from, &frame, functions, spaces, now),
                        Err(error) => self.count_malformed(&error),
                    }
                }
            }
            Err(error) => self.count_malformed(&error),
        }
        self.scratch = bytes;
    }

    #[cold]
    fn count_malformed(&mut self, error: &dyn std::error::Error) {
        tracing::debug!(%error, "a frame was lost between headers and bytes");
        self.counters.malformed += 1;
    }

    #[inline]
    fn deliver(
        &mut self,
        from: usize,
        frame: &Frame,
        functions: &mut [FunctionModel],
        spaces: &[DmaSpace],
        now: Instant,
    ) {
        let path = &frame.packet.path;
        self.table.learn(path.source, from);
        let known = if is_group(path.destination) {
            None
        } else {
            self.table.find(path.destination)
        };
        match known {
            Some(port) if port == from => {}
            Some(port) => {
                if let Some(function) = functions.get_mut(port) {
                    function.receive(frame, spaces, now);
                    self.counters.delivered += 1;
                }
            }
            None => {
                self.counters.flooded += 1;
                let others = (0..self.ports).filter(|port| *port != from);
                for port in others {
                    if let Some(function) = functions.get_mut(port) {
                        function.receive(frame, spaces, now);
                        self.counters.delivered += 1;
                    }
                }
            }
        }
    }
}

/// True for broadcast and multicast addresses.
#[inline]
pub(crate) const fn is_group(address: MacAddress) -> bool {
    address.0[0] & 1 != 0
}

#[cfg(test)]
mod tests;
