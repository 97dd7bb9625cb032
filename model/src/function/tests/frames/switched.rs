//! Functions on one wire whose rings are driven by hand.

mod packets;

pub(super) use packets::Kind;

use crate::chip::FunctionSettings;
use crate::chip::Profiles;
use crate::function::{Context, FunctionModel};
use crate::lan::classes::{CLASSES, ClassQueues};
use crate::lan::switching::{Forward, Match, Tables, TagReceived, Vsi};
use crate::lan::words::{ByType, FilterProfile, FilterWord};
use crate::lan::{Scheme, Spreading};
use crate::packet::MacAddress;
use crate::wire::Switch;
use packets::{Posted, random_packet};
use rand::Rng;
use rand::rngs::SmallRng;
use ringside_bus::function::DmaAccess;
use ringside_bus::{DmaSpace, Instant, Iova, Memory, PageSize};
use ringside_spec::lan::receive::{ReceiveContext, profile};
use ringside_spec::lan::registers::interrupts::{self, CauseControl, VectorControl};
use ringside_spec::lan::registers::queues::DescriptorProfile;
use ringside_spec::lan::transmit::{
    DataCommand, FilterAction, FilterIdentity, TransmitContext, kind,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const FUNCTIONS: usize = 3;
pub(super) const QUEUES: u16 = 4;
pub(super) const GROUP: [u8; 6] = [1, 0, 0x5E, 0, 0, 7];

const BASE: u64 = 0x10_0000;
const BYTES: usize = 2 << 20;
const ENTRIES: u16 = 64;
const RECEIVE_RINGS: usize = 0x1000;
const SENT: usize = 0x1_0000;
const SENT_BYTES: usize = 0x3000;
const BUFFERS: usize = 0x10_0000;
const BUFFER_BYTES: usize = 2048;
const TRANSMIT_QUEUE: u16 = 2;
const COUNTER: u16 = 9;

/// The way of frames over the wire, and whether rings and buffers lie in many mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct { split: bool },
    Capture { split: bool },
    Bytes { split: bool },
}

/// Everything that a run leaves behind.
pub(super) struct Outcome {
    pub(super) counters: String,
    pub(super) breaches: String,
    pub(super) interrupts: Vec<u64>,
    pub(super) memory: Vec<Vec<u8>>,
}

/// Sums over runs.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) received: u64,
    pub(super) dropped: u64,
    pub(super) receive_errors: u64,
    pub(super) transmit_errors: u64,
    pub(super) link_down: u64,
    pub(super) steered: u64,
    pub(super) breaches: u64,
    pub(super) interrupts: u64,
}

/// The driver's side of one function.
#[derive(Default)]
struct Driver {
    tail: u16,
    receive_tails: [u16; QUEUES as usize],
}

pub(super) struct SwitchedFunctions {
    functions: Vec<FunctionModel>,
    spaces: Vec<DmaSpace>,
    memories: Vec<Memory>,
    drivers: Vec<Driver>,
    switch: Switch,
    captured: Arc<AtomicU64>,
}

pub(super) fn address(function: usize) -> [u8; 6] {
    [2, 0xE8, 0x10, 0, 0, function as u8]
}

fn vsi_number(function: usize) -> u16 {
    16 + function as u16
}

/// First bytes of the mappings.
fn places(split: bool) -> Vec<usize> {
    let mut places = vec![0, BYTES];
    if split {
        places.push(0x200);
        places.extend((0..QUEUES as usize).map(|queue| RECEIVE_RINGS + queue * 0x800 + 0x420));
        places.extend((0..usize::from(ENTRIES)).map(|slot| SENT + slot * SENT_BYTES + 50));
        let buffers = usize::from(QUEUES * ENTRIES);
        places.extend((0..buffers).map(|buffer| BUFFERS + buffer * BUFFER_BYTES + 44));
    }
    places.sort_unstable();
    places
}

fn profiles(vsi: u16) -> ByType<FilterProfile> {
    let mut profiles = Profiles::default();
    let mut vectors = vec![1, 0, 0, 0];
    for word in 0..24u8 {
        vectors.extend([[1, 32, 53, 255][usize::from(word % 4)], 2 * word, 0, 0]);
    }
    let mut row = vec![1, 0, 0, 0];
    row.extend([0xFF; 10]);
    row.push(0);
    profiles.apply(36, &vectors).unwrap();
    profiles.apply(34, &row).unwrap();
    ByType::of(&profiles.flow_director, vsi, |number, words| {
        let words = words.iter().map(|word| FilterWord {
            received: *word,
            programmed: *word,
            mask: 0x0F,
        });
        FilterProfile {
            number,
            words: words.collect(),
        }
    })
}

