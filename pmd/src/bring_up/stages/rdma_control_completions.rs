//! `rdma-control-completions`: the completion queue of the control queue pair.
//!
//! Source: irdma `hw.c`, `irdma_create_ccq`.

use super::rdma_control_queue::COMPLETIONS;
use crate::bring_up::{Context, Needs, RdmaUndo, Stage, StageError, Undo};
use crate::rdma::RdmaStageError;
use crate::rdma::engine::Engine;
use ringside_spec::rdma::commands::{CreateCompletionQueue, DestroyCompletionQueue};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{
    CCQ_SHADOW_ALIGNMENT, COMPLETION_BYTES, EVENT_RING_ALIGNMENT, SHADOW_BYTES,
};

pub(super) const STAGE: Stage = Stage {
    name: "rdma-control-completions",
    needs: Needs::Rdma,
    run,
};

/// Completions after which the device reads the shadow area. Source: irdma `hw.c`,
/// `irdma_create_ccq`.
const CONTROL_SHADOW_THRESHOLD: u32 = 16;

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    let _ = context.record(Undo::Rdma(RdmaUndo::DestroyControlCompletions));
    Ok(start(&engine)?)
}

fn start(engine: &Engine) -> Result<(), RdmaStageError> {
    let bytes = COMPLETIONS as usize * COMPLETION_BYTES;
    let ring = engine.pool.allocate(bytes, EVENT_RING_ALIGNMENT)?;
    let shadow = engine.pool.allocate(SHADOW_BYTES, CCQ_SHADOW_ALIGNMENT)?;
    let mut state = engine.state();
    state.back(ObjectType::CompletionQueue, 0)?;
    let command = CreateCompletionQueue {
        size_entries: COMPLETIONS,
        shadow_read_threshold: CONTROL_SHADOW_THRESHOLD,
        ring_address: ring.iova().0,
        shadow_address: shadow.iova().0,
        vsi_number: engine.facts.vsi_number,
        cq_number: 0,
        ceq_number: 0,
        check_overflow: true,
        ceq_number_valid: true,
        ..CreateCompletionQueue::ZERO
    };
    if !engine
        .control
        .use_completions(ring, COMPLETIONS as usize, shadow)
    {
        return Err(RdmaStageError::Unusable {
            what: "the ring of control completions has no room for its entries".to_owned(),
            remedy: "this is a bug of the driver".to_owned(),
        });
    }
    let created = state.execute(command);
    if let Err(error) = created {
        if error.is_refusal() {
            // It does not exist: its memory is free, and there is nothing to destroy.
            drop(engine.control.drop_completions());
        }
        return Err(error.into());
    }
    Ok(())
}

pub(in crate::bring_up) fn destroy(engine: &Engine) -> Result<(), RdmaStageError> {
    let mut state = engine.state();
    let Some((ring, shadow)) = engine.control.drop_completions() else {
        return Ok(());
    };
    let destroyed = state.execute(DestroyCompletionQueue {
        size_entries: COMPLETIONS,
        shadow_address: shadow.iova().0,
        cq_number: 0,
        ceq_number_valid: true,
        ..DestroyCompletionQueue::ZERO
    });
    if let Err(error) = destroyed {
        ring.leak();
        shadow.leak();
        return Err(error.into());
    }
    Ok(())
}
