//! Everything that a driver could leave behind in a function, to compare before and after.

use crate::firmware::FirmwareSnapshot;
use crate::rdma::RdmaSnapshot;
use ringside_bus::Iova;

/// Two equal snapshots: the function is as it was found.
///
/// Counters, queued events and the history of resets are no part of it: they are not a driver's to
/// put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSnapshot {
    /// Bytes of configuration space that differ from those after reset: offset and value.
    pub configuration: Vec<(u16, u8)>,
    /// Registers that differ from their value after reset: offset and value.
    pub registers: Vec<(u64, u32)>,
    /// Dwords of the MSI-X table that differ: offset in its BAR and value.
    pub msix_table: Vec<(u64, u32)>,
    /// Vectors that are connected to event descriptors.
    pub vectors: Vec<u16>,
    /// Memory that the function was given: first address and bytes.
    pub mappings: Vec<(Iova, u64)>,
    /// The state of the firmware.
    pub firmware: FirmwareSnapshot,
    /// The state of the RDMA engine.
    pub rdma: RdmaSnapshot,
}
