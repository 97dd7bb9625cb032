//! `firmware-ready`: everything that the LAN half needs has been loaded from flash.
//!
//! Source: ice `ice_common.c`, `ice_check_reset`; `ice_nvm.c`, `ice_init_nvm`.

use crate::bring_up::reset;
use crate::bring_up::{Context, Needs, Stage, StageError};
use ringside_spec::lan::registers::reset::{
    FIRMWARE_STATUS, FLASH_ACCESS, FLASH_GENERAL, FirmwareStatus, FlashAccess, FlashGeneral,
};
use std::time::Duration;

pub(super) const STAGE: Stage = Stage {
    name: "firmware-ready",
    needs: Needs::Device,
    run,
};

const STEP: Duration = Duration::from_millis(1);

fn run(context: &mut Context) -> Result<(), StageError> {
    reset::wait_for_device(context.registers())?;
    let limit_ms = context.config().device.ready_deadline_ms;
    let limit = Duration::from_millis(limit_ms);
    let registers = context.registers();
    reset::wait_for_load(registers, limit)?;
    let flash = FlashAccess(registers.read(FLASH_ACCESS)?);
    let general = FlashGeneral(registers.read(FLASH_GENERAL)?);
    if !flash.locked() || !general.present() {
        return Err(StageError::Unusable {
            what: format!(
                "the flash is blank (GLNVM_FLA {:#x}, GLNVM_GENS {:#x})",
                flash.0, general.0
            ),
            remedy: "write a firmware image with the maker's tool".to_owned(),
        });
    }
    let polled = registers.poll(FIRMWARE_STATUS, limit, STEP, |value| {
        !FirmwareStatus(value).loading()
    })?;
    if !polled.ready {
        return Err(StageError::NotReady {
            what: "the firmware is still loading (GL_MNG_FWSM)",
            offset: FIRMWARE_STATUS,
            value: polled.value,
            waited_ms: limit_ms,
            remedy: "raise device.ready_deadline_ms, or power-cycle the card",
        });
    }
    let modes = FirmwareStatus(polled.value).modes();
    if modes != 0 {
        context.warn(format!(
            "the firmware is in a special mode (debug, recovery or rollback; GL_MNG_FWSM mode {modes}): update it"
        ));
    }
    Ok(())
}
