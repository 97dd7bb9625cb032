//! `clear-pxe`: the device leaves its boot mode.
//!
//! Source: ice `ice_common.c`, `ice_clear_pxe_mode`.

use crate::bring_up::{Context, Needs, Stage, StageError};

pub(super) const STAGE: Stage = Stage {
    name: "clear-pxe",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    Ok(context.admin()?.clear_pxe()?)
}
