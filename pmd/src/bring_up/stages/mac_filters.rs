//! `mac-filters`: lets the device deliver frames to its own address and to the broadcast address.
//!
//! Source: ice `ice_fltr.c`, `ice_fltr_add_mac_and_broadcast`.

use crate::bring_up::{Context, Needs, Stage, StageError, Undo};

pub(super) const STAGE: Stage = Stage {
    name: "mac-filters",
    needs: Needs::Device,
    run,
};

const BROADCAST: [u8; 6] = [0xFF; 6];

fn run(context: &mut Context) -> Result<(), StageError> {
    let admin = context.admin()?;
    let vsi = context.facts.vsi()?;
    for mac in [context.facts.mac()?, BROADCAST] {
        let undo = |rule| Undo::RemoveMacRule { vsi, mac, rule };
        let token = context.record(undo(None));
        let rule = admin.add_mac_rule(vsi, mac)?;
        context.amend(token, undo(Some(rule)));
    }
    Ok(())
}
