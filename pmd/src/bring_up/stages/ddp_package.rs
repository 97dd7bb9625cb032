//! `ddp-package`: the package of the packet pipeline is active, or the device is in safe mode.

use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use crate::ddp::{self, PackageState};
use ringside_spec::lan::registers::reset::{PRE_EXTRACTION_MASK_0, PRE_EXTRACTION_MASK_1};

pub(super) const STAGE: Stage = Stage {
    name: "ddp-package",
    needs: Needs::Device,
    run,
};

/// Input words of the switch block, 48 bits in two registers.
/// Source: ice `ice_ddp.c`, `ice_init_pkg_regs` (`ICE_SW_BLK_INP_MASK_L`, `_H`).
const INPUT_MASKS: [(u64, u32); 2] = [
    (PRE_EXTRACTION_MASK_0, 0xFFFF_FFFF),
    (PRE_EXTRACTION_MASK_1, 0x0000_FFFF),
];

fn run(context: &mut Context) -> Result<(), StageError> {
    let package = ddp::load(context)?;
    match &package.state {
        PackageState::SafeMode(reason) => {
            let text = format!("safe mode, one queue and no RDMA: {reason}");
            if context.config().ddp.require {
                return Err(StageError::Unusable {
                    what: format!("ddp.require is set and no package is active: {reason}"),
                    remedy: "install the package, or set ddp.require to false for safe mode"
                        .to_owned(),
                });
            }
            context.warn(text.clone());
            context.facts.rdma_unavailable = Some(text);
        }
        PackageState::Downloaded | PackageState::AlreadyLoaded => set_input_masks(context)?,
    }
    context.facts.package = Some(package);
    Ok(())
}

fn set_input_masks(context: &mut Context) -> Result<(), StageError> {
    for (offset, wanted) in INPUT_MASKS {
        let found = context.registers().read_quietly(offset)?;
        if found == wanted {
            continue;
        }
        let _ = context.record(Undo::RestoreRegister { offset, found });
        context.registers().write(offset, wanted)?;
    }
    Ok(())
}
