//! The software machine: functions, the memory each can reach, and the switch between their ports.
//!
//! No part has a thread, a clock or a socket. A transport passes requests and the time; everything
//! else follows from them, so a run can be repeated exactly.

use crate::chip::{FunctionSettings, TimerAccess};
use crate::device::{Reply, Request};
use crate::faults::Fault;
use crate::function::{FunctionModel, FunctionSnapshot};
use crate::record::Recorder;
use crate::strict::Breach;
use crate::wire::Switch;
use ringside_bus::{DmaSpace, Instant, Memory, RefusedAccess};
use std::time::Duration;

/// More bursts of frames than leave during one request.
const BURSTS_OF_REQUEST: usize = 4;

/// The longest sleep of a thread whose world has nothing to do.
const MAX_NAP: Duration = Duration::from_millis(1);

/// The part of the idle time before it that a sleep lasts: a hundredth.
const IDLE_FOR_NAP: u32 = 100;

/// Settings of a world.
#[derive(Clone, Debug, Default)]
pub struct WorldSettings {
    /// One entry for each function; their ports are joined by a learning switch.
    pub functions: Vec<FunctionSettings>,
    /// Serialise every frame to bytes and parse it again, ICRC checked, instead of handing over
    /// its parsed form: slower, and proves the packet code on all traffic.
    pub frames_as_bytes: bool,
}

impl WorldSettings {
    /// `count` functions with default settings and addresses of their own. Each controls a timer.
    #[must_use]
    pub fn with_functions(count: u16) -> Self {
        let functions = (0..count).map(|number| FunctionSettings {
            timer: TimerAccess::Controlled,
            ..FunctionSettings::numbered(number)
        });
        Self {
            functions: functions.collect(),
            ..Self::default()
        }
    }
}

/// See the module.
pub struct World {
    now: Instant,
    functions: Vec<FunctionModel>,
    /// `spaces[n]` is the memory that function `n` can reach.
    spaces: Vec<DmaSpace>,
    switch: Switch,
    /// A function has had more queue pairs than the cache may hold.
    has_many: bool,
}

impl World {
    /// A world in which nothing has happened yet.
    #[must_use]
    pub fn new(settings: &WorldSettings) -> Self {
        let numbered = settings.functions.iter().enumerate();
        let functions: Vec<_> = numbered
            .map(|(index, function)| FunctionModel::new(index, function))
            .collect();
        Self {
            now: Instant(0),
            spaces: functions.iter().map(|_| DmaSpace::new()).collect(),
            switch: Switch::new(functions.len(), settings.frames_as_bytes),
            functions,
            has_many: false,
        }
    }

    /// The number of functions.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Lets the time of the next request be `now`, without a step. Time never runs backwards.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Performs one request for function `index`.
    pub fn handle(&mut self, index: usize, request: Request) -> Reply {
        let (Some(function), Some(space)) =
            (self.functions.get_mut(index), self.spaces.get_mut(index))
        else {
            return Reply::Refused(format!("the model has no function {index}"));
        };
        let reply = function.handle(request, space, self.now);
        self.has_many |= function.has_many_queue_pairs();
        self.deliver_sent(index);
        reply
    }

    /// Frames that left a function during a request arrive before the next request to any function:
    /// those of a queue pair that was stopped do not reach the next one with the number of its
    /// peer.
    fn deliver_sent(&mut self, index: usize) {
        let now = self.now;
        for _ in 0..BURSTS_OF_REQUEST {
            let sender = self.functions.get(index);
            // A port outside may be full.
            if !sender.is_some_and(FunctionModel::has_sent)
                || !self
                    .switch
                    .transmit_from(index, &mut self.functions, &self.spaces, now)
            {
                break;
            }
        }
    }

    /// Lets the world run until it has nothing to do at `now`, or for a bounded burst.
    ///
    /// Returns true if anything was done; call again until it returns false.
    pub fn step(&mut self, now: Instant) -> bool {
        self.advance(now);
        let mut worked = self
            .switch
            .step(&mut self.functions, &self.spaces, self.now);
        for index in 0..self.functions.len() {
            if self.has_many {
                self.prefetch(index);
            }
            let function = &mut self.functions[index];
            worked |= function.step(&self.spaces, self.now);
            if function.may_send() {
                worked |=
                    self.switch
                        .transmit_from(index, &mut self.functions, &self.spaces, self.now);
            }
        }
        worked
    }

    /// Has the queue pair that was rung at function `index` brought into the cache, with the queue
    /// pair that it is connected to. Of thousands the cache does not hold all, and the misses would
    /// come one after the other.
    fn prefetch(&self, index: usize) {
        let rung = self
            .functions
            .get(index)
            .and_then(FunctionModel::prefetch_rung);
        let Some((peer, port)) = rung.zip(self.switch.last_port(index)) else {
            return;
        };
        if let Some(function) = self.functions.get(port) {
            function.prefetch_peer(peer);
        }
    }

