//! Answers of the firmware to admin commands, and events that it reports.
//!
//! Checked for any answer: a command ends within its deadline with a value or an error; no result
//! is longer than the buffer; one call takes at most one ring of events; the results of typed
//! commands stay within the ranges of the firmware interface.

use crate::hostile::{Firmware, Rig};
use crate::source::Source;
use ringside_bus::{DmaSpace, Iova};
use ringside_pmd::admin::{AdminQueue, RING_ENTRIES};
use ringside_pmd::lan::FirmwareEvent;
use ringside_spec::lan::admin::link::PhyConfig;
use ringside_spec::lan::admin::vsi::VsiProperties;
use ringside_spec::lan::admin::{BUFFER_SIZE, DESCRIPTOR_SIZE, Descriptor};
use ringside_spec::lan::registers::control_queues::{ADMIN_RECEIVE, ADMIN_SEND, RingRegisters};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::FromBytes;

/// The deadline of one command.
const DEADLINE: Duration = Duration::from_millis(20);
/// The time limit of a typed command: several commands, some of them three times.
const MAX_DURATION: Duration = Duration::from_secs(2);

thread_local! {
    static RIG: Rig = Rig::new();
}

/// Firmware whose answers come from the fuzzer.
struct Liar {
    script: VecDeque<u8>,
}

impl Liar {
    fn byte(&mut self) -> u8 {
        self.script.pop_front().unwrap_or(0)
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.script.len());
        self.script.drain(..count).collect()
    }

    fn answer(&mut self, ring: Iova, entry: u16, space: &DmaSpace) -> Option<()> {
        let at = ring.add(u64::from(entry) * DESCRIPTOR_SIZE as u64);
        let mut raw = [0; DESCRIPTOR_SIZE];
        space.read(at, &mut raw).ok()?;
        let asked = Descriptor::read_from_bytes(&raw).ok()?;
        let how = self.byte();
        if how & 3 == 3 {
            let any = self.bytes(DESCRIPTOR_SIZE);
            return space.write(at, &any).ok();
        }
        let mut answered = asked;
        if how & 4 != 0 {
            answered.return_code = self.half().into();
        }
        if how & 8 != 0 {
            answered.data_length = self.half().into();
        }
        if how & 16 != 0 {
            let some = self.bytes(8);
            answered.parameters[..some.len()].copy_from_slice(&some);
        }
        if how & 32 != 0 {
            let length = usize::from(self.half()) % (BUFFER_SIZE + 1);
            let data = self.bytes(length);
            // a device can only write to mapped memory
            space.write(Iova(asked.buffer_address()), &data).ok();
        }
        space
            .write(at, zerocopy::IntoBytes::as_bytes(&answered))
            .ok()
    }
}

fn base(names: &RingRegisters, registers: &BTreeMap<u64, u32>) -> Iova {
    let half = |offset| u64::from(registers.get(&offset).copied().unwrap_or(0));
    Iova(half(names.base_high) << 32 | half(names.base_low))
}

impl Firmware for Liar {
    fn written(&mut self, offset: u64, registers: &mut BTreeMap<u64, u32>, space: &DmaSpace) {
        if offset != ADMIN_SEND.tail {
            return;
        }
        let tail = registers.get(&offset).copied().unwrap_or(0);
        let length = registers.get(&ADMIN_SEND.length).copied().unwrap_or(0);
        if length == 0 {
            return;
        }
        match self.byte() {
            0..=15 => {}
            16..=23 => {
                let head = self.half().into();
                registers.insert(ADMIN_SEND.head, head);
            }
            24..=27 => {
                let value = u32::from(self.half()) << 16;
                registers.insert(ADMIN_SEND.length, value);
            }
            _ => {
                let entries = u32::from(RING_ENTRIES);
                let entry = (tail + entries - 1) % entries;
                self.answer(base(&ADMIN_SEND, registers), entry as u16, space);
                registers.insert(ADMIN_SEND.head, tail);
            }
        }
    }
}

fn started(rig: &Rig, script: &[u8]) -> AdminQueue {
    let liar = Liar {
        script: script.iter().copied().collect(),
    };
    let registers = rig.restart(liar);
    let queue = AdminQueue::new(registers, Arc::clone(&rig.pool), DEADLINE);
    queue.start().expect("registers that hold what is written");
    queue
}

