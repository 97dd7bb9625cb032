//! `reset-mark`: without RDMA, sets a mark that shows a reset of the function by other software.
//! Source: none: an interrupt notifies Linux of such a reset; the register is that of ice
//! `ice_hw_autogen.h`, `PF_MBX_ATQLEN`.

use crate::bring_up::{Context, Needs, Stage, StageError};

pub(super) const STAGE: Stage = Stage {
    name: "reset-mark",
    needs: Needs::Device,
    run,
};

/// The reset that the stage `pf-reset` has recorded takes the mark away.
fn run(context: &mut Context) -> Result<(), StageError> {
    if context.facts.rdma_unavailable.is_none() {
        context
            .recorder()
            .note("the control queue pair will show a reset of the function");
        return Ok(());
    }
    let mut baseline = context.require_baseline()?;
    if !baseline.mark(context.registers())? {
        context.warn("a reset of the function by other software will not be detected: the device does not keep the mark for it");
    }
    context.set_baseline(baseline);
    Ok(())
}