fn vsi(function: usize, seed: u64) -> Vsi {
    let number = vsi_number(function);
    let variant = seed as usize + function;
    let spreading = Spreading {
        key: (0..52).map(|at: u8| at.wrapping_mul(37) ^ 0x5A).collect(),
        table: (0..64).map(|entry| entry % QUEUES as u8).collect(),
        scheme: match variant.is_multiple_of(5) {
            true => Scheme::Symmetric,
            false => Scheme::Toeplitz,
        },
    };
    Vsi {
        number,
        loopback: !variant.is_multiple_of(3),
        source_prune: variant.is_multiple_of(4),
        lan: true,
        anti_spoof: variant.is_multiple_of(7),
        destination_override: variant.is_multiple_of(2),
        sends_untagged: !variant.is_multiple_of(11),
        sends_tagged: !variant.is_multiple_of(6),
        port_vlan: (variant % 8 == 1).then_some(0x2005),
        tag_received: [TagReceived::Shown, TagReceived::Removed, TagReceived::Kept][variant % 3],
        queues: (4..4 + QUEUES).collect(),
        classes: [ClassQueues {
            first: 0,
            mask: QUEUES - 1,
        }; CLASSES],
        spreading: (variant % 4 != 3).then_some(spreading),
        filters: profiles(number),
        filters_enabled: true,
        filters_programmed: true,
        ..Vsi::default()
    }
}

fn tables(function: usize, seed: u64) -> Tables {
    let vsi = vsi(function, seed);
    let rule = |what, sender: Option<u16>| Forward {
        what,
        sender,
        targets: [vsi.number].into(),
        drop: false,
        loopback: true,
        lan: false,
    };
    let mut forwards = vec![
        rule(
            Match::Address(MacAddress(address(function))),
            Some(vsi.number),
        ),
        rule(Match::Address(MacAddress([0xFF; 6])), Some(vsi.number)),
    ];
    if function != 1 {
        forwards.push(rule(Match::Address(MacAddress(GROUP)), Some(vsi.number)));
    }
    Tables {
        vsis: vec![vsi],
        forwards,
        vlans: Vec::new(),
        filter_room: usize::MAX,
        service_tags: true,
        ..Tables::default()
    }
}

impl SwitchedFunctions {
    pub(super) fn new(seed: u64, way: Way) -> Self {
        let (Way::Direct { split } | Way::Capture { split } | Way::Bytes { split }) = way;
        let mut switch = Switch::new(FUNCTIONS, matches!(way, Way::Bytes { .. }));
        let captured = Arc::new(AtomicU64::new(0));
        if matches!(way, Way::Capture { .. }) {
            let count = Arc::clone(&captured);
            switch.set_tap(Some(Box::new(move |_, _, _| {
                count.fetch_add(1, Ordering::Relaxed);
            })));
        }
        let mut switched = Self {
            functions: Vec::new(),
            spaces: Vec::new(),
            memories: Vec::new(),
            drivers: Vec::new(),
            switch,
            captured,
        };
        for index in 0..FUNCTIONS {
            switched.add_function(index, seed, split);
        }
        switched
    }

    fn add_function(&mut self, index: usize, seed: u64, split: bool) {
        let memory = Memory::allocate(BYTES, PageSize::FourKiB, None).unwrap();
        let mut space = DmaSpace::new();
        space.set_bus_master(true);
        let places = places(split);
        for pair in places.windows(2) {
            let at = Iova(BASE + pair[0] as u64);
            let access = DmaAccess::ReadWrite;
            assert!(space.map(at, &memory, pair[0], pair[1] - pair[0], access));
        }
        let mut function = FunctionModel::new(index, &FunctionSettings::numbered(index as u16));
        let context = TransmitContext {
            base_in_128_bytes: BASE >> 7,
            ring_length: ENTRIES,
            vsi: vsi_number(index),
            ..TransmitContext::zeroed()
        };
        let queues = &mut std::iter::once((TRANSMIT_QUEUE, 1, context.encode()));
        let ledger = &mut function.ledger;
        function.lan.configure(tables(index, seed), queues, ledger);
        let registers = &mut function.registers;
        let cause = CauseControl::ZERO.with_enable(true);
        for queue in 0..u32::from(QUEUES) {
            let control = cause.with_vector(1 + queue);
            registers.set(interrupts::RECEIVE_QUEUE_CAUSE.at(4 + queue), control.0);
        }
        let sent = interrupts::TRANSMIT_QUEUE_CAUSE.at(TRANSMIT_QUEUE.into());
        registers.set(sent, cause.with_vector(9).0);
        self.functions.push(function);
        self.spaces.push(space);
        self.memories.push(memory);
        self.drivers.push(Driver::default());
        for queue in 0..QUEUES {
            self.enable_queue(index, queue);
            self.offer_queue(index, queue, 24);
        }
    }

