//! The engine's registers, and its doorbells in both places.

use super::RdmaEngine;
use crate::chip::Context;
use ringside_bus::Memory;
use ringside_bus::Words;
use ringside_spec::rdma::registers::{
    self, CompletionQueueNumber, CqpDoorbell, CqpErrorCodes, CqpStatus, CqpTail,
    PageDescriptorInvalidate, SendDoorbell,
};
use std::sync::atomic::Ordering;

/// The registers of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) doorbell: CqpDoorbell,
    pub(super) tail: CqpTail,
    pub(super) status: CqpStatus,
    pub(super) error_codes: CqpErrorCodes,
    context_low: u32,
    context_high: u32,
}

impl Registers {
    pub(super) fn context_address(&self) -> u64 {
        RegisterPair::ZERO
            .with_low(self.context_low.into())
            .with_high(self.context_high.into())
            .0
    }
}

/// The doorbell page that is polled. A doorbell is taken out of it when it is seen, so that the
/// same number rung again is seen again.
pub(super) struct DoorbellPage {
    words: Words,
}

/// The doorbells that were rung.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rung {
    pub(super) send: Option<u32>,
    pub(super) arm: Option<u32>,
}

ringside_spec::words! {
    /// An address in two registers.
    struct RegisterPair: u64 {
        low: [31:0],
        high: [63:32],
    }

    /// A word of the doorbell page: its doorbells are 32 bits wide, at even places.
    struct DoorbellWord: u64 {
        value: [31:0],
    }
}

const SEND_WORD: usize = registers::DOORBELL_PAGE_SEND as usize / 8;
const ARM_WORD: usize = registers::DOORBELL_PAGE_ARM as usize / 8;

/// No ring since the last read: never the number of a queue.
const NOT_RUNG: u64 = DoorbellWord::VALUE_MASK;

impl DoorbellPage {
    /// A page; nothing if it is too small.
    pub(super) fn new(page: &Memory) -> Option<Self> {
        let words = page.words(0, registers::DOORBELL_PAGE_BYTES as usize)?;
        words.store(SEND_WORD, NOT_RUNG);
        words.store(ARM_WORD, NOT_RUNG);
        Some(Self { words })
    }

    /// Takes the doorbells that were rung since the last call; of several in one place the last.
    #[inline]
    pub(super) fn take(&mut self) -> Rung {
        Rung {
            send: self.take_word(SEND_WORD),
            arm: self.take_word(ARM_WORD),
        }
    }

    /// The send doorbell that was rung since the last call of [`Self::take`].
    #[inline(always)]
    pub(super) fn rung_send(&self) -> Option<u32> {
        let word = self
            .words
            .as_slice()
            .get(SEND_WORD)?
            .load(Ordering::Relaxed);
        (word != NOT_RUNG.to_le()).then(|| DoorbellWord(u64::from_le(word)).value() as u32)
    }

    /// True if a doorbell was rung since the last call of [`Self::take`].
    #[inline(always)]
    pub(super) fn is_rung(&self) -> bool {
        let words = self.words.as_slice();
        [SEND_WORD, ARM_WORD].into_iter().any(|index| {
            let word = words.get(index);
            word.is_some_and(|word| word.load(Ordering::Relaxed) != NOT_RUNG.to_le())
        })
    }

    #[inline(always)]
    fn take_word(&self, index: usize) -> Option<u32> {
        let word = self.words.as_slice().get(index)?;
        // Read first: an exchange takes the line away from the core that rings.
        if word.load(Ordering::Relaxed) == NOT_RUNG.to_le() {
            return None;
        }
        // Everything that software wrote before it rang is read after this.
        let taken = word.swap(NOT_RUNG.to_le(), Ordering::Acquire);
        Some(DoorbellWord(u64::from_le(taken)).value() as u32)
    }
}

