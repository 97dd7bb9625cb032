//! `vsi`: the function's virtual station interface.
//!
//! Source: ice `ice_lib.c`, `ice_vsi_init`.

use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use crate::lan::vsi::default_properties;
use ringside_spec::lan::admin::vsi::kind;

pub(super) const STAGE: Stage = Stage {
    name: "vsi",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let admin = context.admin()?;
    let properties = default_properties(context.facts.switch()?.switch_id, context.facts.vlan_mode);
    let undo = context.record(Undo::FreeVsi { number: None });
    let number = admin.add_vsi(kind::PHYSICAL_FUNCTION, &properties)?;
    context.amend(
        undo,
        Undo::FreeVsi {
            number: Some(number),
        },
    );
    context.facts.vsi = Some(number);
    Ok(())
}
