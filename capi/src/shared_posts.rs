//! Posting to shared receive queues.

use crate::abi::{ibv_recv_wr, ibv_srq};
use crate::completion::CompletionObject;
use crate::context_object::ContextObject;
use crate::errno;
use crate::fragments::fragments;
use crate::shared::SharedObject;
use crate::shared::lending::Receives;
use std::ffi::c_int;

/// The slot behind `ibv_post_srq_recv`.
///
/// # Safety
/// `shared` came from [`ibv_create_srq`]; the list and the memory that it names are valid.
pub(crate) unsafe extern "C" fn post_srq_recv(
    shared: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { SharedObject::of(shared) };
    let mut receives = object.queue.hold();
    // SAFETY: the caller's promise.
    let result = unsafe { post(object, &mut receives, list, refused) };
    receives.lend_to_sole();
    wake(&mut receives);
    result
}

/// Messages that waited for receives can be polled: tells the programs that wait for events.
pub(crate) fn wake(receives: &mut Receives) {
    for queue in receives.take_waiting() {
        // SAFETY: a completion queue is removed from the list before it goes.
        unsafe { CompletionObject::of(queue as *mut _) }.notify();
    }
}

/// # Safety
/// As [`post_srq_recv`].
unsafe fn post(
    object: &SharedObject,
    receives: &mut Receives,
    list: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a context outlives its objects.
    let port = unsafe { &ContextObject::of(object.public.context).port };
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        let posted = unsafe {
            let wanted = &*next;
            fragments(wanted.sg_list, wanted.num_sge, object.fragments).and_then(|found| {
                receives.note_length(port, found)?;
                receives
                    .queue
                    .post(wanted.wr_id, found)
                    .map_err(|error| errno::of_post(&error))
            })
        };
        // SAFETY: the caller's promise, and place.
        unsafe {
            if let Err(error) = posted {
                *refused = next;
                return error;
            }
            next = (*next).next;
        }
    }
    0
}
