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
    let admin = context.admin()?;
    let found = admin.read_mac()?;
    // The address that a port chose outlives a reset.
    let own = context.ports.return_address(|own| admin.write_mac(own))?;
    context.facts.mac = Some(own.unwrap_or(found));
    Ok(())
}
