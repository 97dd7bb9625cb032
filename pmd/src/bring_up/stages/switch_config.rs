//! `switch-config`: the port and the switch of the function.
//!
//! Source: ice `ice_switch.c`, `ice_get_initial_sw_cfg`.

use crate::bring_up::{Context, Needs, Stage, StageError};

pub(super) const STAGE: Stage = Stage {
    name: "switch-config",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    context.facts.switch = Some(context.admin()?.switch_port()?);
    Ok(())
}
