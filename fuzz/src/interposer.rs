//! A function between a driver and the model that changes some of the device's answers, as the
//! input says. The rest is unchanged, so that a driver gets as far as one false answer permits.

pub(crate) mod lying;

use crate::source::Source;
use ringside_bus::{Clock, DmaSpace, Function, FunctionError, Instant, Iova, Memory};
use ringside_model::function::ResetKind;
use ringside_model::{Fault, Stepped, faults};
use ringside_spec::lan::admin::{DESCRIPTOR_SIZE, Descriptor};
use ringside_spec::lan::registers::control_queues::{ADMIN_RECEIVE, ADMIN_SEND};
use ringside_spec::rdma::commands::Command;
use ringside_spec::rdma::cqp_context::{CqpContext, ring_entries};
use ringside_spec::rdma::registers::{CQP_CONTEXT_HIGH, CQP_CONTEXT_LOW, CQP_DOORBELL};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerocopy::FromBytes;

/// The most false answers of one input.
const MAX_LIES: u8 = 16;
/// A pause takes at least this long if nothing happens: a deadline is a bounded number of polls.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Bytes of the command register; its bit 2 lets the function access memory.
const COMMAND_REGISTER: Range<u16> = 4..6;
const BUS_MASTER: u8 = 4;
const VALID: u64 = 1 << 63;
/// Words of a command of the control queue pair.
const COMMAND_WORDS: usize = 8;

/// The subject of a false answer, each counted separately.
#[derive(Clone, Copy)]
pub(crate) enum About {
    /// Registers that are read.
    Reads,
    /// Answers to admin commands.
    Admin,
    /// Completions of the control queue pair.
    Control,
    /// Other faults between two steps of the driver's user.
    Steps,
    /// The success of calls.
    Calls,
}

const ABOUT: usize = 5;

#[derive(Clone, Copy, Default)]
struct Lie {
    /// The number of opportunities that it skips first.
    after: u16,
    how: u8,
    word: u64,
}

/// A ring that the device writes.
#[derive(Clone, Copy)]
struct Ring {
    address: Iova,
    words: usize,
    entries: u32,
    is_control: bool,
}

#[derive(Default)]
struct State {
    lies: [VecDeque<Lie>; ABOUT],
    struck: u32,
    memory: Vec<Memory>,
    registers: BTreeMap<u64, u32>,
    /// A change of the answer that will be in this descriptor.
    admin: Option<(Iova, Lie)>,
    /// A change of the completion that will be in this slot, and the slot's present valid bit.
    control: Option<(Iova, u64, Lie)>,
    /// A register that reads wrong for a while.
    held: Option<(u64, u32, Lie)>,
    /// The number of reads for which all registers read as all ones.
    dead: u32,
    command_ring: Option<(Iova, u32)>,
    rings: Vec<Ring>,
    /// Time that was skipped.
    jumped: Duration,
}

/// The interposed function; see the module.
pub(crate) struct Interposer {
    inner: Arc<dyn Function>,
    world: Stepped,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// The driver's mappings, as the device reaches them.
    space: Mutex<DmaSpace>,
}

impl State {
    /// Counts an opportunity, and returns the false answer that is due.
    fn due(&mut self, about: About) -> Option<Lie> {
        let lies = &mut self.lies[about as usize];
        let next = lies.front_mut()?;
        if next.after > 0 {
            next.after -= 1;
            return None;
        }
        self.struck += 1;
        lies.pop_front()
    }

    fn pair(&self, high: u64, low: u64) -> u64 {
        let half = |offset| u64::from(self.registers.get(&offset).copied().unwrap_or(0));
        half(high) << 32 | half(low)
    }

    fn add(&mut self, address: u64, words: usize, entries: u32, is_control: bool) {
        let address = Iova(address);
        self.rings.retain(|ring| ring.address != address);
        self.rings.push(Ring {
            address,
            words,
            entries,
            is_control,
        });
    }