    pub(super) fn enable_queue(&mut self, function: usize, queue: u16) {
        let at = RECEIVE_RINGS + usize::from(queue) * 0x800;
        let context = ReceiveContext {
            base_in_128_bytes: (BASE + at as u64) >> 7,
            ring_length: ENTRIES,
            data_buffer_in_128_bytes: [2, 8, 16, 16][usize::from(queue)],
            descriptors_of_32_bytes: true,
            strip_crc: queue != 1,
            tag_in_l2tag1: queue != 2,
            frame_bytes_max: [1000, 5000, 9728, 1522][usize::from(queue)],
            ..ReceiveContext::zeroed()
        };
        let layout = DescriptorProfile::ZERO
            .with_profile(
                [
                    profile::NIC,
                    profile::NIC_2,
                    profile::NIC,
                    profile::OPEN_VSWITCH,
                ][usize::from(queue)]
                .into(),
            )
            .with_time_stamp(queue == 2);
        let tail = self.drivers[function].receive_tails[usize::from(queue)];
        let (memory, one) = (&self.spaces[function], &mut self.functions[function]);
        if one.lan.receives((4 + queue).into()) {
            return;
        }
        let mut context_of = lend!(one, memory, Instant(5));
        let number = (4 + queue).into();
        let dwords = context.dwords();
        one.lan
            .enable_receive(number, dwords, layout, tail.into(), &mut context_of);
    }

    pub(super) fn disable_queue(&mut self, function: usize, queue: u16) {
        self.functions[function]
            .lan
            .disable_receive((4 + queue).into());
    }

    pub(super) fn set_link(&mut self, function: usize, up: bool) {
        self.functions[function].set_link_up(up);
    }

    /// Gives further descriptors of a queue their buffers, and rings.
    fn offer_queue(&mut self, function: usize, queue: u16, count: u16) {
        let tail = &mut self.drivers[function].receive_tails[usize::from(queue)];
        for _ in 0..count {
            let index = usize::from(queue) * usize::from(ENTRIES) + usize::from(*tail);
            let buffer = BASE + (BUFFERS + index * BUFFER_BYTES) as u64;
            let place = RECEIVE_RINGS + usize::from(queue) * 0x800 + usize::from(*tail) * 32;
            let memory = &self.memories[function];
            assert!(memory.write(place, &buffer.to_le_bytes()));
            *tail = (*tail + 1) % ENTRIES;
        }
        let tail = u32::from(*tail);
        let (memory, one) = (&self.spaces[function], &mut self.functions[function]);
        let mut context = lend!(one, memory, Instant(5));
        one.lan.receive_tail((4 + queue).into(), tail, &mut context);
    }

    pub(super) fn offer(&mut self, function: usize, random: &mut SmallRng) {
        for queue in 0..QUEUES {
            let count = 8 * random.random_range(0..3);
            self.offer_queue(function, queue, count);
        }
        for vector in 1..10 {
            let enable = VectorControl::ZERO.with_enable(true);
            let one = &mut self.functions[function];
            one.interrupts
                .control_vector(vector, enable.0, &mut one.registers);
        }
    }

    fn write_descriptor(&mut self, function: usize, words: [u64; 2]) {
        let driver = &mut self.drivers[function];
        let place = usize::from(driver.tail) * 16;
        driver.tail = (driver.tail + 1) % ENTRIES;
        let memory = &self.memories[function];
        assert!(memory.write(place, &words[0].to_le_bytes()));
        assert!(memory.write(place + 8, &words[1].to_le_bytes()));
    }

    /// Puts bytes where the next descriptor's buffer is; returns their address.
    fn put(&self, function: usize, bytes: &[u8]) -> u64 {
        let place = SENT + usize::from(self.drivers[function].tail) * SENT_BYTES;
        assert!(self.memories[function].write(place, bytes));
        BASE + place as u64
    }

