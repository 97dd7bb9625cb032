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

impl CompletionObject {
    /// Asks for an event. A completion that is unread, and of which no event has told, gives it at
    /// once, if the program wants one for any: so it is from other cards, and programs that poll
    /// one completion for each event rely on it. Programs that ask before they poll the completion
    /// of the last event (perftest) get no second event for it, as from the kernel's irdma. The
    /// device is not asked if the event is given at once: it would keep the request, and tell of
    /// the next completion a program that by then wants an event for solicited ones only.
    pub(crate) fn request_event(&self, notify: Notify) {
        let is_due = self.with_polled(|polled| {
            // First: the event of the device may come at once.
            let is_told = !self.is_armed.swap(true, Ordering::AcqRel);
            let before = polled.announced;
            // The library reports the requests of a failed queue pair; the device reports one
            // alone.
            let failed_only = notify == Notify::Solicited;
            self.has_unannounced(polled, is_told, failed_only) || {
                polled.queue.arm(notify);
                // See `CompletionObject::complete`. The device need not tell of what it has written
                // before it saw the request.
                fence(Ordering::SeqCst);
                polled.announced = before;
                self.has_unannounced(polled, is_told, failed_only)
            }
        });
        if is_due {
            self.notify();
        }
    }

    /// True if there is something to poll of which no event has told. `failed_only`: only failures
    /// that the device does not report.
    fn has_unannounced(&self, polled: &mut Polled, is_told: bool, failed_only: bool) -> bool {
        let elsewhere = self.elsewhere(polled);
        let Polled {
            queue, announced, ..
        } = polled;
        let is_unannounced = queue.has_unannounced(announced, is_told, failed_only, elsewhere);
        is_unannounced || self.owes_events(polled)
    }

    /// A queue pair that reports here has failed: tells the program, if it waits, of requests that
    /// no event of the device tells of. To be called again after a while: another call may hold the
    /// queue now, or be about to post. A queue without a lock is not looked at: see
    /// [`Self::tell_of_failure`].
    pub(crate) fn tell_of_flushed(&self) {
        if self.is_armed.load(Ordering::Acquire)
            && let Some(mut polled) = self.polled.try_hold()
        {
            let before = polled.announced;
            let is_due = self.has_unannounced(&mut polled, false, true);
            polled.announced = before;
            drop(polled);
            if is_due {
                self.notify();
            }
        }
    }

    /// The device has reported that a queue pair failed which reports here. The program's thread
    /// may have asked for an event after that of the device, and before the library knew of the
    /// failure. A queue without a lock is not looked at: the program may find nothing then.
    pub(crate) fn tell_of_failure(&self) {
        if !self.polled.has_lock() {
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
