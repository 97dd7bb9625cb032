//! Completion channels.

use crate::abi::{ibv_comp_channel, ibv_context};
use crate::cancel::Uncancelled;
use crate::channel::EventQueue;
use crate::errno;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    public: ibv_comp_channel,
    /// the completion queues of the events
    pub(crate) events: EventQueue<usize>,
}

impl ChannelObject {
    /// # Safety
    /// `channel` came from [`ibv_create_comp_channel`] and is not destroyed while the result is
    /// used.
    pub(crate) unsafe fn of<'a>(channel: *mut ibv_comp_channel) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*channel.cast() }
    }

    /// Completion queues that report to it; programs may read the number.
    pub(crate) const fn users(&self) -> &AtomicI32 {
        &self.public.refcnt
    }
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    let _call = Uncancelled::new();
    match EventQueue::new() {
        Ok(events) => {
            let made = Box::new(ChannelObject {
                public: ibv_comp_channel {
                    context,
                    fd: events.descriptor(),
                    refcnt: AtomicI32::new(0),
                },
                events,
            });
            Box::into_raw(made).cast()
        }
        Err(error) => errno::null(error),
    }
}

/// # Safety
/// `channel` came from [`ibv_create_comp_channel`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    if unsafe { ChannelObject::of(channel) }
        .users()
        .load(Ordering::Relaxed)
        > 0
    {
        return errno::failed(libc::EBUSY);
    }
    // SAFETY: nothing uses it any more.
    drop(unsafe { Box::from_raw(channel.cast::<ChannelObject>()) });
    0
}
