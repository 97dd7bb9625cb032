//! What the stages found out about the device.

use crate::bring_up::stages::rdma_state::RdmaFacts;

/// What is known about the device; a field is `None` until its stage has run.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Why this device offers no RDMA (safe mode, or no such capability); `None`: it does.
    pub rdma_unavailable: Option<String>,
    /// What the RDMA stages found.
    pub rdma: RdmaFacts,
}
