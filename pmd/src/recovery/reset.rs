//! The reset that makes sure that a failed device has forgotten everything.

use crate::bring_up::reset;
use crate::bring_up::{Context, StageError};
use ringside_bus::FunctionError;
use ringside_bus::config_space::{COMMAND, Command};
use ringside_spec::lan::registers::reset::{
    FUNCTION_CONTROL, FUNCTION_REQUESTER_ID, FunctionControl,
};
use std::time::Duration;

impl Context {
    /// Resets the function in any state, by register or else by the bus, and checks that it was
    /// reset. Bus mastering is off afterwards, and the device has no ring of the admin queue.
    ///
    /// Waits for a reset in progress. Each wait has the deadline of the configuration.
    pub(crate) fn reset_after_failure(&mut self) -> Result<(), StageError> {
        self.recorder().switch(true);
        let result = self.reset_and_silence();
        self.set_silent(result.is_ok());
        result
    }

    fn reset_and_silence(&mut self) -> Result<(), StageError> {
        if let Ok(admin) = self.admin() {
            admin.stop();
        }
        self.without_bus_mastering()?;
        // Also the proof that registers answer.
        reset::wait_for_device(self.registers())?;
        let limit = Duration::from_millis(self.config().device.reset_deadline_ms);
        let over = |value| !FunctionControl(value).software_reset();
        self.registers()
            .poll(FUNCTION_CONTROL, limit, reset::STEP, over)?;
        let ready = Duration::from_millis(self.config().device.ready_deadline_ms);
        reset::wait_for_load(self.registers(), ready)?;
        if let Err(error) = reset::trigger_and_wait(self.registers(), limit) {
            tracing::warn!(%error, "function reset by register failed; resetting by the bus");
            self.function().reset().map_err(|_| error)?;
            self.without_bus_mastering()?;
            self.registers().read(FUNCTION_REQUESTER_ID)?;
        }
        match self.admin() {
            Ok(admin) => Ok(admin.silence_rings()?),
            Err(_) => Ok(()),
        }
    }

    /// Starts the admin queue again after a reset, for the remaining commands to the firmware.
    pub(crate) fn resume_admin(&mut self) -> Result<(), StageError> {
        let Ok(admin) = self.admin() else {
            return Ok(());
        };
        let found = self.read_config16(COMMAND)?;
        let on = Command(found).with_bus_master(true).0;
        self.set_silent(false);
        self.write_config16(COMMAND, found, on)?;
        admin.start()?;
        Ok(admin.get_version().map(|_| ())?)
    }

    /// Memory space on, bus mastering off, read back.
    fn without_bus_mastering(&self) -> Result<(), StageError> {
        let found = self.read_config16(COMMAND)?;
        let gone = || FunctionError::Gone {
            device: self.function().address().clone(),
            reason: "configuration space reads all ones".to_owned(),
        };
        if found == u16::MAX {
            return Err(gone().into());
        }
        let wanted = Command(found)
            .with_memory_space(true)
            .with_bus_master(false);
        self.write_config16(COMMAND, found, wanted.0)?;
        let after = self.read_config16(COMMAND)?;
        if after == u16::MAX {
            return Err(gone().into());
        }
        if Command(after).bus_master() {
            return Err(StageError::Unusable {
                what: "bus mastering is still on after it was taken away".to_owned(),
                remedy: "unplug the device, or power-cycle the machine".to_owned(),
            });
        }
        Ok(())
    }
}
