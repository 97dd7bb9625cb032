//! One stage, as data.

use super::{Context, StageError};

/// The preconditions of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Every device can do it.
    Device,
    /// Skipped, with the reason in the trace, where
    /// [`Facts::rdma_unavailable`](super::Facts::rdma_unavailable) has a reason.
    Rdma,
}

/// One stage of bring-up.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// The name in kebab-case, for traces and `--fail-at`.
    pub name: &'static str,
    /// The condition under which it runs.
    pub needs: Needs,
    /// The action. It records each undo before the effect.
    pub run: fn(&mut Context) -> Result<(), StageError>,
}
