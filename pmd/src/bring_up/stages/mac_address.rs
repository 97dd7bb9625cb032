//! `mac-address`: the function's own address.
//!
//! Source: ice `ice_common.c`, `ice_aq_manage_mac_read`.

use crate::bring_up::{Context, Needs, Stage, StageError};

pub(super) const STAGE: Stage = Stage {
    name: "mac-address",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    context.facts.mac = Some(context.admin()?.read_mac()?);
    Ok(())
}
