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

/// A reset of the whole device that was in progress does for the function's as well. It ends with
/// the load from the flash; until then the function must not be reset.
fn run(context: &mut Context) -> Result<(), StageError> {
    let was_resetting = reset::wait_for_device(context.registers())?;
    let was_loading = !reset::is_loaded(context.registers())?;
    if was_resetting || was_loading {
        let limit = Duration::from_millis(context.config().device.ready_deadline_ms);
        reset::wait_for_load(context.registers(), limit)?;
    }
    let _ = context.record(Undo::ResetFunction);
    if was_resetting || was_loading {
        context.warn("a reset of the whole device was in progress and has been waited for");
    } else {
        let limit = Duration::from_millis(context.config().device.reset_deadline_ms);
        reset::trigger_and_wait(context.registers(), limit)?;
    }
    let baseline = Baseline::take(context.registers())?;
    context.set_baseline(baseline);
    Ok(())
}
