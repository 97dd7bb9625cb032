//! `ibv_resize_cq`.

use super::{CompletionObject, Polled};
use crate::abi::ibv_cq;
use crate::cancel::Uncancelled;
use crate::errno;
use ringside_pmd::rdma::Announced;
use std::ffi::c_int;

/// Resizes the queue; its completions are kept.
///
/// Errors: `EINVAL` for fewer completions than before if more wait to be polled; those of the
/// device.
///
/// # Safety
/// `queue` came from [`ibv_create_cq`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(queue: *mut ibv_cq, completions: c_int) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    let wanted = u32::try_from(completions).unwrap_or(0);
    let mut polled = object.polled.hold();
    match object.resize(&mut polled, wanted) {
        Ok(()) => {
            // SAFETY: the public field belongs to the library, and the caller lets no other thread
            // resize at the same time.
            unsafe { (*queue).cqe = completions };
            0
        }
        Err(error) => errno::failed(error),
    }
}

impl CompletionObject {
    /// Completions come until the device uses the new ring, so they are counted after that again. A
    /// larger ring has room for whatever waits: requests of queue pairs that failed, each of which
    /// completes, are kept outside.
    fn resize(&self, polled: &mut Polled, wanted: u32) -> Result<(), c_int> {
        let before = u32::try_from(self.public.cq.cqe).unwrap_or(0);
        if wanted >= before {
            return resize(polled, wanted);
        }
        self.has_room(polled, wanted)?;
        resize(polled, wanted)?;
        self.has_room(polled, wanted).or_else(|error| {
            resize(polled, before)?;
            Err(error)
        })
    }

    /// `EINVAL` if more completions than that wait to be polled.
    fn has_room(&self, polled: &Polled, wanted: u32) -> Result<(), c_int> {
        let waiting = polled.queue.waiting() + polled.feeds.waiting() + self.made.waiting();
        if waiting <= wanted as usize {
            return Ok(());
        }
        tracing::warn!(waiting, wanted, "not resized: poll what waits first");
        Err(libc::EINVAL)
    }
}

fn resize(polled: &mut Polled, wanted: u32) -> Result<(), c_int> {
    let resized = polled.queue.resize(wanted);
    // It counts places of a ring.
    polled.announced = Announced::default();
    resized.map_err(|refused| errno::of(&refused.error))
}
