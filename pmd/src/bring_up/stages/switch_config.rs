//! `switch-config`: the port and the switch of the function.

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
