//! Memory of objects that the device may still use.

use super::RdmaError;
use ringside_bus::DmaBuffer;
use serde::Serialize;

/// An object that was destroyed here, and perhaps not in the device. Its memory is not used again
/// until the device was reset; that of a region that was dropped while a window was bound to it,
/// until the window is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// Its kind.
    pub what: &'static str,
    /// Its number.
    pub number: u32,
    /// Bytes of memory kept.
    pub bytes: usize,
    /// The reason.
    pub reason: String,
}

/// The program uses its own memory again before the device is reset and this is dropped: its pages
/// must not be replaced then.
pub(super) fn stay(buffers: &[DmaBuffer]) {
    for buffer in buffers {
        buffer.keep_in_file();
    }
}

/// The same with the memory.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) entry: Quarantined,
    pub(super) buffers: Vec<DmaBuffer>,
}

impl Kept {
    pub(super) fn new(
        what: &'static str,
        number: u32,
        bytes: usize,
        buffers: Vec<DmaBuffer>,
        reason: &RdmaError,
    ) -> Self {
        let entry = Quarantined {
            what,
            number,
            bytes,
            reason: reason.to_string(),
        };
        stay(&buffers);
        Self { entry, buffers }
    }

    /// Keeps more memory with it.
    pub(super) fn add(&mut self, buffers: Vec<DmaBuffer>) {
        stay(&buffers);
        self.buffers.extend(buffers);
    }
}