    /// The moment of the next timer, if there is one.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        let functions = self.functions.iter().zip(&self.spaces);
        let timers = functions.filter_map(|(function, space)| function.next_timer(space));
        timers.chain(self.switch.next_timer()).min()
    }

    /// The time that a thread may sleep now, after its world had nothing to do for `idle`.
    ///
    /// Doorbells in memory do not wake it. So it sleeps a hundredth of the idle time, which delays
    /// the first doorbell by as much at most, and 1 ms at the most; not beyond the next timer.
    /// `shortest` precedes all three.
    #[must_use]
    pub fn nap(&self, now: Instant, idle: Duration, shortest: Duration) -> Duration {
        let nap = (idle / IDLE_FOR_NAP).min(MAX_NAP);
        nap.min(self.until_timer(now)).max(shortest)
    }

    /// The time until the next timer; [`Duration::MAX`] without one.
    #[must_use]
    pub fn until_timer(&self, now: Instant) -> Duration {
        self.next_timer()
            .map_or(Duration::MAX, |timer| timer.since(now))
    }

    /// The doorbell page of a function, shared with clients that ring by plain stores.
    pub fn share_doorbell_page(&mut self, index: usize, page: Memory) {
        if let Some(function) = self.functions.get_mut(index) {
            function.share_doorbell_page(page);
        }
    }

    /// Adds a fault to function `index`, or to the wire, whatever the index. Nothing happens if
    /// there is no such function.
    pub fn inject(&mut self, index: usize, fault: Fault) {
        if fault.is_of_the_wire() {
            self.switch.inject(fault);
        } else if let Some(function) = self.functions.get_mut(index) {
            function.inject(fault);
        }
        self.refuse_accesses(index);
    }

    /// Makes the address space of a function refuse the accesses that its faults name.
    fn refuse_accesses(&mut self, index: usize) {
        let (Some(function), Some(space)) = (self.functions.get(index), self.spaces.get_mut(index))
        else {
            return;
        };
        let refusals = function.faults().iter().filter_map(|fault| match fault {
            Fault::DmaRefused(refusal) => Some(*refusal),
            _ => None,
        });
        space.set_refusals(&refusals.collect::<Vec<_>>());
    }

    /// Records the requests of the drivers of all functions from now on; see [`crate::record`].
    pub fn record(&mut self, recorder: &Recorder) {
        for function in &mut self.functions {
            function.record(recorder);
        }
    }

    /// Every breach so far of function `index`.
    #[must_use]
    pub fn breaches(&self, index: usize) -> Vec<Breach> {
        self.functions
            .get(index)
            .map(FunctionModel::breaches)
            .unwrap_or_default()
    }

    /// Every remark so far of function `index`: accesses that the model does not do as a card
    /// would.
    #[must_use]
    pub fn remarks(&self, index: usize) -> Vec<Breach> {
        self.functions
            .get(index)
            .map(FunctionModel::remarks)
            .unwrap_or_default()
    }

    /// The function, for inspection.
    #[must_use]
    pub fn function(&self, index: usize) -> Option<&FunctionModel> {
        self.functions.get(index)
    }

    /// Everything that a driver could have left behind in function `index`.
    #[must_use]
    pub fn snapshot(&self, index: usize) -> Option<FunctionSnapshot> {
        Some(self.functions.get(index)?.snapshot(self.spaces.get(index)?))
    }

    /// Asks the driver of function `index` to release it, as vfio-pci does before a driver is
    /// unbound or the device unplugged. False if the driver has not connected the request.
    pub fn request_release(&self, index: usize) -> bool {
        let function = self.functions.get(index);
        function.is_some_and(|function| function.request_release())
    }

    /// Ends all faults of function `index`; those of the wire end with
    /// [`Switch::clear_faults`](crate::wire::Switch::clear_faults).
    pub fn clear_faults(&mut self, index: usize) {
        if let Some(function) = self.functions.get_mut(index) {
            function.clear_faults();
        }
        self.refuse_accesses(index);
    }

    /// Ends one fault of function `index`, or of the wire.
    pub fn clear_fault(&mut self, index: usize, fault: Fault) {
        if fault.is_of_the_wire() {
            self.switch.clear_fault(fault);
        } else if let Some(function) = self.functions.get_mut(index) {
            function.clear_fault(fault);
        }
        self.refuse_accesses(index);
    }

    /// The memory that function `index` can reach.
    #[must_use]
    pub fn space(&self, index: usize) -> Option<&DmaSpace> {
        self.spaces.get(index)
    }

    /// Reads and writes of function `index` that its address space refused, since the last call;
    /// see [`DmaSpace::take_refused`].
    #[must_use]
    pub fn take_refused(&self, index: usize) -> Vec<RefusedAccess> {
        let space = self.spaces.get(index);
        space.map(DmaSpace::take_refused).unwrap_or_default()
    }

    /// The switch, to attach a tap or read its counters.
    pub fn switch(&mut self) -> &mut Switch {
        &mut self.switch
    }
}

#[cfg(test)]
mod tests;
