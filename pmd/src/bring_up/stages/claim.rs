//! `claim`: checks that the driver supports this device and can reach its registers.
//!
//! Source: ice `ice_main.c`, `ice_pci_tbl` and `ice_probe`.

use crate::bring_up::{Context, Identity, Needs, Stage, StageError};
use ringside_bus::config_space::ConfigSpace;
use ringside_spec::lan::identity::{REGISTER_BAR, REGISTER_BAR_SIZE_MIN, find};

pub(super) const STAGE: Stage = Stage {
    name: "claim",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let space = ConfigSpace::read(&**context.function())?;
    let Some(model) = find(space.vendor, space.device) else {
        return Err(StageError::Unusable {
            what: format!(
                "PCI device {:04x}:{:04x} is no E810",
                space.vendor, space.device
            ),
            remedy: "`ringside devices` lists the devices that can be driven".to_owned(),
        });
    };
    let bar = context.function().bar(REGISTER_BAR)?;
    if bar.size < REGISTER_BAR_SIZE_MIN {
        return Err(StageError::Unusable {
            what: format!(
                "BAR 0 has {:#x} bytes, and {REGISTER_BAR_SIZE_MIN:#x} are needed",
                bar.size
            ),
            remedy: "check that the system firmware has assigned the BAR (64-bit BARs enabled)"
                .to_owned(),
        });
    }
    context.facts.identity = Some(Identity {
        vendor: space.vendor,
        device: space.device,
        subsystem_vendor: space.subsystem_vendor,
        subsystem: space.subsystem,
        revision: space.revision,
        name: model.name,
        serial_number: space.serial_number,
        function: None,
        bar_bytes: bar.size,
    });
    Ok(())
}
