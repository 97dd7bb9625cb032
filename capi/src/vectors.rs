//! The completion vectors of a context: one for each completion event queue of the device. A thread
//! sleeps on each vector that a completion channel is used with.

use crate::device::lock;
use ringside_pmd::Device;
use ringside_pmd::rdma::RdmaError;
use std::ffi::c_int;
use std::sync::Mutex;

/// The vectors, and those that have a thread.
pub(crate) struct Vectors {
    count: u16,
    watched: Mutex<Vec<u16>>,
}

impl Vectors {
    /// The vectors of a device. Vector 0 is watched by the thread that takes asynchronous events.
    pub(crate) fn of(device: &Device) -> Result<Self, RdmaError> {
        let queues = device.event_queues()?.len();
        Ok(Self {
            count: u16::try_from(queues).unwrap_or(u16::MAX),
            watched: Mutex::new(vec![0]),
        })
    }

    /// Verbs: `num_comp_vectors`.
    pub(crate) fn count(&self) -> c_int {
        self.count.into()
    }

    /// A vector that a program names: the completion event queue of that number.
    ///
    /// # Errors
    /// `EINVAL`, as the kernel's, beyond [`Vectors::count`].
    pub(crate) fn check(&self, wanted: u32) -> Result<u16, c_int> {
        let vector = u16::try_from(wanted).ok();
        vector
            .filter(|vector| *vector < self.count)
            .ok_or(libc::EINVAL)
    }

    /// Has `start` start the thread of a vector that has none. The others wait for it meanwhile.
    pub(crate) fn watch(
        &self,
        vector: u16,
        start: impl FnOnce() -> Result<(), c_int>,
    ) -> Result<(), c_int> {
        let mut watched = lock(&self.watched);
        if !watched.contains(&vector) {
            start()?;
            watched.push(vector);
        }
        Ok(())
    }
}
