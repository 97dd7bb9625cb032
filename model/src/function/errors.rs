//! Errors of the RDMA engine that happen once: the values of its registers, and the cause raised.

use super::FunctionModel;
use crate::device::{Reply, Request};
use crate::faults::Fault;
use crate::reset_kind::ResetKind;
use ringside_bus::{DmaSpace, Instant};
use ringside_spec::rdma::registers::{
    CRITICAL_ERROR, HMC_ERROR_DATA, HMC_ERROR_INFO, HmcErrorInfo, OtherCauses,
};

ringside_spec::words! {
    /// PFHMC_ERRORDATA.
    struct HmcErrorData: u32 {
        data: [29:0],
    }

    /// Widths of the fields that an injected error fills.
    struct ErrorKind: u8 {
        kind: [3:0],
    }

    struct ErrorObject: u8 {
        object: [4:0],
    }
}

impl FunctionModel {
    /// Lets a fault happen that is over once it has; false for one that stays in force.
    #[cold]
    pub(super) fn happens_once(&mut self, fault: Fault) -> bool {
        let causes = match fault {
            Fault::HmcError { kind, object, data } => {
                self.keep_hmc_error(kind, object, data);
                OtherCauses::ZERO.with_hmc_error(true)
            }
            Fault::CriticalError { code } => {
                self.registers.set(CRITICAL_ERROR, code);
                OtherCauses::ZERO.with_critical_error(true)
            }
            Fault::Reset(kind) => {
                self.foreign_reset = Some(kind);
                return true;
            }
            Fault::ProtocolEngineStall => {
                self.rdma.stall();
                return true;
            }
            Fault::EngineEvent {
                code,
                source,
                queue_number,
            } => {
                self.rdma.inject_event(code, source, queue_number);
                return true;
            }
            _ => return false,
        };
        self.interrupts.raise_other(causes.0, &mut self.registers);
        true
    }

    /// The immediate effect of a lasting fault.
    #[cold]
    pub(super) fn fault_began(&mut self, fault: Fault) {
        match fault {
            Fault::FunctionDead => {
                self.dead = true;
                self.ledger.excuse(true);
            }
            Fault::InterruptsLost { per_million, seed } => {
                self.interrupts.lose(per_million, seed);
            }
            _ => {}
        }
    }

    /// And when it ends.
    #[cold]
    pub(super) fn fault_ended(&mut self, fault: Fault) {
        match fault {
            Fault::FunctionDead => {
                self.dead = false;
                self.foreign_reset = Some(ResetKind::Firmware);
            }
            Fault::InterruptsLost { .. } => self.interrupts.lose(0, 0),
            _ => {}
        }
    }

    /// Performs the reset that another owner requested.
    #[inline]
    pub(super) fn reset_by_another(&mut self, now: Instant) -> bool {
        let Some(kind) = self.foreign_reset else {
            return false;
        };
        self.foreign_reset = None;
        let package = self.firmware.package();
        self.begin_reset(kind, now);
        // An owner that resets a shared card downloads its package again.
        self.firmware.set_package(package);
        self.ledger.excuse(true);
        true
    }

    /// A reset sets a firmware going that stood still.
    pub(super) fn end_stall_of_firmware(&mut self) {
        self.faults.retain(|fault| *fault != Fault::FirmwareStall);
    }

    /// Returns the bus's answer for a function that does not respond; otherwise the request. Memory
    /// and vectors belong to the host and are still served.
    #[inline]
    pub(super) fn answer_of_the_dead(&self, request: Request) -> Result<Reply, Request> {
        if !self.dead {
            return Err(request);
        }
        Ok(match request {
            Request::ConfigRead { length, .. } => Reply::Bytes(vec![0xFF; length.into()]),
            Request::RegisterRead { width: 8, .. } => Reply::Value(u64::MAX),
            Request::RegisterRead { .. } => Reply::Value(u32::MAX.into()),
            Request::ConfigWrite { .. } | Request::RegisterWrite { .. } | Request::Reset => {
                Reply::Done
            }
            Request::Bar { .. }
            | Request::MapDma { .. }
            | Request::UnmapDma { .. }
            | Request::InterruptVectors
            | Request::SetInterrupts { .. }
            | Request::SetReleaseEvent { .. } => return Err(request),
        })
    }

    /// Refuses a mapping beyond the limit of a fault.
    pub(super) fn refuse_mapping(&self, space: &DmaSpace, length: u64) -> Option<Reply> {
        let limit = self.faults.iter().find_map(|fault| match fault {
            Fault::MappedMemoryAtMost { bytes } => Some(*bytes),
            _ => None,
        })?;
        let mapped: u64 = space.mappings().map(|(_, bytes)| bytes).sum();
        let too_much = mapped.checked_add(length).is_none_or(|sum| sum > limit);
        too_much.then(|| {
            Reply::Refused(format!(
                "{length:#x} bytes more than the {mapped:#x} mapped: only {limit:#x} may be"
            ))
        })
    }

    /// The first error stays until a driver has cleared it.
    fn keep_hmc_error(&mut self, kind: u8, object: u8, data: u32) {
        if HmcErrorInfo(self.registers.get(HMC_ERROR_INFO)).detected() {
            return;
        }
        let info = HmcErrorInfo::ZERO
            .with_function_index(self.settings.pci_function.into())
            .with_error_type(ErrorKind(kind).kind().into())
            .with_object_type(ErrorObject(object).object().into())
            .with_detected(true);
        let data = HmcErrorData::ZERO.with_data(HmcErrorData(data).data());
        self.registers.set(HMC_ERROR_INFO, info.0);
        self.registers.set(HMC_ERROR_DATA, data.0);
    }
}

#[cfg(test)]
mod tests;
