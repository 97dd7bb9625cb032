//! Answers of the control queue pair: registers first, then completions in memory.
//!
//! Checked: a command ends within its deadline; a queue that got an invalid answer or none sends
//! nothing more until it is reset.

use crate::hostile::{Firmware, Rig};
use crate::source::Source;
use ringside_bus::{DmaSpace, Iova};
use ringside_pmd::control::{ControlError, ControlQueue, ControlQueueSettings};
use ringside_spec::rdma::commands::{GatherStatistics, Nop, QueryFpm};
use ringside_spec::rdma::control_completion::ControlCompletion;
use ringside_spec::rdma::registers::{CQP_DOORBELL, CQP_ERROR_CODES, CQP_STATUS, CQP_TAIL};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const ENTRIES: u32 = 4;
const DEADLINE: Duration = Duration::from_millis(20);

thread_local! {
    static RIG: Rig = Rig::new();
}

/// The engine's behaviour at the next doorbells.
struct Engine {
    script: VecDeque<u8>,
    /// The address of completions, once there is a queue for them.
    completions: Option<Iova>,
    written: u32,
    asked: u16,
}

impl Engine {
    fn byte(&mut self) -> u8 {
        self.script.pop_front().unwrap_or(0)
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn complete(&mut self, ring: Iova, how: u8, space: &DmaSpace) {
        let slot = self.written % ENTRIES;
        let likely = ControlCompletion {
            cqp_context: 0x7269_6E67_7369_6465,
            wqe_index: self.asked,
            valid: (self.written / ENTRIES).is_multiple_of(2),
            ..ControlCompletion::ZERO
        };
        let mut words = likely.encode();
        for (index, word) in words.iter_mut().enumerate() {
            if how >> (index + 2) & 1 == 1 {
                *word ^= self.word();
            }
        }
        // a mapped page, unless the address was never given
        space
            .write_words(ring.add(u64::from(slot) * 32), &words)
            .ok();
        self.written += 1;
    }
}

impl Firmware for Engine {
    fn written(&mut self, offset: u64, registers: &mut BTreeMap<u64, u32>, space: &DmaSpace) {
        if offset == CQP_STATUS {
            // the state after the queue was created
            registers.insert(CQP_STATUS, 1);
        }
        if offset != CQP_DOORBELL {
            return;
        }
        let how = self.byte();
        if how & 1 == 1 {
            let tail = self.word() as u32;
            registers.insert(CQP_TAIL, tail);
            registers.insert(CQP_ERROR_CODES, self.word() as u32);
        }
        if let Some(ring) = self.completions
            && how & 2 == 0
        {
            self.complete(ring, how, space);
        }
        self.asked = (self.asked + 1) % ENTRIES as u16;
    }
}

/// Answers of the control queue pair.
pub fn control_answers(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let how = source.byte();
    RIG.with(|rig| {
        let ring = rig.pool.allocate(ENTRIES as usize * 32, 256);
        let shadow = rig.pool.allocate(64, 128);
        let (Ok(ring), Ok(shadow)) = (ring, shadow) else {
            panic!("the pool has room");
        };
        let in_memory = how & 1 == 1;
        let engine = Engine {
            script: source.rest().iter().copied().collect(),
            completions: in_memory.then_some(ring.iova()),
            written: 0,
            asked: 0,
        };
        let registers = rig.restart(engine);
        let settings = ControlQueueSettings {
            entries: ENTRIES,
            deadline: DEADLINE,
        };
        let queue = ControlQueue::prepare(registers, &rig.pool, settings).expect("room");
        if in_memory {
            assert!(queue.use_completions(ring, ENTRIES as usize, shadow));
        }
        for step in 0..10 {
            let (began, stuck) = (rig.now(), queue.is_stuck());
            let result = match step % 3 {
                0 => queue.execute(Nop::ZERO).map(drop),
                1 => queue.execute(QueryFpm::ZERO).map(drop),
                _ => queue.execute(GatherStatistics::ZERO).map(drop),
            };
            let took = rig.now().since(began);
            assert!(took <= DEADLINE * 2, "{took:?}");
            let ends = matches!(
                result,
                Err(ControlError::TimedOut { .. } | ControlError::Garbled { .. })
            );
            assert_eq!(queue.is_stuck(), stuck || ends);
            let refused = matches!(result, Err(ControlError::Stuck { .. }));
            assert_eq!(refused, stuck, "nothing is sent after {result:?}");
        }
    });
}
