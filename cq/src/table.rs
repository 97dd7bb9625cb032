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

/// How far the requests of one queue were retired. Only this completion queue writes it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Position of the oldest request that was not retired.
    pub(crate) tail: u64,
    /// Signalled sends retired, modulo 2^16.
    pub(crate) sequence: u64,
    /// The queue failed: what is posted from now on completes here, in software.
    pub(crate) flushed: bool,
}

/// One attached queue pair.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) context: u64,
    pub(crate) state: Arc<QueuePairState>,
    pub(crate) sides: Sides,
    pub(crate) send: Progress,
    pub(crate) receive: Progress,
}

impl Entry {
    fn new(state: Arc<QueuePairState>, sides: Sides) -> Self {
        let at = |tracker: &Tracker| Progress {
            tail: tracker.tail(),
            ..Progress::default()
        };
        Self {
            context: state.context.0,
            sides,
            send: at(&state.send),
            receive: at(&state.receive),
            state,
        }
    }

    #[inline(always)]
    pub(crate) fn serves(&self, side: QueueSide) -> bool {
        self.sides.includes(side)
    }

    pub(crate) fn queue(&mut self, side: QueueSide) -> (&Tracker, &mut Progress) {
        match side {
            QueueSide::Send => (&self.state.send, &mut self.send),
            QueueSide::Receive => (&self.state.receive, &mut self.receive),
        }
    }
}

/// All attached queue pairs; its size is fixed.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Box<[Option<Entry>]>,
}

impl Table {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots: (0..slots).map(|_| None).collect(),
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The queue pair with this context: slot and generation must agree.
    #[inline(always)]
    pub(crate) fn find(&mut self, context: u64) -> Option<&mut Entry> {
        let slot = CompletionContext(context).slot() as usize;
        match self.slots.get_mut(slot) {
            Some(Some(entry)) if entry.context == context => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn attach(
        &mut self,
        state: Arc<QueuePairState>,
        sides: Sides,
    ) -> Result<(), AttachError> {
        let slots = self.slots();
        let slot = state.context.slot() as u32;
        let place = self
            .slots
            .get_mut(slot as usize)
            .ok_or(AttachError::NoSuchSlot { slot, slots })?;
        if place.is_some() {
            return Err(AttachError::SlotTaken { slot });
        }
        *place = Some(Entry::new(state, sides));
        Ok(())
    }

    pub(crate) fn detach(&mut self, context: CompletionContext) -> bool {
        match self.slots.get_mut(context.slot() as usize) {
            Some(place)
                if place
                    .as_ref()
                    .is_some_and(|entry| entry.context == context.0) =>
            {
                *place = None;
                true
            }
            _ => false,
        }
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
