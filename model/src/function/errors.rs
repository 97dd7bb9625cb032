//! Errors of the RDMA engine that happen once: what its registers then say, and the cause raised.

use super::FunctionModel;
use crate::faults::Fault;
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
            Fault::ProtocolEngineStall => {
                self.rdma.stall();
                return true;
            }
            _ => return false,
        };
        self.interrupts.raise_other(causes.0, &mut self.registers);
        true
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
