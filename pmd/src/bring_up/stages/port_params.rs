//! `port-params`: the card's VLAN mode, and the port in its plain mode.
//!
//! The driver that loads the package chooses the mode, for all functions of the card: another one
//! may have chosen double VLAN mode, which the port's parameters would end. Source: ice
//! `ice_vlan_mode.c`, `ice_post_pkg_dwnld_vlan_mode_cfg`; `ice_common.c`, `ice_aq_set_port_params`.

use crate::admin::commands::VlanMode;
use crate::bring_up::{Context, Needs, Stage, StageError};

pub(super) const STAGE: Stage = Stage {
    name: "port-params",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let admin = context.admin()?;
    let mode = admin.vlan_mode()?;
    context.facts.vlan_mode = mode;
    match mode {
        VlanMode::Single => admin.set_port_parameters()?,
        VlanMode::Double => tracing::info!("the card is in double VLAN mode, and stays in it"),
    }
    Ok(())
}