/// Runs one command of a driver. Errors are accepted; a value must be valid.
fn command(queue: &AdminQueue, which: u8) {
    match which % 24 {
        0 => drop(queue.get_version()),
        1 => drop(queue.send_driver_version([1, 2, 3], "fuzz")),
        2 => drop(queue.clear_function_config()),
        3 => drop(queue.clear_pxe()),
        4 => {
            if let Ok(mac) = queue.read_mac() {
                assert_ne!(mac, [0; 6]);
            }
        }
        5 => drop(queue.capabilities()),
        6 => {
            if let Ok(packages) = queue.installed_packages() {
                assert!(packages.len() <= BUFFER_SIZE / 16);
            }
        }
        7 => drop(queue.download_buffer(&[0; BUFFER_SIZE], true)),
        8 => drop(queue.switch_port()),
        9 => drop(queue.set_port_parameters()),
        10 => drop(queue.add_mac_rule(1, [2, 0, 0, 0, 0, 1])),
        11 => drop(queue.remove_rule(1, 2)),
        12 => drop(queue.add_vsi(2, &VsiProperties::zeroed())),
        13 => drop(queue.update_vsi(3, &VsiProperties::zeroed())),
        14 => drop(queue.free_vsi(3)),
        15 => drop(queue.phy_capabilities(0)),
        16 => drop(queue.set_phy_config(0, &PhyConfig::zeroed())),
        17 => drop(queue.link_status(0, 0)),
        18 => drop(queue.scheduler_limits()),
        19 => {
            if let Ok(nodes) = queue.default_topology(0) {
                assert!(nodes.len() <= BUFFER_SIZE);
            }
        }
        20 => drop(queue.query_node(5)),
        21 => drop(queue.add_node(5)),
        22 => drop(queue.add_rdma_queue_set(5, 0)),
        _ => drop(queue.set_mac_config(9000)),
    }
}

/// Answers to admin commands.
pub fn admin_answers(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let commands: [u8; 3] = source.array();
    RIG.with(|rig| {
        let queue = started(rig, source.rest());
        for which in commands {
            let began = rig.now();
            command(&queue, which);
            let took = rig.now().since(began);
            assert!(took <= MAX_DURATION, "command {which} took {took:?}");
        }
        let began = rig.now();
        let _ = queue.shut_down();
        assert!(rig.now().since(began) <= MAX_DURATION);
    });
}

/// Events that the firmware reports.
pub fn admin_events(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    RIG.with(|rig| {
        let queue = started(rig, &[]);
        let mut taken = 0;
        while !source.is_empty() {
            let entry = source.byte() % RING_ENTRIES as u8;
            let raw: [u8; DESCRIPTOR_SIZE] = source.array();
            let (head, data) = (source.byte(), source.byte());
            let body = source.some(usize::from(data));
            rig.put_event(entry, &raw, body);
            // some heads lie outside the ring
            let head = match head {
                0..=249 => u32::from(head) % u32::from(RING_ENTRIES),
                other => u32::from(other),
            };
            rig.set(ADMIN_RECEIVE.head, head);
            let before = queue.events_discarded();
            let Ok(events) = queue.take_events() else {
                continue;
            };
            let discarded = queue.events_discarded() - before;
            let all = events.len() as u64 + discarded;
            assert!(all < u64::from(RING_ENTRIES), "{all} events in one call");
            taken += all;
            assert_eq!(taken % u64::from(RING_ENTRIES), u64::from(head));
            for event in events {
                assert!(event.data.len() <= BUFFER_SIZE);
                if let FirmwareEvent::Malformed(error) = FirmwareEvent::decode(event) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        let _ = queue.shut_down();
    });
}

impl Rig {
    /// Writes an event and, if its descriptor has a buffer, the body.
    fn put_event(&self, entry: u8, raw: &[u8; DESCRIPTOR_SIZE], body: &[u8]) {
        self.look(|registers, space| {
            let ring = base(&ADMIN_RECEIVE, registers);
            let at = ring.add(u64::from(entry) * DESCRIPTOR_SIZE as u64);
            let mut free = [0; DESCRIPTOR_SIZE];
            space.read(at, &mut free).expect("a ring that is mapped");
            if let Ok(free) = Descriptor::read_from_bytes(&free) {
                // a descriptor that was overwritten before has no buffer
                space.write(Iova(free.buffer_address()), body).ok();
            }
            space.write(at, raw).expect("a ring that is mapped");
        });
    }
}
