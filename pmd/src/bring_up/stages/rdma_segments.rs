//! `rdma-segments`: memory behind the objects that the device may read at any time.
//!
//! Source: irdma `hw.c`, `irdma_create_hmc_objs`.

use crate::bring_up::Missing;
use crate::bring_up::{Context, Needs, RdmaUndo, Stage, StageError, Undo};
use crate::rdma::RdmaStageError;
use crate::rdma::engine::Engine;

pub(super) const STAGE: Stage = Stage {
    name: "rdma-segments",
    needs: Needs::Rdma,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    let _ = context.record(Undo::Rdma(RdmaUndo::ClearSegments));
    let mut memory = engine.memory();
    let Some(memory) = &mut *memory else {
        let (what, stage) = ("the sizes of the host memory cache", "rdma-sizing");
        return Err(Missing { what, stage }.into());
    };
    let brought = memory.bring_static(&engine.control);
    Ok(brought.map_err(RdmaStageError::from)?)
}

pub(in crate::bring_up) fn clear(engine: &Engine) -> Result<(), RdmaStageError> {
    let Some(mut memory) = engine.memory().take() else {
        return Ok(());
    };
    match memory.clear(&engine.control) {
        Ok(()) => Ok(()),
        Err(error) => {
            memory.abandon();
            Err(error.into())
        }
    }
}
