//! The completion vectors of a context: one for each completion event queue of the device. A thread
//! sleeps on each vector that a completion channel is used with.

use ringside_pmd::Device;
use ringside_pmd::rdma::RdmaError;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Starts the thread of a vector. Errors: errno values.
type Start = Box<dyn Fn(u16) -> Result<(), c_int> + Send + Sync>;

/// The vectors, and those that have a thread.
pub(crate) struct Vectors {
    count: u16,
    watched: Mutex<Vec<u16>>,
    start: OnceLock<Start>,
}

impl Vectors {
    /// The vectors of a device. Vector 0 is watched by the thread that takes asynchronous events.
    pub(crate) fn of(device: &Device) -> Result<Self, RdmaError> {
        let queues = device.event_queues()?.len();
        Ok(Self {
            count: u16::try_from(queues).unwrap_or(u16::MAX),
            watched: Mutex::new(vec![0]),
            start: OnceLock::new(),
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

    /// Sets what starts the thread of a vector. The first one stays.
    pub(crate) fn start_by(&self, start: Start) {
        let _ = self.start.set(start);
    }

    /// Starts the thread of a vector, unless it has one. Other callers wait meanwhile.
    ///
    /// # Errors
    /// errno values: of the device, or `EAGAIN` if there is no further thread.
    pub(crate) fn watch(&self, vector: u16) -> Result<(), c_int> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.contains(&vector) {
            return Ok(());
        }
        let start = self.start.get().ok_or(libc::EAGAIN)?;
        start(vector)?;
        watched.push(vector);
        Ok(())
    }
}