impl RdmaEngine {
    /// Reads a register; `None` if it is not one of the engine's.
    pub fn register_read(&mut self, offset: u64, _context: &mut Context<'_>) -> Option<u32> {
        let registers = &self.registers;
        Some(match offset {
            registers::CQP_DOORBELL => registers.doorbell.0,
            registers::CQP_TAIL => registers.tail.0,
            registers::CQP_STATUS => registers.status.0,
            registers::CQP_ERROR_CODES => registers.error_codes.0,
            registers::CQP_CONTEXT_LOW => registers.context_low,
            registers::CQP_CONTEXT_HIGH => registers.context_high,
            registers::CQ_ARM
            | registers::CQ_ACKNOWLEDGE
            | registers::AEQ_ALLOCATE
            | registers::WQE_ALLOCATE
            | registers::PAGE_DESCRIPTOR_INVALIDATE => 0,
            _ => return None,
        })
    }

    /// Writes a register, or rings a doorbell; false if it is not one of the engine's.
    pub fn register_write(&mut self, offset: u64, value: u32, context: &mut Context<'_>) -> bool {
        const PAGE_SEND: u64 = registers::DOORBELL_PAGE + registers::DOORBELL_PAGE_SEND;
        const PAGE_ARM: u64 = registers::DOORBELL_PAGE + registers::DOORBELL_PAGE_ARM;
        match offset {
            registers::CQP_DOORBELL => {
                self.registers.doorbell = CqpDoorbell(value);
                // A posted write does not pass another: doorbells that software rang before arrive
                // before, although the page is looked at later.
                self.take_doorbells_before_commands(context);
                self.run_commands(CqpDoorbell(value).head(), context);
            }
            registers::CQP_TAIL => self.registers.tail = CqpTail(value),
            registers::CQP_STATUS => self.registers.status = CqpStatus(value),
            registers::CQP_CONTEXT_HIGH => self.registers.context_high = value,
            registers::CQP_CONTEXT_LOW => {
                self.registers.context_low = value;
                self.start_control_queue(context);
            }
            registers::WQE_ALLOCATE | PAGE_SEND => self.ring_send(value, context),
            registers::CQ_ARM | PAGE_ARM => {
                let number = CompletionQueueNumber(value).number();
                self.objects.arm(number, context);
            }
            registers::CQ_ACKNOWLEDGE => {
                let number = CompletionQueueNumber(value).number();
                self.objects.acknowledge(number, context);
            }
            registers::AEQ_ALLOCATE => match &mut self.objects.asynchronous_events {
                Some(queue) => queue.give_back(value, context),
                None => context
                    .ledger
                    .breach("asynchronous events given back without a queue", || {
                        format!("{value}")
                    }),
            },
            registers::PAGE_DESCRIPTOR_INVALIDATE => {
                let which = PageDescriptorInvalidate(value);
                if !which.rdma_partition() {
                    let kind = "page descriptor of another partition invalidated";
                    context.ledger.breach(kind, || format!("{which:?}"));
                }
                let hmc = &mut self.objects.hmc;
                hmc.invalidate_page(which.segment_index(), which.page_index());
            }
            registers::CQP_ERROR_CODES => read_only(offset, context),
            _ => return false,
        }
        true
    }

    /// The send doorbell of a queue pair.
    pub(super) fn ring_send(&mut self, value: u32, context: &mut Context<'_>) {
        let doorbell = SendDoorbell(value);
        let reserved = value & SendDoorbell::RESERVED;
        let number = doorbell.qp_number();
        if reserved != 0 || doorbell.wqe_index_by_8() != 0 {
            context
                .ledger
                .breach("a send doorbell with other bits than a number", || {
                    format!("{value:#x}")
                });
        }
        let found = self.queue_pairs.get(number as usize);
        match found.and_then(Option::as_deref) {
            Some(qp) if qp.may_ring() => {}
            Some(qp) => {
                let state = qp.state;
                context
                    .ledger
                    .breach("doorbell of a queue pair that cannot send yet", || {
                        format!("queue pair {number} is in {state:?}")
                    });
                return;
            }
            None if self.objects.former_queue_pairs.contains(&number) => {
                context
                    .ledger
                    .remark("doorbell of a queue pair that was destroyed", || {
                        format!("queue pair {number}")
                    });
                return;
            }
            None => {
                context
                    .ledger
                    .breach("doorbell of a queue pair that does not exist", || {
                        format!("queue pair {number}")
                    });
                return;
            }
        }
        self.wake(number);
    }
}

#[cold]
fn read_only(offset: u64, context: &mut Context<'_>) {
    context
        .ledger
        .breach("write to a read-only register", || format!("{offset:#x}"));
}
