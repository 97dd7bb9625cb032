//! `rdma-completion-events`: the event queue in which completion queues report.
//!
//! Source: irdma `hw.c`, `irdma_setup_ceq_0`.

use crate::bring_up::{Context, Needs, RdmaUndo, Stage, StageError, Undo};
use crate::control::ControlError;
use crate::rdma::RdmaStageError;
use crate::rdma::engine::{CompletionEvents, Engine};
use ringside_cq::EventRing;
use ringside_spec::rdma::commands::{CreateCompletionEventQueue, DestroyCompletionEventQueue};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{COMPLETION_EVENT_BYTES, EVENT_RING_ALIGNMENT, MAX_CEQ_ENTRIES};

pub(super) const STAGE: Stage = Stage {
    name: "rdma-completion-events",
    needs: Needs::Rdma,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    // One entry for each completion queue: none reports twice without being acknowledged.
    let entries = context
        .facts
        .rdma
        .granted(ObjectType::CompletionQueue)
        .clamp(1, MAX_CEQ_ENTRIES);
    let buffer = engine.pool.allocate(
        entries as usize * COMPLETION_EVENT_BYTES,
        EVENT_RING_ALIGNMENT,
    )?;
    let words = entries as usize * COMPLETION_EVENT_BYTES / 8;
    let ring = buffer.words().part(0..words).map(EventRing::new);
    let Some(Ok(ring)) = ring else {
        return Err(StageError::Unusable {
            what: "the ring of completion events has no room for its entries".to_owned(),
            remedy: "this is a bug of the driver".to_owned(),
        });
    };
    let command = CreateCompletionEventQueue {
        size_entries: entries,
        ring_address: buffer.iova().0,
        vsi_number: engine.facts.vsi_number,
        ceq_number: 0,
        ..CreateCompletionEventQueue::ZERO
    };
    let _ = context.record(Undo::Rdma(RdmaUndo::DestroyCompletionEvents));
    let mut state = engine.state();
    state.made.completion_events = Some(CompletionEvents {
        ring,
        buffer,
        entries,
    });
    let created = state.control.execute(command);
    if created.as_ref().is_err_and(ControlError::is_refusal) {
        state.made.completion_events = None;
    }
    created.map_err(RdmaStageError::from)?;
    Ok(())
}

pub(in crate::bring_up) fn destroy(engine: &Engine) -> Result<(), RdmaStageError> {
    let mut state = engine.state();
    let Some(events) = state.made.completion_events.take() else {
        return Ok(());
    };
    let destroyed = state.control.execute(DestroyCompletionEventQueue {
        size_entries: events.entries,
        ceq_number: 0,
        ..DestroyCompletionEventQueue::ZERO
    });
    if let Err(error) = destroyed {
        // The device may still write to it.
        events.buffer.leak();
        return Err(error.into());
    }
    Ok(())
}
