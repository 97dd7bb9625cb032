//! `health`: nothing that takes the device out of service happened while it was brought up.

use crate::bring_up::{Context, Needs, Stage, StageError};
use crate::recovery;

pub(super) const STAGE: Stage = Stage {
    name: "health",
    needs: Needs::Device,
    run,
};

/// A report from that time would otherwise end the service at the first look.
fn run(context: &mut Context) -> Result<(), StageError> {
    let Some(baseline) = context.baseline() else {
        return Err(StageError::OutOfOrder {
            missing: "what a reset has left",
            stage: "pf-reset",
        });
    };
    let control_queue = context.rdma.engine.is_some();
    match recovery::look(context.registers(), baseline, control_queue) {
        Some(cause) => Err(StageError::FailedMeanwhile { cause }),
        None => Ok(()),
    }
}
