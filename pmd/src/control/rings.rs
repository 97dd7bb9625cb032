//! The state of the ring of commands and of the ring of their completions.

use crate::Registers;
use crate::failure::FailureCause;
use ringside_bus::DmaBuffer;
use ringside_cq::EventRing;
use ringside_spec::rdma::control_completion::ControlCompletion;
use ringside_spec::rdma::events::{CQ_SHADOW_HEAD_WORD, CqShadowHead};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar};

/// The value that the device returns in each completion: a constant, so that a foreign one is
/// noticed.
pub(super) const COMPLETION_CONTEXT: u64 = 0x7269_6E67_7369_6465;

pub(super) struct Completions {
    pub(super) ring: EventRing<4>,
    pub(super) _buffer: DmaBuffer,
    pub(super) shadow: DmaBuffer,
    /// the queue itself is still being created: a refusal of that is seen in a register only
    pub(super) new: bool,
}

/// An entry of the ring of commands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Free,
    /// The device has its command and has not answered.
    Sent {
        /// its thread sleeps until it is woken
        is_asleep: bool,
    },
    /// The answer, not taken yet by the thread that waits for it.
    Answered(ControlCompletion),
}

/// The reason why nothing more is sent.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    /// A command was never answered, or the queue was destroyed.
    Stuck,
    /// An answer belongs to no command.
    Garbled(String),
    /// The device failed, or was taken out of service: no answer comes any more.
    Abandoned(FailureCause),
}

/// The state of both rings.
pub(super) struct Rings {
    pub(super) head: u32,
    pub(super) polarity: bool,
    /// as many as the ring of commands has
    pub(super) entries: Vec<Entry>,
    /// entries that are not free
    pub(super) in_use: u32,
    pub(super) completions: Option<Completions>,
    /// nothing more is sent, and why
    pub(super) ended: Option<Ended>,
    /// a thread reads the ring of completions for all
    pub(super) is_watched: bool,
    /// entries that were freed so far
    pub(super) freed: u64,
    /// threads that wait for a free entry, the first one first
    pub(super) line: VecDeque<Arc<Condvar>>,
}

impl Rings {
    pub(super) fn free(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            *entry = Entry::Free;
            self.in_use = self.in_use.saturating_sub(1);
            self.freed += 1;
            self.call_the_first();
        }
    }

    /// Wakes the first thread that waits for an entry.
    pub(super) fn call_the_first(&self) {
        if let Some(first) = self.line.front() {
            first.notify_one();
        }
    }

    /// The entry whose command has waited longest for its answer, of those whose threads sleep.
    pub(super) fn oldest_asleep(&self) -> Option<usize> {
        let head = self.head as usize;
        let (later, earlier) = self.entries.split_at_checked(head)?;
        let oldest_first = earlier.iter().chain(later);
        let is_asleep = |entry: &Entry| matches!(entry, Entry::Sent { is_asleep: true });
        let place = oldest_first.clone().position(is_asleep)?;
        Some((head + place) % self.entries.len())
    }

    /// Takes the answer of an entry, and frees the entry.
    pub(super) fn take_answer(&mut self, slot: u32) -> Option<ControlCompletion> {
        let Some(&Entry::Answered(completion)) = self.entries.get(slot as usize) else {
            return None;
        };
        self.free(slot);
        Some(completion)
    }

    /// Takes all completions that have come, each to the entry that it names. One that names none
    /// that waits ends the queue: another command's answer may be lost with it. Calls `wake` for
    /// each entry whose thread sleeps.
    pub(super) fn reap(&mut self, registers: &Registers, wake: impl Fn(usize)) {
        let Some(completions) = &mut self.completions else {
            return;
        };
        let mut taken = false;
        // One turn of the ring at most: a device that never stops does not hold the caller.
        for _ in 0..self.entries.len() {
            let Some(words) = completions.ring.take() else {
                break;
            };
            taken = true;
            let completion = ControlCompletion::decode(&words);
            let named = usize::from(completion.wqe_index);
            match self.entries.get_mut(named) {
                Some(entry @ &mut Entry::Sent { is_asleep })
                    if completion.cqp_context == COMPLETION_CONTEXT =>
                {
                    *entry = Entry::Answered(completion);
                    if is_asleep {
                        wake(named);
                    }
                }
                _ => {
                    let what = format!(
                        "a completion of entry {named} with context {:#x}, which no command waits for",
                        completion.cqp_context
                    );
                    tracing::error!(device = %registers.function().address(), what, "control queue");
                    self.ended.get_or_insert(Ended::Garbled(what));
                }
            }
        }
        if taken {
            completions.new = false;
            let head = CqShadowHead::ZERO.with_head(completions.ring.index() as u64);
            let shadow = completions.shadow.words();
            shadow.store_release(CQ_SHADOW_HEAD_WORD, head.0);
        }
    }
}
