//! Events of completion queues: asking for one, waiting for it, acknowledging it.

use crate::abi::{ibv_comp_channel, ibv_cq};
use crate::cancel::Uncancelled;
use crate::completion::CompletionObject;
use crate::completion_channel::ChannelObject;
use crate::device::lock;
use crate::errno;
use ringside_pmd::rdma::Notify;
use std::ffi::{c_int, c_void};

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
