//! Completion queues with more elements than 20 bits count.

use super::*;
use crate::chip::Causes;
use crate::strict::Ledger;
use ringside_bus::function::DmaAccess;
use ringside_bus::{DmaSpace, Instant, Memory, PageSize};

/// The last index has bit 20 set, and the bits below are not all zero.
const SIZE: u32 = LARGE + 2;
/// The first index that 20 bits do not hold.
const LARGE: u32 = 1 << 20;
const BASE: u64 = 0x1000_0000;
const RING_BYTES: usize = (SIZE as usize * COMPLETION_BYTES).next_multiple_of(4096);
const SHADOW: u64 = BASE + RING_BYTES as u64;

struct Rig {
    space: DmaSpace,
    ledger: Ledger,
    causes: Causes,
    hmc: Hmc,
    queue: CompletionQueue,
}

impl Rig {
    fn new() -> Self {
        let bytes = RING_BYTES + 4096;
        let memory = Memory::allocate(bytes, PageSize::FourKiB, None).unwrap();
        let mut space = DmaSpace::new();
        space.set_bus_master(true);
        assert!(space.map(Iova(BASE), &memory, 0, bytes, DmaAccess::ReadWrite));
        Self {
            space,
            ledger: Ledger::default(),
            causes: Causes::default(),
            hmc: Hmc::new(0),
            queue: CompletionQueue::new(CompletionQueueSettings {
                number: 3,
                place: Place::Contiguous(Iova(BASE)),
                size: SIZE,
                shadow: Iova(SHADOW),
                completion_context: 0,
                event_queue: None,
                check_overflow: true,
                one_event_at_a_time: false,
            }),
        }
    }

    /// Software has read all elements before `index`.
    fn read_up_to(&self, index: u32) {
        let head = [index.into()];
        self.space.write_words(Iova(SHADOW), &head).unwrap();
    }

    /// Places the queue where it writes to `index` next, and has to look at the head before: as far
    /// as it knows, no element is read.
    fn fill_before(&mut self, index: u32) {
        self.queue.next = index;
        self.queue.last_head = (index + 1) % SIZE;
        self.queue.written = u64::from(SIZE) - 1;
        self.queue.read = 0;
    }

    fn write(&mut self) -> Written {
        let element = Element {
            words: [0; ELEMENT_WORDS],
            extension: None,
            notable: false,
        };
        let mut context = Context {
            now: Instant(0),
            memory: &self.space,
            ledger: &mut self.ledger,
            faults: &[],
            causes: &mut self.causes,
        };
        self.queue.write(&element, &mut self.hmc, &mut context)
    }
}

#[test]
fn the_head_of_a_queue_is_followed_beyond_twenty_bits() {
    let mut rig = Rig::new();
    for lap in 0..3 {
        for lag in [0, 1] {
            for index in (LARGE - 4..SIZE).chain(0..4) {
                rig.fill_before(index);
                rig.read_up_to((index + SIZE - lag) % SIZE);
                let case = (lap, lag, index);
                assert_eq!(rig.write(), Written::Quietly, "{case:?}");
                let next = (index + 1) % SIZE;
                rig.read_up_to((next + SIZE - lag) % SIZE);
                assert_eq!(rig.queue.is_read(), lag == 0, "{case:?}");
            }
        }
    }
    assert_eq!(rig.ledger.count(), 0);
    assert!(rig.ledger.remarks().is_empty());
}

#[test]
fn an_overflow_beyond_twenty_bits_is_found() {
    for index in (LARGE - 4..SIZE).chain(0..4) {
        let mut rig = Rig::new();
        rig.fill_before(index);
        rig.read_up_to((index + 1) % SIZE);
        assert_eq!(rig.write(), Written::Overflow, "{index}");
        assert_eq!(rig.ledger.count(), 0);
    }
}

#[test]
fn a_head_counts_for_a_new_ring_once_software_has_completed_the_resize() {
    let arm = Iova(SHADOW + 8 * CQ_SHADOW_ARM_WORD as u64);
    for (completed, last) in [(0, Written::Overflow), (1, Written::Quietly)] {
        let mut rig = Rig::new();
        assert_eq!(rig.write(), Written::Quietly);
        // The head of the former ring; by it, the new one would have room for a fourth.
        rig.read_up_to(1);
        rig.queue.move_to(Place::Contiguous(Iova(BASE)), 4);
        for _ in 0..3 {
            assert_eq!(rig.write(), Written::Quietly);
        }
        let word = CqShadowArm::ZERO.with_cq_select(completed);
        rig.space.write_words(arm, &[word.0]).unwrap();
        assert_eq!(rig.write(), last, "{completed} resizes completed");
        assert_eq!(rig.ledger.count(), 0);
    }
}
