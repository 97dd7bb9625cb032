//! `rdma-completion-events`: the event queues of completion queues, each with an MSI-X vector of
//! its own where the function has enough vectors.
//!
//! Source: irdma `hw.c`, `irdma_setup_ceq_0`, `irdma_setup_ceqs`.

use crate::bring_up::{Context, Needs, RdmaUndo, Stage, StageError, Undo};
use crate::control::ControlError;
use crate::rdma::RdmaStageError;
use crate::rdma::engine::Engine;
use crate::rdma::event_vectors::{CompletionEventQueue, possible};
use ringside_cq::EventRing;
use ringside_spec::rdma::commands::{CreateCompletionEventQueue, DestroyCompletionEventQueue};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{COMPLETION_EVENT_BYTES, EVENT_RING_ALIGNMENT, MAX_CEQ_ENTRIES};
use std::collections::BTreeSet;

pub(super) const STAGE: Stage = Stage {
    name: "rdma-completion-events",
    needs: Needs::Rdma,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    let asked = context.config().event_queues();
    let device = context.facts.rdma.event_queues;
    let vectors = context.granted_vectors()?;
    let queues = possible(asked, device, vectors);
    if queues < asked {
        context.warn(format!(
            "{queues} completion event queues of the {asked} that were requested: the device has \
             {device}, and {vectors} vectors, one of them for events and failures; workers beyond \
             that share them"
        ));
    }
    // One entry for each completion queue: none reports twice without being acknowledged, and each
    // of them may report to the same event queue.
    let entries = context
        .facts
        .rdma
        .granted(ObjectType::CompletionQueue)
        .clamp(1, MAX_CEQ_ENTRIES);
    let _ = context.record(Undo::Rdma(RdmaUndo::DestroyCompletionEvents));
    for number in 0..queues {
        create(&engine, number, entries)?;
    }
    Ok(())
}

fn create(engine: &Engine, number: u16, entries: u32) -> Result<(), StageError> {
    let bytes = entries as usize * COMPLETION_EVENT_BYTES;
    let buffer = engine.pool.allocate(bytes, EVENT_RING_ALIGNMENT)?;
    let ring = buffer.words().part(0..bytes / 8).map(EventRing::new);
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
        ceq_number: number,
        ..CreateCompletionEventQueue::ZERO
    };
    let mut state = engine.state();
    state.made.completion_events.push(CompletionEventQueue {
        ring,
        buffer,
        entries,
        taken: 0,
        ahead: BTreeSet::new(),
    });
    let created = state.execute(command);
    if created.as_ref().is_err_and(ControlError::is_refusal) {
        state.made.completion_events.pop();
    }
    created.map_err(RdmaStageError::from)?;
    Ok(())
}

/// Destroys all of them, the one with the highest number first. The device may still write to one
/// whose destruction it did not confirm: its memory is given up.
pub(in crate::bring_up) fn destroy(engine: &Engine) -> Result<(), RdmaStageError> {
    let mut state = engine.state();
    let mut result = Ok(());
    while let Some(queue) = state.made.completion_events.pop() {
        let number = state.made.completion_events.len();
        let destroyed = state.execute(DestroyCompletionEventQueue {
            size_entries: queue.entries,
            ceq_number: u16::try_from(number).unwrap_or(u16::MAX),
            ..DestroyCompletionEventQueue::ZERO
        });
        if destroyed.is_err() {
            queue.buffer.leak();
        }
        result = result.and(destroyed.map(|_| ()));
    }
    Ok(result?)
}
