//! Reset of the physical function.

use super::StageError;
use crate::Registers;
use ringside_bus::FunctionError;
use ringside_spec::lan::registers::reset::{
    FLASH_LOAD_DONE, FLASH_LOAD_DONE_LAN, FUNCTION_CONTROL, FunctionControl, RESET_CONTROL,
    RESET_STATUS, ResetControl, ResetStatus,
};
use std::time::Duration;

/// The time between two reads of a register.
pub(crate) const STEP: Duration = Duration::from_millis(1);

/// Triggers a reset of the function and waits until the device reports that it is done. To be
/// called when the device has loaded from its flash.
pub(crate) fn trigger_and_wait(registers: &Registers, limit: Duration) -> Result<(), StageError> {
    let control = FunctionControl(registers.read(FUNCTION_CONTROL)?);
    registers.write(FUNCTION_CONTROL, control.with_software_reset(true).0)?;
    let polled = registers.poll(FUNCTION_CONTROL, limit, STEP, |value| {
        !FunctionControl(value).software_reset()
    })?;
    if polled.ready {
        return Ok(());
    }
    Err(StageError::NotReady {
        what: "the reset of the function (PFGEN_CTRL) does not end",
        offset: FUNCTION_CONTROL,
        value: polled.value,
        waited_ms: milliseconds(limit),
        remedy: "another function may hold the device; raise device.reset_deadline_ms, or power-cycle the card",
    })
}

/// Waits until no reset of the whole device is in progress; true if there was one.
pub(crate) fn wait_for_device(registers: &Registers) -> Result<bool, StageError> {
    let operational = |value| ResetStatus(value).device_state() == 0;
    if operational(registers.read(RESET_STATUS)?) {
        return Ok(false);
    }
    let delay = ResetControl(registers.read(RESET_CONTROL)?).delay_100ms();
    let limit = Duration::from_millis(100) * (delay + 10);
    let polled = registers.poll(RESET_STATUS, limit, STEP, operational)?;
    if polled.ready {
        return Ok(true);
    }
    Err(StageError::NotReady {
        what: "a reset of the whole device (GLGEN_RSTAT) does not end",
        offset: RESET_STATUS,
        value: polled.value,
        waited_ms: milliseconds(limit),
        remedy: "power-cycle the card",
    })
}

/// True if everything that the LAN half needs has been loaded from the flash: a reset of the whole
/// device ends with that, after the device state is operational again.
pub(crate) fn is_loaded(registers: &Registers) -> Result<bool, FunctionError> {
    Ok(has_loaded(registers.read(FLASH_LOAD_DONE)?))
}

fn has_loaded(value: u32) -> bool {
    value & FLASH_LOAD_DONE_LAN == FLASH_LOAD_DONE_LAN
}

/// Waits until the device has loaded from its flash.
pub(crate) fn wait_for_load(registers: &Registers, limit: Duration) -> Result<(), StageError> {
    let polled = registers.poll(FLASH_LOAD_DONE, limit, STEP, has_loaded)?;
    if polled.ready {
        return Ok(());
    }
    Err(StageError::NotReady {
        what: "the device has not loaded everything from its flash (GLNVM_ULD)",
        offset: FLASH_LOAD_DONE,
        value: polled.value,
        waited_ms: milliseconds(limit),
        remedy: "power-cycle the card; if that does not help, its flash is damaged",
    })
}

/// Whole milliseconds.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
