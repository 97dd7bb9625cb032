//! `clear-pf-config`: removes the configuration that an earlier driver left.
//!
//! Source: ice `ice_common.c`, `ice_clear_pf_cfg`.

use crate::bring_up::{Context, Needs, Stage, StageError, Undo};

pub(super) const STAGE: Stage = Stage {
    name: "clear-pf-config",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    // Everything that later stages configure in the firmware is covered by this one as well.
    let _ = context.record(Undo::ClearFunctionConfig);
    Ok(context.admin()?.clear_function_config()?)
}
