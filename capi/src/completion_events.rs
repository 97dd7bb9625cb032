//! Events of completion queues: asking for one, waiting for it, acknowledging it.

use crate::abi::{ibv_comp_channel, ibv_cq};
use crate::cancel::Uncancelled;
use crate::completion::{CompletionObject, Polled};
use crate::completion_channel::ChannelObject;
use crate::device::lock;
use crate::errno;
use ringside_pmd::rdma::Notify;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{Ordering, fence};

impl Polled {
    fn has_unannounced(&mut self, is_told: bool) -> bool {
        self.queue.has_unannounced(&mut self.announced, is_told)
    }
}

impl CompletionObject {
    /// Asks for an event. A completion that is unread, and of which no event has told, gives it at
    /// once, if the program wants one for any: so it is from other cards, and programs that poll
    /// one completion for each event rely on it. Programs that ask before they poll the completion
    /// of the last event (perftest) get no second event for it, as from the kernel's irdma. The
    /// device is not asked if the event is given at once: it would keep the request, and tell of
    /// the next completion a program that by then wants an event for solicited ones only.
    pub(crate) fn request_event(&self, notify: Notify) {
        let mut polled = self.polled.hold();
        // First: the event of the device may come at once.
        let is_told = !self.is_armed.swap(true, Ordering::AcqRel);
        let before = polled.announced;
        let is_unread =
            |polled: &mut Polled| polled.has_unannounced(is_told) || self.has_more(polled);
        let is_due = notify == Notify::Next && is_unread(&mut polled) || {
            polled.queue.arm(notify);
            // See `CompletionObject::complete`. The device need not tell of what it has written
            // before it saw the request.
            fence(Ordering::SeqCst);
            polled.announced = before;
            notify == Notify::Next && is_unread(&mut polled)
        };
        drop(polled);
        if is_due {
            self.notify();
        }
    }

    /// A queue pair that reports here has failed: tells the program, if it waits, of requests that
    /// no event of the device tells of. To be called again after a while: a call may have the
    /// queue, or begin to post. Only for queues with a lock: without one, the thread that posts is
    /// the one that waits.
    pub(crate) fn tell_of_flushed(&self) {
        let is_armed = || self.is_armed.load(Ordering::Acquire);
        if is_armed()
            && let Some(mut polled) = self.polled.try_hold()
            && polled.queue.owes_reports()
        {
            drop(polled);
            self.notify();
        }
    }

    /// True if no event is given before the next request, in a program that uses events.
    pub(crate) fn may_settle(&self) -> bool {
        !self.public.cq.channel.is_null() && !self.is_armed.load(Ordering::Acquire)
    }

    /// A poll has found no more completions after some.
    pub(crate) fn found_last(&self, polled: &mut Polled) {
        if self.may_settle() {
            self.settle(polled);
        }
    }

    /// A poll has found no more completions, and none of them can give an event before the next
    /// request.
    pub(crate) fn settle(&self, polled: &mut Polled) {
        if !self.has_made() {
            polled.queue.settle(&mut polled.announced);
        }
    }
}

/// Waits for a completion event.
///
/// # Safety
/// `channel` is one of this library; the others are places for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    program: *mut *mut c_void,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let object = unsafe { ChannelObject::of(channel) };
    let count = |event: &usize| {
        // SAFETY: a queue takes its events back before it goes.
        let read = unsafe { CompletionObject::of(*event as *mut ibv_cq) };
        lock(&read.counts).read += 1;
    };
    match object.events.take(count) {
        Ok(event) => {
            let found = event as *mut ibv_cq;
            // SAFETY: a queue with a read event waits before it goes; the caller's places.
            unsafe {
                *queue = found;
                *program = (*found).cq_context;
            }
            0
        }
        Err(error) => errno::minus_one(error),
    }
}

/// # Safety
/// `queue` came from [`ibv_create_cq`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, events: u32) {
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    let mut counts = lock(&object.counts);
    counts.acknowledged = counts.acknowledged.wrapping_add(events);
    // SAFETY: as above; the field is written under this lock. Programs (UCX) read it.
    unsafe { (*queue).comp_events_completed = counts.acknowledged };
    object.counted.notify_all();
}

/// The slot behind `ibv_req_notify_cq`.
///
/// # Safety
/// `queue` came from [`ibv_create_cq`].
pub(crate) unsafe extern "C" fn req_notify_cq(queue: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    let notify = if solicited_only == 0 {
        Notify::Next
    } else {
        Notify::Solicited
    };
    object.request_event(notify);
    0
}
