//! Checks whether the device of an engine is in service, and ends its service if not.

use super::engine::{Engine, EngineState};
use crate::failure::FailureCause;
use crate::health::{Look, look_in_time};
use std::time::Duration;

/// The interval at which registers are read, however often events are polled.
const PERIOD: Duration = Duration::from_millis(5);

impl Engine {
    /// Ends this period of service if the device shows that it failed. Memory is checked at each
    /// call, registers now and then, or at once if `at_once`.
    pub(crate) fn look_after(&self, state: &mut EngineState, at_once: bool) {
        state.flush_owed();
        if state.service.closed || state.service.end.cause.is_some() {
            return;
        }
        let silent = if self.control.is_stuck() {
            Some(FailureCause::ControlQueueSilent)
        } else if self.admin.has_stopped() {
            Some(FailureCause::FirmwareSilent)
        } else {
            None
        };
        // A silent queue may be the sign of something else, which the registers name.
        let seen = self.look_at_registers(state, at_once || silent.is_some());
        match (seen, silent) {
            (Look::InService, None) => {}
            (Look::Failed(cause), _) | (Look::InService, Some(cause)) => self.fail(state, cause),
            (Look::Unanswered, _) => self.fail_unanswered(state),
        }
    }

    fn look_at_registers(&self, state: &mut EngineState, at_once: bool) -> Look {
        let now = self.registers.clock().now();
        let due = state.service.next_look.is_none_or(|next| now >= next);
        match state.service.baseline {
            Some(baseline) if due || at_once => {
                state.service.next_look = Some(now.plus(PERIOD));
                look_in_time(&self.registers, baseline, true)
            }
            _ => Look::InService,
        }
    }
}
