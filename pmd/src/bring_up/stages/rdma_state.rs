//! What the RDMA stages build and find, how they are undone, and in which order they run.

use crate::bring_up::{Context, Stage, StageError};
use std::fmt;

/// The RDMA stages, in order; they run after those of the LAN half.
pub(super) const STAGES: &[Stage] = &[];

/// What the RDMA stages built: control queue pair, host memory cache, event queues.
#[derive(Default)]
pub struct RdmaState {}

/// What the RDMA stages found.
#[derive(Clone, Debug, Default)]
pub struct RdmaFacts {}

/// Takes back one effect of an RDMA stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RdmaUndo {}

impl fmt::Display for RdmaUndo {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl RdmaUndo {
    /// Takes the effect back. It may never have come: that is no error.
    pub(crate) fn perform(&self, _context: &mut Context) -> Result<(), StageError> {
        match *self {}
    }
}
