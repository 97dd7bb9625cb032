//! `rdma-control-queue`: the control queue pair, through which the RDMA engine takes commands.
//!
//! Source: irdma `hw.c`, `irdma_create_cqp`.

use crate::bring_up::{Context, Needs, RdmaUndo, Stage, StageError, Undo};
use crate::control::{ControlQueue, ControlQueueSettings};
use crate::rdma::RdmaStageError;
use crate::rdma::address::local_addresses;
use crate::rdma::engine::{Engine, EngineFacts, Parts};
use crate::rdma::gids::Gids;
use ringside_spec::rdma::limits::COMPLETION_BYTES;
use ringside_spec::rdma::registers::{DOORBELL_PAGE, DOORBELL_PAGE_ARM, DOORBELL_PAGE_SEND};
use std::sync::Arc;
use std::time::Duration;

pub(super) const STAGE: Stage = Stage {
    name: "rdma-control-queue",
    needs: Needs::Rdma,
    run,
};

/// Commands that the ring holds.
const COMMANDS: u32 = 128;
/// Entries of the ring of their completions. One entry for each command would make the ring exactly
/// a page, which cards may not handle: see `SLOTS_OF_A_PAGE` in `rdma/completion_queue.rs`.
pub(super) const COMPLETIONS: u32 = 2 * COMMANDS;
const _: () = assert!(COMPLETIONS as usize * COMPLETION_BYTES != 4096);

fn run(context: &mut Context) -> Result<(), StageError> {
    let facts = facts(context)?;
    let registers = context.registers().clone();
    let pool = Arc::clone(context.pool()?);
    let settings = ControlQueueSettings {
        entries: COMMANDS,
        deadline: Duration::from_millis(context.config().deadlines.control_queue_ms),
    };
    let control =
        ControlQueue::prepare(registers.clone(), &pool, settings).map_err(RdmaStageError::from)?;
    let function = Arc::clone(context.function());
    let doorbell = |at: u64| Arc::clone(&function).doorbell(0, DOORBELL_PAGE + at);
    let gids = Gids::new(&local_addresses(&context.config().network, facts.mac));
    context.facts.rdma.addresses = gids.addresses();
    let parts = Parts {
        registers,
        pool,
        facts,
        send_doorbell: doorbell(DOORBELL_PAGE_SEND)?,
        arm_doorbell: doorbell(DOORBELL_PAGE_ARM)?,
        admin: context.admin()?,
        baseline: context.baseline(),
        gids,
        ports: Arc::clone(&context.ports),
        shut_down: Arc::clone(context.shut_down_flag()),
    };
    let carried = context.take_carried();
    let engine = Arc::new(Engine::new(parts, control, carried));
    context.engine = Some(Arc::clone(&engine));
    let _ = context.record(Undo::Rdma(RdmaUndo::DestroyControlQueue));
    let created = engine.control.create();
    Ok(created.map_err(RdmaStageError::from)?)
}

fn facts(context: &Context) -> Result<EngineFacts, StageError> {
    let mac = context.facts.mac()?;
    Ok(EngineFacts {
        function_index: context.facts.function_number()?,
        port: context.facts.switch()?.port,
        vsi_number: context.facts.vsi()?,
        mac,
        path_mtu: context.config().rdma.path_mtu.bytes(),
    })
}

pub(in crate::bring_up) fn destroy(engine: &Engine) -> Result<(), RdmaStageError> {
    let mut state = engine.state();
    state.service.closed = true;
    Ok(engine.control.destroy()?)
}
