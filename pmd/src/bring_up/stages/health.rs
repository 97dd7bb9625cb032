//! `health`: nothing that takes the device out of service happened while it was brought up.
//!
//! Source: ice `ice_main.c`, `ice_misc_intr`.

use crate::bring_up::{Context, Needs, Stage, StageError};
use crate::health;

pub(super) const STAGE: Stage = Stage {
    name: "health",
    needs: Needs::Device,
    run,
};

/// A report from that time would otherwise end the service at the first check.
fn run(context: &mut Context) -> Result<(), StageError> {
    let baseline = context.require_baseline()?;
    let control_queue = context.engine.is_some();
    match health::look(context.registers(), baseline, control_queue) {
        Some(cause) => Err(StageError::FailedMeanwhile { cause }),
        None => Ok(()),
    }
}
