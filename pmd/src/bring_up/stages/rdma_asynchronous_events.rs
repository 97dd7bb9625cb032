//! `rdma-asynchronous-events`: the event queue in which the RDMA engine reports errors.
//!
//! Source: irdma `hw.c`, `irdma_setup_aeq`.

use crate::bring_up::{Context, Needs, RdmaUndo, Stage, StageError, Undo};
use crate::control::ControlError;
use crate::rdma::RdmaStageError;
use crate::rdma::engine::{AsynchronousEvents, Engine};
use ringside_cq::EventRing;
use ringside_spec::rdma::commands::{CreateAsynchronousEventQueue, DestroyAsynchronousEventQueue};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{
    ASYNCHRONOUS_EVENT_BYTES, EVENT_RING_ALIGNMENT, MAX_AEQ_ENTRIES,
};

pub(super) const STAGE: Stage = Stage {
    name: "rdma-asynchronous-events",
    needs: Needs::Rdma,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    let queues = context
        .facts
        .rdma
        .granted(ObjectType::QueuePair)
        .saturating_add(context.facts.rdma.granted(ObjectType::CompletionQueue));
    let entries = queues.clamp(1, MAX_AEQ_ENTRIES);
    let bytes = entries as usize * ASYNCHRONOUS_EVENT_BYTES;
    let buffer = engine.pool.allocate(bytes, EVENT_RING_ALIGNMENT)?;
    let ring = buffer.words().part(0..bytes / 8).map(EventRing::new);
    let Some(Ok(ring)) = ring else {
        return Err(StageError::Unusable {
            what: "the ring of asynchronous events has no room for its entries".to_owned(),
            remedy: "this is a bug of the driver".to_owned(),
        });
    };
    let command = CreateAsynchronousEventQueue {
        size_entries: entries,
        ring_address: buffer.iova().0,
        ..CreateAsynchronousEventQueue::ZERO
    };
    let _ = context.record(Undo::Rdma(RdmaUndo::DestroyAsynchronousEvents));
    let mut state = engine.state();
    state.made.asynchronous_events = Some(AsynchronousEvents {
        ring,
        buffer,
        entries,
    });
    let created = state.execute(command);
    if created.as_ref().is_err_and(ControlError::is_refusal) {
        state.made.asynchronous_events = None;
    }
    created.map_err(RdmaStageError::from)?;
    Ok(())
}

pub(in crate::bring_up) fn destroy(engine: &Engine) -> Result<(), RdmaStageError> {
    let mut state = engine.state();
    let Some(events) = state.made.asynchronous_events.take() else {
        return Ok(());
    };
    let destroyed = state.execute(DestroyAsynchronousEventQueue {
        size_entries: events.entries,
        ..DestroyAsynchronousEventQueue::ZERO
    });
    if let Err(error) = destroyed {
        // The device may still write to it.
        events.buffer.leak();
        return Err(error.into());
    }
    Ok(())
}
