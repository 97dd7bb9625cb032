//! The wire: a learning switch whose first ports are functions; further ports are external.
//!
//! A RoCEv2 packet of a function travels as parsed headers and a payload that stays in the sender's
//! memory. It becomes bytes only for a capture tap, an external port, a fault that changes it, or
//! if [`crate::WorldSettings::frames_as_bytes`] is set. All other frames are bytes.
//!
//! The switch does no input or output: the owner of an external port moves its frames
//! ([`Switch::inject_frame`], [`Switch::outgoing`]).

mod direct;
mod fate;
mod impairment;
mod message;
mod outside;
mod table;

pub use crate::frame::{
    Frame, MAX_INLINE_BYTES, MAX_PIECES, Payload, PayloadError, Pieces, SerialiseError,
};
pub use fate::{FrameFate, Script};

use crate::faults::Fault;
use crate::frame::{RUN_BYTES, is_group};
use crate::function::FunctionModel;
use crate::packet::MacAddress;
use impairment::{Fate, Impairment};
use message::{HEADER_BYTES, Kind, Message, SHORTEST_BYTES};
use outside::OutsidePort;
use ringside_bus::{DmaSpace, Instant};
use ringside_spec::lan::limits::{CHECK_BYTES, MAX_FRAME_BYTES};
use std::collections::VecDeque;
use table::MacTable;

/// Frames that a port may send before the next port has its turn.
const BURST: usize = 32;

/// The most frames from outside that may wait.
const MAX_INJECTED: usize = 1024;

/// The longest frame that the wire carries, in bytes from the Ethernet header on, without frame
/// check sequence.
pub const MAX_BYTES_ON_PORT: usize = (MAX_FRAME_BYTES - CHECK_BYTES) as usize;

/// Sees every frame that a port sends: time, port, bytes without frame check sequence.
pub type Tap = Box<dyn FnMut(Instant, usize, &[u8]) + Send>;

/// Counts of the switch.
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
    /// RoCEv2 packets with a wrong invariant CRC or transport header that the RDMA engine of a
    /// function would have got, once for each. Datagrams to its port that are for a VSI without
    /// RDMA, or for all stations, are delivered as others are.
    pub damaged: u64,
    /// Frames that a full port outside did not take.
    pub no_room: u64,
    /// Frames that a fault sent twice.
    pub duplicated: u64,
    /// Frames that a fault held back.
    pub held: u64,
    /// Frames in which a fault changed a bit.
    pub corrupted: u64,
    /// Frames that a fault marked "congestion experienced".
    pub marked: u64,
}

/// The reason why a frame from outside was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// It ends inside its Ethernet header.
    #[error("a frame of {bytes} bytes ends inside its Ethernet header")]
    TooShort {
        /// Its length.
        bytes: usize,
    },
    /// No wire carries it.
    #[error("a frame of {bytes} bytes is longer than {MAX_BYTES_ON_PORT}; lower the sender's MTU")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Too many wait already; let the world take a step.
    #[error("{MAX_INJECTED} frames wait to come in already")]
    Full,
}

/// See the module.
pub struct Switch {
    functions: usize,
    outside: Vec<OutsidePort>,
    frames_as_bytes: bool,
    /// Frames need more than to be handed over: bytes, a tap or a fault.
    special: bool,
    table: MacTable,
    tap: Option<Tap>,
    impairment: Impairment,
    injected: VecDeque<(usize, Vec<u8>)>,
    counters: SwitchCounters,
    parsed_again: u64,
    scratch: Vec<u8>,
    /// The frame of a function that is on its way.
    frame: Option<Box<Frame>>,
    /// Frames that were handed on without the wire's looking at them.
    passed_on: u64,
    /// The function that got the last packets of each without a frame.
    last_ports: Vec<Option<usize>>,
}

/// The functions, the memory that each can reach, and the time.
struct Stations<'a> {
    functions: &'a mut [FunctionModel],
    spaces: &'a [DmaSpace],
    now: Instant,
}

impl Switch {
    /// Makes a switch without learnt addresses; ports from 0 to `functions` - 1 are functions.
    #[must_use]
    pub fn new(functions: usize, frames_as_bytes: bool) -> Self {
        Self {
            functions,
            outside: Vec::new(),
            frames_as_bytes,
            special: frames_as_bytes,
            table: MacTable::default(),
            tap: None,
            impairment: Impairment::default(),
            injected: VecDeque::new(),
            counters: SwitchCounters::default(),
            parsed_again: 0,
            scratch: Vec::new(),
            frame: None,
            passed_on: 0,
            last_ports: vec![None; functions],
        }
    }

