//! The counts of a device up to the last reading.

use crate::lan::PORT_COUNTERS;
use ringside_bus::DmaBuffer;
use ringside_spec::rdma::statistics::COUNTERS;

/// The counts up to the last sample: hardware counters wrap.
#[derive(Debug)]
pub(crate) struct Accumulated {
    pub(super) buffer: DmaBuffer,
    pub(super) engine_last: [u64; COUNTERS.len()],
    pub(super) engine: [u64; COUNTERS.len()],
    pub(super) port_last: [u64; PORT_COUNTERS.len()],
    pub(super) port: [u64; PORT_COUNTERS.len()],
}

impl Accumulated {
    /// The memory that the device writes counters to.
    pub(crate) fn into_buffer(self) -> DmaBuffer {
        self.buffer
    }
}
