//! `protocol-engine`: the RDMA engine has been loaded and its processors run.
//!
//! Source: irdma `ctrl.c`, `irdma_sc_dev_init` and `irdma_wait_pe_ready`.

use crate::bring_up::{Context, Needs, Stage, StageError};
use ringside_spec::lan::registers::reset::{FLASH_LOAD_DONE, FLASH_LOAD_DONE_RDMA, FlashLoadDone};
use ringside_spec::rdma::registers::{BAR_CONTROL, BarControl, CPU_STATUS, CPU_STATUS_READY};
use std::time::Duration;

pub(super) const STAGE: Stage = Stage {
    name: "protocol-engine",
    needs: Needs::Rdma,
    run,
};

const STEP: Duration = Duration::from_millis(1);

fn run(context: &mut Context) -> Result<(), StageError> {
    let limit_ms = context.config().device.ready_deadline_ms;
    let limit = Duration::from_millis(limit_ms);
    let registers = context.registers();
    let loaded = |value: u32| FlashLoadDone(value & FLASH_LOAD_DONE_RDMA).protocol_engine();
    let polled = registers.poll(FLASH_LOAD_DONE, limit, STEP, loaded)?;
    if !polled.ready {
        return Err(StageError::NotReady {
            what: "the RDMA engine has not been loaded (GLNVM_ULD, PE_DONE)",
            offset: FLASH_LOAD_DONE,
            value: polled.value,
            waited_ms: limit_ms,
            remedy: "power-cycle the card, or disable RDMA in the device's setup",
        });
    }
    for offset in CPU_STATUS {
        let ready = |value| value == CPU_STATUS_READY;
        let polled = registers.poll(offset, limit, STEP, ready)?;
        if !polled.ready {
            return Err(StageError::NotReady {
                what: "a processor of the RDMA engine does not run (GLPE_CPUSTATUS0 to 2)",
                offset,
                value: polled.value,
                waited_ms: limit_ms,
                remedy: "power-cycle the card, or update its firmware",
            });
        }
    }
    let control = BarControl(registers.read(BAR_CONTROL)?);
    match control.pe_doorbell_size() {
        1 | 2 => Ok(()),
        size => Err(StageError::Unusable {
            what: format!(
                "the doorbell space has no size that is known (GLPCI_LBARCTRL {:#x}, PE_DB_SIZE {size})",
                control.0
            ),
            remedy: "update the firmware".to_owned(),
        }),
    }
}