    /// Shows every frame to `tap` from now on; `None` ends that.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.tap = tap;
        self.find_special();
    }

    /// The counts so far.
    #[must_use]
    pub const fn counters(&self) -> SwitchCounters {
        self.counters
    }

    /// Frames that were written as bytes and parsed again, in a world whose
    /// [`crate::WorldSettings::frames_as_bytes`] is set.
    #[must_use]
    pub const fn parsed_again(&self) -> u64 {
        self.parsed_again
    }

    /// Puts a fault on the wire, in place of one of its kind; faults of a function are ignored.
    pub fn inject(&mut self, fault: Fault) {
        self.impairment.inject(fault);
        self.find_special();
    }

    /// Lets `script` decide what happens to each frame, in place of all faults of the wire; `None`
    /// ends that. It is called once for each frame that a port sends.
    pub fn set_script(&mut self, script: Option<Script>) {
        self.impairment.script(script);
        self.find_special();
    }

    /// Ends all faults of the wire.
    pub fn clear_faults(&mut self) {
        self.impairment.clear();
        self.find_special();
    }

    /// Ends a fault of the wire, with any numbers.
    pub fn clear_fault(&mut self, fault: Fault) {
        self.impairment.end(fault);
        self.find_special();
    }

    /// The faults that are on the wire.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        self.impairment.active()
    }

    /// Adds a port that leads outside; gives its number.
    pub fn add_port(&mut self) -> usize {
        self.outside.push(OutsidePort::default());
        self.functions + self.outside.len() - 1
    }

    /// A frame from outside, as if `port` had sent it.
    ///
    /// # Errors
    /// The reason: its length, or too many waiting frames.
    pub fn inject_frame(&mut self, port: usize, frame: &[u8]) -> Result<(), InjectError> {
        let bytes = frame.len();
        match bytes {
            0..HEADER_BYTES => Err(InjectError::TooShort { bytes }),
            HEADER_BYTES..=MAX_BYTES_ON_PORT if self.room_inside() == 0 => Err(InjectError::Full),
            HEADER_BYTES..=MAX_BYTES_ON_PORT => {
                self.injected.push_back((port, frame.to_vec()));
                Ok(())
            }
            _ => Err(InjectError::TooLong { bytes }),
        }
    }

    /// The number of frames from outside that would be taken now.
    #[must_use]
    pub fn room_inside(&self) -> usize {
        MAX_INJECTED.saturating_sub(self.injected.len())
    }

    /// The oldest frame that waits at a port outside; it stays there.
    #[must_use]
    pub fn outgoing(&self, port: usize) -> Option<&[u8]> {
        let number = port.checked_sub(self.functions)?;
        self.outside.get(number)?.first()
    }

    /// Takes the oldest frame that waits at a port outside.
    pub fn take_outgoing(&mut self, port: usize) -> Option<Vec<u8>> {
        let number = port.checked_sub(self.functions)?;
        self.outside.get_mut(number)?.pop()
    }

    /// Forwards frames from outside and frames that a fault held back; true if there was any.
    #[inline]
    pub fn step(
        &mut self,
        functions: &mut [FunctionModel],
        spaces: &[DmaSpace],
        now: Instant,
    ) -> bool {
        if self.injected.is_empty() && !self.special {
            return false;
        }
        self.step_rarely(&mut Stations {
            functions,
            spaces,
            now,
        })
    }

    #[cold]
    fn step_rarely(&mut self, stations: &mut Stations<'_>) -> bool {
        let mut worked = false;
        for _ in 0..BURST {
            let Some((from, bytes)) = self.impairment.release(stations.now) else {
                break;
            };
            self.carry(from, &bytes, stations);
            worked = true;
        }
        for _ in 0..BURST {
            let Some((from, bytes)) = self.injected.pop_front() else {
                break;
            };
            self.accept(from, bytes, stations);
            worked = true;
        }
        if worked {
            self.find_special();
            for function in &mut *stations.functions {
                function.deliver_causes();
            }
        }
        worked
    }

    /// Lets function `index` send a burst of each kind; true if it sent anything.
    ///
    /// A function whose frames fill a port that leads outside waits, as if that port had sent it
    /// pause frames; see `wire::outside`.
    pub fn transmit_from(
        &mut self,
        index: usize,
        functions: &mut [FunctionModel],
        spaces: &[DmaSpace],
        now: Instant,
    ) -> bool {
        let mut full = self.outside.iter_mut();
        if full.any(|port| port.holds(index, now)) {
            return false;
        }
        let mut worked = false;
        // Single packets, where anything on the wire reads packets or takes them as bytes.
        let run_bytes = match self.special || !self.outside.is_empty() {
            true => 0,
            false => RUN_BYTES,
        };
        // One frame is filled again and again: it is large to move.
        let mut frame = self.frame.take().unwrap_or_default();
        let mut left = BURST as u32;
        while left > 0 {
            if run_bytes > 0
                && let Some((packets, more)) = self.deliver(index, functions, (spaces, now), left)
            {
                worked = true;
                left -= packets;
                if more {
                    continue;
                }
                break;
            }
            let Some(sender) = functions.get_mut(index) else {
                break;
            };
            if !sender.next_frame(spaces, now, run_bytes, &mut frame) {
                break;
            }
            worked = true;
            left -= 1;
            self.forward(index, &frame, functions, spaces, now);
        }
        self.frame = Some(frame);
        worked | self.transmit_others(index, functions, spaces, now)
    }

    /// The moment of the next arrival of a frame that a fault held back.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        self.impairment.next_timer()
    }

    fn find_special(&mut self) {
        self.special = self.frames_as_bytes || self.tap.is_some() || self.impairment.is_any();
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
        let path = &frame.packet.path;
        if let Some(own) = functions.get_mut(from)
            && own.loops_back(path.destination)
        {
            own.receive(frame, spaces, now);
            self.counters.delivered += u64::from(frame.packets);
            return;
        }
        if !self.special {
            self.table.learn(path.source, from);
            if !is_group(path.destination)
                && let Some(port) = self.table.find(path.destination)
                && port != from
                && let Some(function) = functions.get_mut(port)
            {
                function.receive(frame, spaces, now);
                self.counters.delivered += u64::from(frame.packets);
                return;
            }
        }
        let stations = &mut Stations {
            functions,
            spaces,
            now,
        };
        self.forward_rarely(from, frame, stations);
        // A fault may have made it a frame for a network stack.
        for function in functions {
            function.deliver_causes();
        }
    }

    /// A packet of a function that cannot just be handed to another one.
    #[cold]
    fn forward_rarely(&mut self, from: usize, frame: &Frame, stations: &mut Stations<'_>) {
        let fate = self.impairment.judge();
        if fate.lost {
            self.counters.dropped += 1;
            return;
        }
        let faulty = fate != Fate::default();
        let as_bytes = self.frames_as_bytes || self.tap.is_some() || faulty;
        if !as_bytes {
            self.pass_held();
            return self.route_packet(from, frame, None, stations);
        }
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        match frame.serialise(stations.spaces, &mut bytes) {
            Ok(()) if faulty => self.suffer(from, bytes.clone(), fate, stations),
            Ok(()) if self.frames_as_bytes => self.carry_checked(from, &bytes, stations),
            Ok(()) => {
                self.show(from, &bytes, stations.now);
                self.pass_held();
                self.route_packet(from, frame, Some(&bytes), stations);
            }
            Err(error) => self.count_malformed(&error),
        }
        self.scratch = bytes;
    }

    /// Takes a frame as bytes from a port.
    fn accept(&mut self, from: usize, mut bytes: Vec<u8>, stations: &mut Stations<'_>) {
        if bytes.len() < SHORTEST_BYTES {
            bytes.resize(SHORTEST_BYTES, 0);
        }
        let fate = self.impairment.judge();
        if fate.lost {
            self.counters.dropped += 1;
        } else if fate == Fate::default() {
            self.carry(from, &bytes, stations);
        } else {
            self.suffer(from, bytes, fate, stations);
        }
    }

    /// Applies the choice of a fault to a frame.
    fn suffer(&mut self, from: usize, mut bytes: Vec<u8>, fate: Fate, stations: &mut Stations<'_>) {
        if fate.marked && crate::packet::mark_congestion(&mut bytes) {
            self.counters.marked += 1;
        }
        if fate.damaged {
            self.impairment.damage(&mut bytes, fate);
            self.counters.corrupted += 1;
        }
        if let Some(bit) = fate.forged_bit {
            fate::forge(&mut bytes, bit);
        }
        if fate.twice {
            self.counters.duplicated += 1;
            self.carry(from, &bytes, stations);
        }
        match self.impairment.hold(from, bytes, fate, stations.now) {
            Some(bytes) => self.carry(from, &bytes, stations),
            None => self.counters.held += 1,
        }
    }

    /// A frame goes over the wire as bytes.
    fn carry(&mut self, from: usize, bytes: &[u8], stations: &mut Stations<'_>) {
        self.show(from, bytes, stations.now);
        match message::classify(bytes) {
            Kind::Roce(frame) => self.route_packet(from, &frame, Some(bytes), stations),
            Kind::Plain => self.route_bytes(from, Message::Plain(bytes), bytes, stations),
            Kind::Damaged => self.route_bytes(from, Message::Damaged(bytes), bytes, stations),
        }
        self.pass_held();
    }

    /// The same for a packet that has to survive it, as no fault has touched it.
    fn carry_checked(&mut self, from: usize, bytes: &[u8], stations: &mut Stations<'_>) {
        self.show(from, bytes, stations.now);
        self.parsed_again += 1;
        match Frame::parse(bytes) {
            Ok(frame) => self.route_packet(from, &frame, Some(bytes), stations),
            Err(error) => self.count_malformed(&error),
        }
        self.pass_held();
    }

    fn show(&mut self, from: usize, bytes: &[u8], now: Instant) {
        if let Some(tap) = &mut self.tap {
            tap(now, from, bytes);
        }
    }

    fn pass_held(&mut self) {
        self.impairment.passed();
    }

    #[cold]
    fn count_malformed(&mut self, error: &dyn std::error::Error) {
        tracing::debug!(%error, "a frame was lost between headers and bytes");
        self.counters.malformed += 1;
    }

    fn route_packet(
        &mut self,
        from: usize,
        frame: &Frame,
        bytes: Option<&[u8]>,
        stations: &mut Stations<'_>,
    ) {
        let path = &frame.packet.path;
        let ends = (path.destination, path.source);
        self.route(from, ends, Message::Roce(frame, bytes), stations);
    }

    fn route_bytes(
        &mut self,
        from: usize,
        message: Message<'_>,
        bytes: &[u8],
        stations: &mut Stations<'_>,
    ) {
        if let Some(ends) = message::addresses(bytes) {
            self.route(from, ends, message, stations);
        }
    }

    /// Finds the ports that a frame goes to, and gives it to them.
    fn route(
        &mut self,
        from: usize,
        (destination, source): (MacAddress, MacAddress),
        message: Message<'_>,
        stations: &mut Stations<'_>,
    ) {
        self.table.learn(source, from);
        let known = if is_group(destination) {
            None
        } else {
            self.table.find(destination)
        };
        match known {
            Some(port) if port == from => {}
            Some(port) => self.give((from, port), message, stations),
            None => {
                self.counters.flooded += 1;
                let ports = 0..self.functions + self.outside.len();
                for port in ports.filter(|port| *port != from) {
                    self.give((from, port), message, stations);
                }
            }
        }
    }

    fn give(
        &mut self,
        (from, port): (usize, usize),
        message: Message<'_>,
        stations: &mut Stations<'_>,
    ) {
        let (spaces, now) = (stations.spaces, stations.now);
        let Some(function) = stations.functions.get_mut(port) else {
            return self.give_outside((from, port), message, spaces);
        };
        match message {
            Message::Roce(frame, _) => {
                function.receive(frame, spaces, now);
                // The others of a run.
                self.counters.delivered += u64::from(frame.packets - 1);
            }
            Message::Plain(bytes) => function.receive_ethernet_frame(bytes, spaces, now),
            Message::Damaged(bytes) => {
                let is_ipv4 = message::is_ipv4(bytes);
                let ends = message::addresses(bytes);
                let tag = message::tag(bytes);
                if ends.is_some_and(|(to, _)| function.drops_damaged((to, tag), is_ipv4)) {
                    self.counters.damaged += 1;
                    return;
                }
                function.receive_ethernet_frame(bytes, spaces, now);
            }
        }
        self.counters.delivered += 1;
    }

    fn give_outside(
        &mut self,
        (from, port): (usize, usize),
        message: Message<'_>,
        spaces: &[DmaSpace],
    ) {
        let number = port.checked_sub(self.functions);
        let Some(outside) = number.and_then(|number| self.outside.get_mut(number)) else {
            return;
        };
        let bytes = match message {
            Message::Roce(_, Some(bytes)) | Message::Plain(bytes) | Message::Damaged(bytes) => {
                bytes.to_vec()
            }
            Message::Roce(frame, None) => {
                let mut bytes = Vec::with_capacity(frame.length());
                if let Err(error) = frame.serialise(spaces, &mut bytes) {
                    return self.count_malformed(&error);
                }
                bytes
            }
        };
        if outside.push(bytes, from) {
            self.counters.delivered += 1;
        } else {
            self.counters.no_room += 1;
        }
    }
}

#[cfg(test)]
mod tests;
