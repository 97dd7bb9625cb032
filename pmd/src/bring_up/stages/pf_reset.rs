//! `pf-reset`: the function from a known beginning.
//!
//! Source: ice `ice_common.c`, `ice_pf_reset`.

use crate::bring_up::reset;
use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use crate::health::Baseline;
use std::time::Duration;

pub(super) const STAGE: Stage = Stage {
    name: "pf-reset",
    needs: Needs::Device,
    run,
};

/// A reset of the whole device that was in progress does for the function's as well.
fn run(context: &mut Context) -> Result<(), StageError> {
    let _ = context.record(Undo::ResetFunction);
    if reset::wait_for_device(context.registers())? {
        context.warn("a reset of the whole device was in progress and has been waited for");
    } else {
        let limit = Duration::from_millis(context.config().device.reset_deadline_ms);
        reset::trigger_and_wait(context.registers(), limit)?;
    }
    let baseline = Baseline::take(context.registers())?;
    context.set_baseline(baseline);
    Ok(())
}
