//! Completions that the library makes itself.

use crate::abi::ibv_wc;
use crate::device::lock;
use ringside_pmd::rdma::Earlier;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Completions that the library makes: of requests posted to a queue pair that has failed.
///
/// They have a lock of their own: a program may post while it has a completion open.
#[derive(Default)]
pub(super) struct Made {
    count: AtomicUsize,
    /// completions taken so far, modulo the size of the type
    taken: AtomicUsize,
    list: Mutex<MadeList>,
}

#[derive(Default)]
struct MadeList {
    /// each with the requests that complete before it
    waiting: VecDeque<(ibv_wc, Option<Earlier>)>,
    /// the number of them, by queue pair and opcode
    counts: HashMap<(u32, c_int), u32>,
}

impl Made {
    /// Adds completions of one side of a queue pair: all of them, or none and false if more than
    /// `capacity` of its opcode would wait.
    pub(super) fn put(
        &self,
        completions: impl Iterator<Item = ibv_wc> + Clone,
        earlier: Option<&Earlier>,
        capacity: u32,
    ) -> bool {
        let Some(first) = completions.clone().next() else {
            return true;
        };
        let more = u32::try_from(completions.clone().count()).unwrap_or(u32::MAX);
        let mut list = lock(&self.list);
        let of_side = (first.qp_num, first.opcode);
        let count = list.counts.entry(of_side).or_default();
        if count.saturating_add(more) > capacity {
            return false;
        }
        *count += more;
        let each = completions.map(|completion| (completion, earlier.cloned()));
        list.waiting.extend(each);
        self.count.store(list.waiting.len(), Ordering::Release);
        true
    }

    /// Discards those of a queue pair.
    pub(super) fn forget(&self, queue_pair: u32) {
        let mut list = lock(&self.list);
        list.waiting
            .retain(|(completion, _)| completion.qp_num != queue_pair);
        list.counts.retain(|(number, _), _| *number != queue_pair);
        self.count.store(list.waiting.len(), Ordering::Release);
    }

    /// Takes the first whose earlier requests are complete; false if there is none.
    #[inline(always)]
    pub(super) fn take(&self, place: &mut MaybeUninit<ibv_wc>) -> bool {
        self.count.load(Ordering::Acquire) != 0 && self.take_first(place)
    }

    #[cold]
    fn take_first(&self, place: &mut MaybeUninit<ibv_wc>) -> bool {
        let mut list = lock(&self.list);
        let at = list.waiting.iter().position(is_next);
        let Some((first, _)) = at.and_then(|at| list.waiting.remove(at)) else {
            return false;
        };
        if let Some(count) = list.counts.get_mut(&(first.qp_num, first.opcode)) {
            *count = count.saturating_sub(1);
        }
        self.count.store(list.waiting.len(), Ordering::Release);
        self.taken.fetch_add(1, Ordering::Relaxed);
        place.write(first);
        true
    }

    /// True if a completion waits for no other.
    pub(super) fn has_next(&self) -> bool {
        lock(&self.list).waiting.iter().any(is_next)
    }

    /// The number of completions taken so far, modulo the size of the type.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// The number of completions that wait.
    pub(super) fn waiting(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

/// True if all earlier requests of the completion's queue pair are complete.
fn is_next((_, earlier): &(ibv_wc, Option<Earlier>)) -> bool {
    earlier.as_ref().is_none_or(Earlier::are_complete)
}
