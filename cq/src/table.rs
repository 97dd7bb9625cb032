//! The queue pairs whose completions a queue gets, found by completion context.

use crate::completion::Completion;
use ringside_qp::state::Tracker;
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::verbs::QueueSide;
use std::sync::Arc;
use thiserror::Error;

/// Which of a queue pair's queues report to a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// Only its send queue.
    Send,
    /// Only its receive queue.
    Receive,
    /// Both.
    Both,
}

impl Sides {
    const fn includes(self, side: QueueSide) -> bool {
        matches!(
            (self, side),
            (Self::Both, _) | (Self::Send, QueueSide::Send) | (Self::Receive, QueueSide::Receive)
        )
    }
}

/// Why a queue pair was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// Its slot is beyond the table.
    #[error("slot {slot}, but the completion queue was made for {slots} queue pairs")]
    NoSuchSlot {
        /// slot in the completion context
        slot: u32,
        /// slots of the table
        slots: usize,
    },
    /// Another queue pair has the slot.
    #[error("slot {slot} belongs to another queue pair: detach that first")]
    SlotTaken {
        /// slot in the completion context
        slot: u32,
    },
}

/// One queue of an attached queue pair.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Entry {
    /// The queue pair's completion context; of an empty place: one that belongs elsewhere.
    pub(crate) context: u64,
    pub(crate) state: Arc<QueuePairState>,
    /// The queue failed: what is posted from now on completes here, in software.
    pub(crate) flushed: bool,
}

impl Entry {
    fn new(state: Arc<QueuePairState>) -> Self {
        Self {
            context: state.context.0,
            state,
            flushed: false,
        }
    }

    /// A place that no context finds: the slot in its own context is another.
    fn empty(slot: usize, nobody: &Arc<QueuePairState>) -> Self {
        Self {
            context: !(slot as u64),
            ..Self::new(Arc::clone(nobody))
        }
    }

    /// The outstanding requests of this side.
    pub(crate) fn tracker(&self, side: QueueSide) -> &Tracker {
        match side {
            QueueSide::Send => &self.state.send,
            QueueSide::Receive => &self.state.receive,
        }
    }
}

/// All attached queue pairs by slot, for each side; its size is fixed.
#[derive(Debug)]
pub(crate) struct Table {
    send: Box<[Entry]>,
    receive: Box<[Entry]>,
    /// State of empty places, so that a place needs no second look.
    nobody: Arc<QueuePairState>,
}

impl Table {
    pub(crate) fn new(slots: u32) -> Self {
        let nobody = Arc::new(QueuePairState::new(CompletionContext::ZERO, 0, 0, 0, 0));
        let empty = || {
            (0..slots as usize)
                .map(|slot| Entry::empty(slot, &nobody))
                .collect()
        };
        Self {
            send: empty(),
            receive: empty(),
            nobody,
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.send.len()
    }

    /// All places of a side, for a run of look-ups.
    #[inline(always)]
    pub(crate) fn entries(&self, side: QueueSide) -> &[Entry] {
        match side {
            QueueSide::Send => &self.send,
            QueueSide::Receive => &self.receive,
        }
    }

    fn places(&mut self, side: QueueSide) -> &mut [Entry] {
        match side {
            QueueSide::Send => &mut self.send,
            QueueSide::Receive => &mut self.receive,
        }
    }

    /// The queue of the queue pair with this context, if it reports here.
    pub(crate) fn find(&self, side: QueueSide, context: u64) -> Option<&Entry> {
        find_entry(self.entries(side), context)
    }

    /// Marks a queue as failed; false if it doesn't report here.
    pub(crate) fn mark_flushed(&mut self, side: QueueSide, context: CompletionContext) -> bool {
        match self.places(side).get_mut(context.slot() as usize) {
            Some(place) if place.context == context.0 => {
                place.flushed = true;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn attach(
        &mut self,
        state: &Arc<QueuePairState>,
        sides: Sides,
    ) -> Result<(), AttachError> {
        let slots = self.slots();
        let slot = state.context.slot() as u32;
        for side in [QueueSide::Send, QueueSide::Receive] {
            match self.entries(side).get(slot as usize) {
                None => return Err(AttachError::NoSuchSlot { slot, slots }),
                Some(place) if !Arc::ptr_eq(&place.state, &self.nobody) => {
                    return Err(AttachError::SlotTaken { slot });
                }
                Some(_) => {}
            }
        }
        for side in [QueueSide::Send, QueueSide::Receive] {
            if let Some(place) = self.places(side).get_mut(slot as usize)
                && sides.includes(side)
            {
                *place = Entry::new(Arc::clone(state));
            }
        }
        Ok(())
    }

    pub(crate) fn detach(&mut self, context: CompletionContext) -> bool {
        let slot = context.slot() as usize;
        let nobody = Arc::clone(&self.nobody);
        let mut found = false;
        for side in [QueueSide::Send, QueueSide::Receive] {
            if let Some(place) = self.places(side).get_mut(slot)
                && place.context == context.0
            {
                *place = Entry::empty(slot, &nobody);
                found = true;
            }
        }
        found
    }
}

/// The queue pair with this context: slot and generation must agree.
#[inline(always)]
pub(crate) fn find_entry(entries: &[Entry], context: u64) -> Option<&Entry> {
    let slot = CompletionContext(context).slot() as usize;
    match entries.get(slot) {
        Some(entry) if entry.context == context => Some(entry),
        _ => None,
    }
}

/// Requests to retire one by one, out of the ring's own pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    pub(crate) context: u64,
    pub(crate) side: QueueSide,
    /// Position of the request that the device named.
    pub(crate) at: u64,
    /// What to report for it; nothing for a success that was not asked for.
    pub(crate) named: Option<Completion>,
    /// Go on after it, to the end of what is posted, with "flushed".
    pub(crate) to_end: bool,
}