    /// Posts a packet, without ringing.
    pub(super) fn post(&mut self, from: usize, kind: Kind, random: &mut SmallRng) {
        let Posted {
            bytes,
            command,
            context,
            cuts,
        } = random_packet(from, kind, random);
        if let Some(words) = context {
            self.write_descriptor(from, words);
        }
        let mut rest = &bytes[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut);
            rest = after;
            let address = self.put(from, piece);
            let part = command.with_end_of_packet(false).with_report_status(false);
            let part = part.with_buffer_bytes(piece.len() as u64);
            self.write_descriptor(from, [address, part.0]);
        }
        let address = self.put(from, rest);
        let last = command.with_buffer_bytes(rest.len() as u64);
        self.write_descriptor(from, [address, last.0]);
    }

    pub(super) fn ring(&mut self, function: usize) {
        let tail = self.drivers[function].tail.into();
        let (memory, one) = (&self.spaces[function], &mut self.functions[function]);
        let mut context = lend!(one, memory, Instant(5));
        one.lan.ring(TRANSMIT_QUEUE.into(), tail, &mut context);
    }

    /// Programs a filter that chooses a queue, drops or counts.
    pub(super) fn program_filter(&mut self, function: usize, random: &mut SmallRng) {
        let action = FilterAction::ZERO
            .with_queue(random.random_range(0..QUEUES).into())
            .with_queue_priority(random.random_range(0..2))
            .with_drop(random.random_range(0..4) == 0)
            .with_report(random.random_range(0..3))
            .with_count(random.random_range(0..3))
            .with_counter(COUNTER.into());
        let identity = FilterIdentity::ZERO
            .with_kind(kind::FILTER)
            .with_vsi(vsi_number(function).into())
            .with_id_priority(1)
            .with_id(random.random_range(1..100));
        self.write_descriptor(function, [action.0, identity.0]);
        let packet = random_packet((function + 1) % FUNCTIONS, Kind::Steered, random);
        let address = self.put(function, &packet.bytes);
        let command = DataCommand::ZERO
            .with_dummy(true)
            .with_end_of_packet(true)
            .with_report_status(true)
            .with_buffer_bytes(packet.bytes.len() as u64);
        self.write_descriptor(function, [address, command.0]);
    }

    /// Posts a descriptor that no driver may post.
    pub(super) fn break_interface(&mut self, function: usize, random: &mut SmallRng) {
        let address = self.put(function, &[7; 100]);
        let good = DataCommand::ZERO
            .with_end_of_packet(true)
            .with_report_status(true)
            .with_buffer_bytes(100);
        let words = match random.random_range(0..7) {
            0 => [address, good.0 | 1 << 6],
            1 => [address, good.with_kind(5).0],
            2 => [address, good.with_buffer_bytes(0).0],
            3 => [address, good.with_buffer_bytes(9726).0],
            4 => [address, good.with_buffer_bytes(16).0],
            5 => [BASE - 64, good.0],
            _ => [address, good.with_end_of_packet(false).0],
        };
        self.write_descriptor(function, words);
        self.ring(function);
    }

    /// Lets the functions send until nothing is left.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            let now = Instant(5);
            self.switch.step(&mut self.functions, &self.spaces, now);
            for index in 0..FUNCTIONS {
                self.functions[index].step(&self.spaces, now);
                self.switch
                    .transmit_from(index, &mut self.functions, &self.spaces, now);
            }
        }
    }

    pub(super) fn passed_on(&self) -> u64 {
        self.switch.passed_on()
    }

    pub(super) fn captured(&self) -> u64 {
        self.captured.load(Ordering::Relaxed)
    }

    /// Frames that the functions gave to the wire.
    pub(super) fn sent(&self) -> u64 {
        let functions = self.functions.iter();
        functions.map(|one| one.lan.counters().sent.frames()).sum()
    }

    pub(super) fn outcome(&self) -> Outcome {
        let one = |function: &FunctionModel| {
            format!(
                "{:?} {:?} head {} matches {} filters {}",
                function.lan.counters(),
                function.statistics,
                function.lan.transmit_head(TRANSMIT_QUEUE.into()),
                function.lan.filter_matches(COUNTER),
                function.lan.filters(None),
            )
        };
        let functions: Vec<_> = self.functions.iter().map(one).collect();
        let vectors = self.functions.iter();
        let vectors = vectors.flat_map(|one| (1..10).map(|vector| one.interrupts.fired(vector)));
        let read = |memory: &Memory| {
            let mut bytes = vec![0; BYTES];
            assert!(memory.read(0, &mut bytes));
            bytes
        };
        let breaches = self.functions.iter().map(FunctionModel::breaches);
        Outcome {
            counters: format!("{functions:#?} {:?}", self.switch.counters()),
            breaches: format!("{:?}", breaches.collect::<Vec<_>>()),
            interrupts: vectors.collect(),
            memory: self.memories.iter().map(read).collect(),
        }
    }

    pub(super) fn add_to(&self, all: &mut Totals) {
        for (index, function) in self.functions.iter().enumerate() {
            let counters = function.lan.counters();
            let own = counters.of_vsi(vsi_number(index)).cloned();
            let own = own.unwrap_or_default();
            all.received += own.received.frames();
            all.dropped += own.dropped;
            all.receive_errors += own.receive_errors;
            all.transmit_errors += own.transmit_errors;
            all.link_down += counters.sent_link_down;
            all.steered += function.lan.filter_matches(COUNTER);
            all.breaches += function.ledger.count();
            all.interrupts += (1..10).map(|v| function.interrupts.fired(v)).sum::<u64>();
        }
    }
}