    /// Notes the rings that a command names.
    fn learn(&mut self, command: &Command) {
        match command {
            Command::CreateCompletionQueue(made) if !made.ring_virtual => {
                self.add(made.ring_address, 4, made.size_entries, made.cq_number == 0);
            }
            Command::CreateCompletionEventQueue(made) if !made.ring_virtual => {
                self.add(made.ring_address, 1, made.size_entries, false);
            }
            Command::CreateAsynchronousEventQueue(made) if !made.ring_virtual => {
                self.add(made.ring_address, 2, made.size_entries, false);
            }
            _ => {}
        }
    }
}

/// Reads memory that the device can reach; zeros elsewhere.
fn words<const N: usize>(space: &DmaSpace, at: Iova) -> [u64; N] {
    space.read_words(at).unwrap_or([0; N])
}

/// Changes mapped memory; elsewhere a device's write has no effect.
fn change(space: &DmaSpace, at: Iova, by: u64) {
    let at = Iova(at.0 & !7);
    let [word] = words(space, at);
    space.write_words(at, &[word ^ by]).ok();
}

impl Ring {
    fn slot(&self, index: u32) -> Iova {
        let bytes = self.words as u64 * 8;
        self.address.add(u64::from(index) * bytes)
    }

    fn last_word(&self, space: &DmaSpace, index: u32) -> u64 {
        let [word] = words(space, self.slot(index).add(self.words as u64 * 8 - 8));
        word
    }

    /// Returns the index that the device writes next: valid bits change there.
    fn next(&self, space: &DmaSpace) -> u32 {
        let first = self.last_word(space, 0) & VALID;
        let next = (1..self.entries).find(|index| self.last_word(space, *index) & VALID != first);
        match next {
            Some(next) if first != 0 => next,
            // in the second pass the valid entries come last
            Some(next) if self.last_word(space, self.entries - 1) & VALID != 0 => next,
            _ => 0,
        }
    }

    /// Forges an entry that the device never wrote: an earlier one, changed.
    fn forge(&self, space: &DmaSpace, lie: Lie) {
        let next = self.next(space);
        let before = (next + self.entries - 1) % self.entries.max(1);
        let valid = self.last_word(space, next) & VALID ^ VALID;
        for index in 0..self.words {
            let offset = index as u64 * 8;
            let [mut word] = words(space, self.slot(before).add(offset));
            if usize::from(lie.how >> 5) % self.words == index {
                word ^= lie.word;
            }
            if index + 1 == self.words {
                word = word & !VALID | valid;
            }
            space.write_words(self.slot(next).add(offset), &[word]).ok();
        }
    }

    fn damage(&self, space: &DmaSpace, lie: Lie) {
        let before = (self.next(space) + self.entries - 1) % self.entries.max(1);
        let offset = usize::from(lie.how >> 5) % self.words * 8;
        change(space, self.slot(before).add(offset as u64), lie.word);
    }
}

/// Returns a fault of the model itself.
fn fault(lie: Lie) -> Fault {
    let [a, b, c, ..] = lie.word.to_le_bytes();
    let by = Duration::from_millis(u64::from(b));
    let any = faults::ANY_CONTROL_COMMAND;
    match a % 14 {
        0 => Fault::Reset(ResetKind::Function),
        1 => Fault::Reset(ResetKind::Core),
        2 => Fault::Reset(ResetKind::Global),
        3 => Fault::FirmwareStall,
        4 => Fault::ProtocolEngineStall,
        5 => Fault::FunctionDead,
        6 => Fault::LinkDown,
        7 => Fault::CriticalError { code: b.into() },
        8 => Fault::HmcError {
            kind: b & 15,
            object: c & 31,
            data: 0,
        },
        9 => Fault::ControlCommandDelayed { opcode: any, by },
        10 => Fault::ControlCommandFails {
            opcode: b & 63,
            major: 0xFFFF,
            minor: 0x8000 | u16::from(c),
        },
        11 => Fault::AdminCommandFails {
            opcode: faults::ANY_ADMIN_COMMAND,
            code: u16::from(b & 31),
        },
        12 => Fault::ResetNeverEnds,
        _ => Fault::ControlCommandSilent { opcode: b & 63 },
    }
}

