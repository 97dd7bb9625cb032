//! `port-params`: the port in its plain mode.
//!
//! Source: ice `ice_common.c`, `ice_aq_set_port_params`.

use crate::bring_up::{Context, Needs, Stage, StageError};

pub(super) const STAGE: Stage = Stage {
    name: "port-params",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    Ok(context.admin()?.set_port_parameters()?)
}
