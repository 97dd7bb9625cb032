//! The registers that show if a device is in service.

use crate::Registers;
use crate::failure::FailureCause;
use ringside_bus::{FunctionError, Instant};
use ringside_spec::lan::registers::control_queues::{MAILBOX_SEND, RingLength};
use ringside_spec::lan::registers::interrupts::{OTHER_CAUSES, OtherCauses};
use ringside_spec::lan::registers::reset::{RESET_STATUS, ResetStatus};
use ringside_spec::rdma::registers::{
    CQP_STATUS, CRITICAL_ERROR, CRITICAL_ERROR_Q1_RESOURCE, CqpStatus, HMC_ERROR_DATA,
    HMC_ERROR_INFO, HmcErrorInfo,
};
use std::time::Duration;

/// The number of resets of a device when its period of service begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Baseline {
    status: ResetStatus,
    /// a mark was left that a reset of the function wipes out
    marked: bool,
}

/// The mark: a length of the mailbox's ring, which is unused and stays off. A reset of the function
/// clears it. Source: [`MAILBOX_SEND`].
const MARK: u32 = RingLength::ZERO.with_entries(1).0;

impl Baseline {
    /// Reads the present state; earlier causes are discarded.
    pub(crate) fn take(registers: &Registers) -> Result<Self, FunctionError> {
        registers.read_quietly(OTHER_CAUSES)?;
        Ok(Self {
            status: ResetStatus(registers.read_quietly(RESET_STATUS)?),
            marked: false,
        })
    }

    /// Leaves a mark by which a reset of the function alone shows: for a device without a control
    /// queue pair, which shows it otherwise. False if the device does not keep it.
    pub(crate) fn mark(&mut self, registers: &Registers) -> Result<bool, FunctionError> {
        registers.write(MAILBOX_SEND.length, MARK)?;
        self.marked = registers.read(MAILBOX_SEND.length)? == MARK;
        Ok(self.marked)
    }

    /// A reset of the device since then, or one that is under way.
    fn reset(self, now: ResetStatus) -> Option<FailureCause> {
        let before = self.status;
        if now.firmware_count() != before.firmware_count() {
            Some(FailureCause::FirmwareReset)
        } else if now.global_count() != before.global_count() {
            Some(FailureCause::GlobalReset)
        } else if now.core_count() != before.core_count() || now.device_state() != 0 {
            Some(FailureCause::CoreReset)
        } else {
            None
        }
    }
}

/// The result of a look at the registers of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is in service.
    InService,
    /// It failed.
    Failed(FailureCause),
    /// A read was not answered within the deadline of the backend.
    Unanswered,
}

/// Reads the registers that report a failed device; `None` if it is in service. `control_queue`: it
/// has a control queue pair.
pub(crate) fn look(
    registers: &Registers,
    baseline: Baseline,
    control_queue: bool,
) -> Option<FailureCause> {
    match look_in_time(registers, baseline, control_queue) {
        Look::InService => None,
        Look::Failed(cause) => Some(cause),
        // A backend that does not answer is as good as a device that does not.
        Look::Unanswered => Some(FailureCause::Gone),
    }
}

/// The same, with the difference between a device that is gone and one that may answer later.
pub(crate) fn look_in_time(registers: &Registers, baseline: Baseline, control_queue: bool) -> Look {
    match try_look(registers, baseline, control_queue) {
        Ok(None) => Look::InService,
        Ok(Some(cause)) => Look::Failed(cause),
        Err(FunctionError::TimedOut { .. }) => Look::Unanswered,
        Err(_) => Look::Failed(FailureCause::Gone),
    }
}

/// A thread that waits for an answer of the RDMA engine, and reads registers now and then which
/// show that none will come. A read of them clears nothing.
pub(crate) struct Lookout {
    /// none: it reads nothing
    baseline: Option<Baseline>,
    next: Instant,
}

impl Lookout {
    /// The interval between two looks, and before the first: most answers come sooner.
    const STEP: Duration = Duration::from_millis(5);

    pub(crate) fn new(registers: &Registers, baseline: Option<Baseline>) -> Self {
        let next = registers.clock().now().plus(Self::STEP);
        Self { baseline, next }
    }

    /// The cause if the device was reset, or does not respond.
    pub(crate) fn look(&mut self, registers: &Registers) -> Option<FailureCause> {
        let now = registers.clock().now();
        let baseline = self.baseline.filter(|_| now >= self.next)?;
        self.next = now.plus(Self::STEP);
        let seen = || -> Result<_, FunctionError> {
            let status = ResetStatus(registers.read_quietly(RESET_STATUS)?);
            if let Some(cause) = baseline.reset(status) {
                return Ok(Some(cause));
            }
            let alive = CqpStatus(registers.read_quietly(CQP_STATUS)?).done();
            Ok((!alive).then_some(FailureCause::FunctionReset))
        };
        seen().unwrap_or(Some(FailureCause::Gone))
    }
}

fn try_look(
    registers: &Registers,
    baseline: Baseline,
    control_queue: bool,
) -> Result<Option<FailureCause>, FunctionError> {
    let status = ResetStatus(registers.read_quietly(RESET_STATUS)?);
    if let Some(cause) = baseline.reset(status) {
        return Ok(Some(cause));
    }
    let causes = OtherCauses(registers.read_quietly(OTHER_CAUSES)?);
    if causes.host_memory_cache_error() {
        let info = HmcErrorInfo(registers.read_quietly(HMC_ERROR_INFO)?);
        return Ok(Some(FailureCause::HostMemoryCache {
            error_type: info.error_type() as u8,
            object_type: info.object_type() as u8,
            data: registers.read_quietly(HMC_ERROR_DATA)?,
        }));
    }
    if causes.protocol_engine_critical() {
        let code = registers.read_quietly(CRITICAL_ERROR)?;
        if code != CRITICAL_ERROR_Q1_RESOURCE {
            return Ok(Some(FailureCause::CriticalError { code }));
        }
        tracing::warn!(code, "the RDMA engine warns of its Q1 resources");
    }
    if causes.memory_error() {
        return Ok(Some(FailureCause::MemoryError));
    }
    if causes.pci_exception() {
        return Ok(Some(FailureCause::PciException));
    }
    let gone = match control_queue {
        true => !CqpStatus(registers.read_quietly(CQP_STATUS)?).done(),
        false => baseline.marked && registers.read_quietly(MAILBOX_SEND.length)? != MARK,
    };
    Ok(gone.then_some(FailureCause::FunctionReset))
}