impl Interposer {
    /// Makes the interposed function 0, whose false answers come from the input.
    pub(crate) fn new(world: &Stepped, source: &mut Source) -> Arc<Self> {
        let mut state = State::default();
        for _ in 0..source.byte() % (MAX_LIES + 1) {
            let about = usize::from(source.byte()) % ABOUT;
            let (after, how, word) = (source.half(), source.byte(), source.word());
            state.lies[about].push_back(Lie { after, how, word });
        }
        let mut space = DmaSpace::new();
        space.set_bus_master(true);
        Arc::new(Self {
            inner: world.function(0).expect("a function"),
            world: world.clone(),
            clock: world.clock(),
            state: Mutex::new(state),
            space: Mutex::new(space),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn space(&self) -> MutexGuard<'_, DmaSpace> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of false answers given.
    pub(crate) fn struck(&self) -> u32 {
        self.state().struck
    }

    /// Returns the time that was skipped so far.
    pub(crate) fn jumped(&self) -> Duration {
        self.state().jumped
    }

    /// Ends all false answers and faults.
    pub(crate) fn be_honest(&self) {
        let mut state = self.state();
        state.lies = Default::default();
        (state.admin, state.control, state.held, state.dead) = (None, None, None, 0);
        drop(state);
        self.world.with(|world| world.clear_faults(0));
    }

    /// Returns the number of mappings.
    pub(crate) fn mappings(&self) -> usize {
        self.space().mappings().count()
    }

    /// Returns true if the function can access memory, independent of the driver's view.
    pub(crate) fn is_bus_master(&self) -> bool {
        let mut bytes = [0; 2];
        let read = self.inner.config_read(COMMAND_REGISTER.start, &mut bytes);
        read.is_err() || bytes[0] & BUS_MASTER != 0
    }

    /// Frees the pages of memory that a driver keeps until the process ends.
    pub(crate) fn empty_memory(&self) {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for memory in self.state().memory.drain(..) {
            // a failure only costs memory
            fallocate(
                memory.descriptor().expect("a file"),
                flags,
                0,
                memory.length() as u64,
            )
            .ok();
        }
    }

    /// Injects faults between two steps of the driver's user.
    pub(crate) fn between(&self) {
        let Some(lie) = self.state().due(About::Steps) else {
            return;
        };
        let ring = {
            let state = self.state();
            let count = state.rings.len().max(1);
            state.rings.get(usize::from(lie.how >> 3) % count).copied()
        };
        match (lie.how & 7, ring) {
            (0..=2, Some(ring)) => ring.forge(&self.space(), lie),
            (3, Some(ring)) => ring.damage(&self.space(), lie),
            (4 | 5, _) => self.world.with(|world| world.inject(0, fault(lie))),
            (6, _) => {
                let by = Duration::from_micros(lie.word % 20_000_000);
                self.world.jump(by);
                self.state().jumped += by;
            }
            (7, _) if lie.how & 8 == 0 => self.state().dead = (lie.word % 5_000) as u32,
            _ if lie.how & 16 != 0 => {
                let events = self
                    .state()
                    .pair(ADMIN_RECEIVE.base_high, ADMIN_RECEIVE.base_low);
                let at = Iova(events).add(lie.word >> 52);
                change(&self.space(), at, lie.word.rotate_left(17));
            }
            _ => {
                let space = self.space();
                let count = space.mappings().count().max(1);
                let mapping = space.mappings().nth(usize::from(lie.how >> 4) % count);
                if let Some((iova, length)) = mapping {
                    let at = iova.add(lie.word % length);
                    change(&space, at, lie.word.rotate_left(17));
                }
            }
        }
    }

    /// Notes a register write: the driver's requests are known from then on.
    fn note(&self, offset: u64, value: u32) {
        let mut state = self.state();
        state.registers.insert(offset, value);
        if offset == ADMIN_SEND.tail
            && let Some(lie) = state.due(About::Admin)
        {
            let ring = state.pair(ADMIN_SEND.base_high, ADMIN_SEND.base_low);
            let length = state.registers.get(&ADMIN_SEND.length).copied();
            let entries = u64::from(length.unwrap_or(0) & 0x3FF).max(1);
            let entry = (u64::from(value) + entries - 1) % entries;
            state.admin = Some((Iova(ring).add(entry * DESCRIPTOR_SIZE as u64), lie));
        }
        if offset == CQP_CONTEXT_LOW {
            let context = state.pair(CQP_CONTEXT_HIGH, CQP_CONTEXT_LOW);
            let context = CqpContext::decode(&words(&self.space(), Iova(context)));
            let entries = ring_entries(context.ring_size_code).unwrap_or(1);
            state.command_ring = Some((Iova(context.ring_address()), entries));
            state.rings.clear();
        }
        if offset == CQP_DOORBELL {
            self.note_command(&mut state, value);
        }
    }

    fn note_command(&self, state: &mut State, head: u32) {
        let space = self.space();
        let Some((ring, entries)) = state.command_ring else {
            return;
        };
        let slot = (head.wrapping_add(entries).wrapping_sub(1)) % entries.max(1);
        let at = ring.add(u64::from(slot) * COMMAND_WORDS as u64 * 8);
        if let Ok(command) = Command::decode(&words(&space, at)) {
            state.learn(&command);
        }
        let control = state.rings.iter().find(|ring| ring.is_control).copied();
        let Some(control) = control else {
            return;
        };
        if let Some(lie) = state.due(About::Control) {
            let next = control.next(&space);
            let valid = control.last_word(&space, next) & VALID;
            state.control = Some((control.slot(next), valid, lie));
        }
    }

    /// Changes answers that have arrived, before the driver reads them.
    fn settle(&self) {
        let mut state = self.state();
        if state.admin.is_none() && state.control.is_none() {
            return;
        }
        let space = self.space();
        if let Some((at, lie)) = state.admin
            && change_answer(&space, at, lie)
        {
            state.admin = None;
        }
        if let Some((at, before, lie)) = state.control {
            let [_, _, _, last] = words::<4>(&space, at);
            if last & VALID != before {
                let offset = u64::from(lie.how & 3) * 8;
                change(&space, at.add(offset), lie.word);
                state.control = None;
            }
        }
    }

    /// Returns the value that the driver reads from a register.
    fn lie_about(&self, offset: u64, value: u32) -> u32 {
        let mut state = self.state();
        if state.dead > 0 {
            state.dead -= 1;
            return u32::MAX;
        }
        if let Some(lie) = state.due(About::Reads) {
            let times = if lie.how & 4 == 0 {
                1
            } else {
                (lie.word >> 32) as u32 % 10_000
            };
            state.held = Some((offset, times, lie));
        }
        match &mut state.held {
            Some((held, left, lie)) if *held == offset && *left > 0 => {
                *left -= 1;
                match lie.how & 3 {
                    0 => u32::MAX,
                    1 => 0,
                    _ => value ^ lie.word as u32,
                }
            }
            _ => value,
        }
    }

    /// Makes a call fail, as the device or the path to it might.
    fn refuses(&self) -> Result<(), FunctionError> {
        match self.state().due(About::Calls) {
            None => Ok(()),
            Some(_) => Err(FunctionError::Gone {
                device: self.inner.address().clone(),
                reason: "the input says so".into(),
            }),
        }
    }
}

/// Changes an admin answer; false if it has not arrived.
fn change_answer(space: &DmaSpace, at: Iova, lie: Lie) -> bool {
    let mut raw = [0; DESCRIPTOR_SIZE];
    let read = space.read(at, &mut raw).ok();
    let Some(answer) = read.and_then(|()| Descriptor::read_from_bytes(&raw).ok()) else {
        return true;
    };
    // bit 0 of the flags: done
    if raw[0] & 1 == 0 {
        return false;
    }
    let offset = u64::from(lie.how >> 3);
    match lie.how & 7 {
        0..=3 => {
            let buffer = Iova(answer.buffer_address());
            if buffer.0 != 0 {
                change(space, buffer.add(offset * 8), lie.word);
            }
        }
        4 => change(space, at.add(4), u64::from(lie.word as u16) << 48),
        5 => change(space, at.add(4), u64::from(lie.word as u16) << 32),
        _ => change(space, at.add(offset % 4 * 8), lie.word),
    }
    true
}

impl Clock for Interposer {
    fn now(&self) -> Instant {
        self.clock.now()
    }
    fn pause(&self, at_most: Duration) {
        self.clock.pause(at_most.max(SHORTEST_PAUSE));
        self.settle();
    }
}
