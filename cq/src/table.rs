//! The queue pairs whose completions a queue reports, found by completion context.

use crate::completion::Completion;
use ringside_qp::state::Tracker;
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::verbs::QueueSide;
use std::sync::Arc;
use thiserror::Error;

/// The queues of a queue pair that report to a completion queue.
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

/// Reasons why a queue pair was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// The slot of its context is beyond the table.
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

/// All attached queue pairs by slot, for each side; its size is fixed.
///
/// The number of places is rounded up to a power of two, and every context maps to a place. The
/// state there tells if the context is its own. A place without a queue pair holds an unattached
/// state, which has no request outstanding, so a look-up needs no test for an empty place.
#[derive(Debug)]
pub(crate) struct Table {
    send: ringside_bus::Table<Arc<QueuePairState>>,
    receive: ringside_bus::Table<Arc<QueuePairState>>,
    /// Failed queues: requests posted to them from now on are completed here, in software.
    flushed: [Vec<bool>; 2],
    unattached: Arc<QueuePairState>,
    slots: usize,
}

/// Look-ups of one side of a [`Table`].
pub(crate) type View<'a> = ringside_bus::ring::TableView<'a, Arc<QueuePairState>>;

/// Returns the queue at the slot of `context`, if the context matches slot and generation. It may
/// be the unattached state, which has nothing outstanding.
#[inline(always)]
pub(crate) fn look_up<'a, const SEND: bool>(view: &View<'a>, context: u64) -> Option<&'a Tracker> {
    let state = view.at(CompletionContext(context).slot() as usize);
    let tracker = if SEND { &state.send } else { &state.receive };
    (tracker.context() == context).then_some(tracker)
}

const fn index_of(side: QueueSide) -> usize {
    match side {
        QueueSide::Send => 0,
        QueueSide::Receive => 1,
    }
}

/// One side of a queue pair.
#[inline(always)]
pub(crate) fn tracker(state: &QueuePairState, side: QueueSide) -> &Tracker {
    match side {
        QueueSide::Send => &state.send,
        QueueSide::Receive => &state.receive,
    }
}

impl Table {
    pub(crate) fn new(slots: u32) -> Self {
        let unattached = Arc::new(QueuePairState::new(CompletionContext::ZERO, 0, 0, 0, 0));
        let slots = slots as usize;
        let empty = || ringside_bus::Table::new(slots, |_| Arc::clone(&unattached));
        let (send, receive) = (empty(), empty());
        let flushed = [vec![false; slots], vec![false; slots]];
        Self {
            send,
            receive,
            flushed,
            unattached,
            slots,
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// The places of one side, for [`look_up`].
    #[inline(always)]
    pub(crate) fn view<const SEND: bool>(&self) -> View<'_> {
        if SEND {
            self.send.view()
        } else {
            self.receive.view()
        }
    }

    fn places(&self, side: QueueSide) -> &ringside_bus::Table<Arc<QueuePairState>> {
        match side {
            QueueSide::Send => &self.send,
            QueueSide::Receive => &self.receive,
        }
    }

    fn set(&mut self, side: QueueSide, slot: usize, state: Arc<QueuePairState>) {
        let places = match side {
            QueueSide::Send => &mut self.send,
            QueueSide::Receive => &mut self.receive,
        };
        if let Some(place) = places.get_mut(slot) {
            *place = state;
        }
        if let Some(flushed) = self
            .flushed
            .get_mut(index_of(side))
            .and_then(|all| all.get_mut(slot))
        {
            *flushed = false;
        }
    }

    /// Returns the queue pair with this context, if this side of it reports here.
    pub(crate) fn find(&self, side: QueueSide, context: u64) -> Option<&QueuePairState> {
        let state = self
            .places(side)
            .at(CompletionContext(context).slot() as usize);
        let found = state.context.0 == context && !Arc::ptr_eq(state, &self.unattached);
        found.then_some(&**state)
    }

    /// Returns the queue pair with this number whose receives are reported here. Looks through all
    /// places: not for a data path.
    pub(crate) fn receiving(&self, number: u32) -> Option<&QueuePairState> {
        let mut states = (0..self.slots).map(|slot| self.receive.at(slot));
        let is_it = |state: &&Arc<QueuePairState>| {
            state.number() == number && !Arc::ptr_eq(state, &self.unattached)
        };
        states.find(is_it).map(|state| &**state)
    }

    /// Marks a queue as failed. False if the queue does not report here.
    pub(crate) fn mark_flushed(&mut self, side: QueueSide, context: CompletionContext) -> bool {
        let found = self.find(side, context.0).is_some();
        let flushed = self
            .flushed
            .get_mut(index_of(side))
            .and_then(|all| all.get_mut(context.slot() as usize));
        match flushed {
            Some(flushed) if found => {
                *flushed = true;
                true
            }
            _ => false,
        }
    }

    /// True if a queue that reports here was marked as failed.
    pub(crate) fn is_flushed(&self, side: QueueSide, context: CompletionContext) -> bool {
        let slot = context.slot() as usize;
        let flushed = self
            .flushed
            .get(index_of(side))
            .and_then(|all| all.get(slot));
        self.find(side, context.0).is_some() && flushed.copied().unwrap_or(false)
    }

    pub(crate) fn attach(
        &mut self,
        state: &Arc<QueuePairState>,
        sides: Sides,
    ) -> Result<(), AttachError> {
        let slots = self.slots;
        let slot = state.context.slot() as u32;
        if slot as usize >= slots {
            return Err(AttachError::NoSuchSlot { slot, slots });
        }
        let both = [QueueSide::Send, QueueSide::Receive];
        let is_free = |side| Arc::ptr_eq(self.places(side).at(slot as usize), &self.unattached);
        if !both.into_iter().all(is_free) {
            return Err(AttachError::SlotTaken { slot });
        }
        for side in both.into_iter().filter(|side| sides.includes(*side)) {
            self.set(side, slot as usize, Arc::clone(state));
        }
        Ok(())
    }

    pub(crate) fn detach(&mut self, context: CompletionContext) -> bool {
        let mut found = false;
        for side in [QueueSide::Send, QueueSide::Receive] {
            if self.find(side, context.0).is_some() {
                self.set(side, context.slot() as usize, Arc::clone(&self.unattached));
                found = true;
            }
        }
        found
    }
}

/// Requests to retire one by one, when the device's completion is not for the next request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    pub(crate) context: u64,
    pub(crate) side: QueueSide,
    /// Position of the request that the device named.
    pub(crate) at: u64,
    /// The completion to report for it; `None` for a success that was not requested.
    pub(crate) named: Option<Completion>,
    /// Continue after it to the end of the posted requests, with status "flushed".
    pub(crate) to_end: bool,
}
