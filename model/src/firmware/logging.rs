//! The firmware's log: its settings are kept, and there is nothing to log.

use super::command::{Answer, Command, Outcome};
use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::generic::{FIRMWARE_LOG_MODULES, FirmwareLog, FirmwareLogModule};

/// The level of a part that no driver has configured: errors.
const DEFAULT_LEVEL: u8 = 1;

/// Log levels, as the driver set them.
#[derive(Clone, Debug)]
pub(super) struct FirmwareLogging([u8; FIRMWARE_LOG_MODULES as usize]);

impl Default for FirmwareLogging {
    fn default() -> Self {
        Self([DEFAULT_LEVEL; FIRMWARE_LOG_MODULES as usize])
    }
}

impl FirmwareLogging {
    /// Levels of all parts.
    pub(super) fn query(&self, command: &mut Command) -> Outcome {
        for (module, level) in (0u16..).zip(self.0) {
            let entry = FirmwareLogModule {
                module: module.into(),
                level,
                reserved: 0,
            };
            command.put(usize::from(module) * FirmwareLogModule::SIZE, &entry)?;
        }
        let asked: FirmwareLog = command.parameters();
        let answer = FirmwareLog {
            flags: 0,
            resolution: 1.into(),
            module_count: FIRMWARE_LOG_MODULES.into(),
            ..asked
        };
        Ok(Answer {
            parameters: answer.to_raw(),
            length: self.0.len() * FirmwareLogModule::SIZE,
        })
    }

    /// Sets the levels of the parts in the buffer.
    pub(super) fn configure(&mut self, command: &Command) -> Outcome {
        let asked: FirmwareLog = command.parameters();
        for index in 0..usize::from(asked.module_count.get()) {
            let entry: FirmwareLogModule = command.item(index * FirmwareLogModule::SIZE)?;
            let place = self.0.get_mut(usize::from(entry.module.get()));
            *place.ok_or(ReturnCode::Invalid)? = entry.level;
        }
        command.done()
    }
}
