//! Work that few steps have: resets, and commands of the firmware.

use super::{FunctionModel, lend};
use crate::chip::Context;
use ringside_bus::{DmaSpace, Instant};

impl FunctionModel {
    /// A request may give resets and the firmware something to do.
    pub(super) fn begin_request(&mut self) {
        debug_assert!(!self.lan.holds(), "received frames were not written back");
        self.pending = true;
    }

    /// Computes the tables of the LAN engine anew if a register changed them.
    pub(super) fn refresh_stale(&mut self) {
        if self.stale {
            self.refresh();
        }
    }

    /// Lets resets and the firmware work; true if they did. Steps leave it out until the next
    /// request or fault, once there is nothing left to do.
    #[cold]
    pub(super) fn step_rarely(&mut self, memory: &DmaSpace, now: Instant) -> bool {
        let mut worked = self.reset_by_another(now) | self.end_resets(now);
        if self.firmware.has_work() {
            let mut context = lend!(self, memory, now);
            worked |= self.firmware.step(&mut context);
            self.stale |= self.firmware.take_changed();
        }
        self.refresh_stale();
        self.pending = self.foreign_reset.is_some()
            || self.resets.function_until.is_some()
            || self.resets.device_until.is_some()
            || self.firmware.has_work();
        worked
    }
}
