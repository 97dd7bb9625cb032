//! `rdma-control-completions`, `rdma-features`, `rdma-completion-events` and
//! `rdma-asynchronous-events`: the queues in which the RDMA engine answers and reports.

use super::rdma_control_queue::COMMANDS;
use super::rdma_state::RdmaUndo;
use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use crate::control::ControlError;
use crate::rdma::engine::{AsynchronousEvents, CompletionEvents, Engine};
use crate::rdma::{RdmaError, RdmaStageError};
use ringside_bus::DmaBuffer;
use ringside_cq::EventRing;
use ringside_spec::rdma::commands::{
    CreateAsynchronousEventQueue, CreateCompletionEventQueue, CreateCompletionQueue,
    DestroyAsynchronousEventQueue, DestroyCompletionEventQueue, DestroyCompletionQueue,
    QueryFeatures,
};
use ringside_spec::rdma::features::{Features, FeaturesError};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{
    ASYNCHRONOUS_EVENT_BYTES, CCQ_SHADOW_ALIGNMENT, COMPLETION_BYTES, COMPLETION_EVENT_BYTES,
    EVENT_RING_ALIGNMENT, FEATURE_BUFFER_BYTES, MAX_AEQ_ENTRIES, MAX_CEQ_ENTRIES, SHADOW_BYTES,
};

pub(super) const CONTROL_COMPLETIONS: Stage = Stage {
    name: "rdma-control-completions",
    needs: Needs::Rdma,
    run: create_control_completions,
};

pub(super) const FEATURES: Stage = Stage {
    name: "rdma-features",
    needs: Needs::Rdma,
    run: ask_features,
};

pub(super) const COMPLETION_EVENTS: Stage = Stage {
    name: "rdma-completion-events",
    needs: Needs::Rdma,
    run: create_completion_events,
};

pub(super) const ASYNCHRONOUS_EVENTS: Stage = Stage {
    name: "rdma-asynchronous-events",
    needs: Needs::Rdma,
    run: create_asynchronous_events,
};

/// Completions after which the device reads the shadow area. Source: irdma `hw.c`,
/// `irdma_create_ccq`.
const CONTROL_SHADOW_THRESHOLD: u32 = 16;

fn create_control_completions(context: &mut Context) -> Result<(), StageError> {
    let engine = context.rdma.engine()?;
    let _ = context.record(Undo::Rdma(RdmaUndo::DestroyControlCompletions));
    Ok(start_control_completions(&engine)?)
}

fn start_control_completions(engine: &Engine) -> Result<(), RdmaStageError> {
    let bytes = COMMANDS as usize * COMPLETION_BYTES;
    let ring = engine.pool.allocate(bytes, EVENT_RING_ALIGNMENT)?;
    let shadow = engine.pool.allocate(SHADOW_BYTES, CCQ_SHADOW_ALIGNMENT)?;
    let mut state = engine.state();
    state.back(ObjectType::CompletionQueue, 0)?;
    let command = CreateCompletionQueue {
        size_entries: COMMANDS,
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
    if !state
        .control
        .use_completions(ring, COMMANDS as usize, shadow)
    {
        return Err(RdmaStageError::Unusable {
            what: "the ring of control completions has no room for its entries".to_owned(),
            remedy: "this is a bug of the driver".to_owned(),
        });
    }
    let created = state.control.execute(command);
    if let Err(error) = created {
        if error.is_refusal() {
            // It does not exist: its memory is free, and there is nothing to destroy.
            drop(state.control.drop_completions());
        }
        return Err(error.into());
    }
    Ok(())
}

pub(super) fn destroy_control_completions(engine: &Engine) -> Result<(), RdmaStageError> {
    let mut state = engine.state();
    let Some((ring, shadow)) = state.control.drop_completions() else {
        return Ok(());
    };
    let destroyed = state.control.execute(DestroyCompletionQueue {
        size_entries: COMMANDS,
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

fn ask_features(context: &mut Context) -> Result<(), StageError> {
    let engine = context.rdma.engine()?;
    let features = match features(&engine, FEATURE_BUFFER_BYTES) {
        // Once more with what the list needs, within reason.
        Err(RdmaStageError::Features(FeaturesError::BufferTooSmall { bytes, .. }))
            if bytes <= 4096 =>
        {
            features(&engine, bytes as usize)
        }
        other => other,
    }?;
    context.facts.rdma.features = Some(features);
    Ok(())
}

fn features(engine: &Engine, bytes: usize) -> Result<Features, RdmaStageError> {
    let buffer = engine.pool.allocate(bytes, 256)?;
    let asked = engine.state().control.execute(QueryFeatures {
        buffer_length: bytes as u32,
        buffer_address: buffer.iova().0,
    });
    if let Err(error) = asked {
        buffer.leak();
        return Err(error.into());
    }
    let words = buffer.words();
    let list: Vec<u64> = (0..bytes / 8)
        .map(|index| words.load_acquire(index))
        .collect();
    Ok(Features::decode(&list)?)
}

fn granted(context: &Context, object: ObjectType) -> u32 {
    let layout = context.facts.rdma.layout.as_ref();
    layout.map_or(0, |layout| layout.count(object))
}

fn create_completion_events(context: &mut Context) -> Result<(), StageError> {
    let engine = context.rdma.engine()?;
    // One entry for each completion queue: none reports twice without being acknowledged.
    let entries = granted(context, ObjectType::CompletionQueue).clamp(1, MAX_CEQ_ENTRIES);
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
    state.completion_events = Some(CompletionEvents {
        ring,
        buffer,
        entries,
    });
    let created = state.control.execute(command);
    if created.as_ref().is_err_and(ControlError::is_refusal) {
        state.completion_events = None;
    }
    created.map_err(RdmaStageError::from)?;
    Ok(())
}

pub(super) fn destroy_completion_events(engine: &Engine) -> Result<(), RdmaStageError> {
    let mut state = engine.state();
    let Some(events) = state.completion_events.take() else {
        return Ok(());
    };
    let destroyed = state.control.execute(DestroyCompletionEventQueue {
        size_entries: events.entries,
        ceq_number: 0,
        ..DestroyCompletionEventQueue::ZERO
    });
    keep_unless(destroyed.is_ok(), events.buffer);
    destroyed?;
    Ok(())
}

fn create_asynchronous_events(context: &mut Context) -> Result<(), StageError> {
    let engine = context.rdma.engine()?;
    let queues = granted(context, ObjectType::QueuePair)
        .saturating_add(granted(context, ObjectType::CompletionQueue));
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
    state.asynchronous_events = Some(AsynchronousEvents {
        ring,
        buffer,
        entries,
    });
    let created = state.control.execute(command);
    if created.as_ref().is_err_and(ControlError::is_refusal) {
        state.asynchronous_events = None;
    }
    created.map_err(RdmaStageError::from)?;
    Ok(())
}

pub(super) fn destroy_asynchronous_events(engine: &Engine) -> Result<(), RdmaStageError> {
    let mut state = engine.state();
    let Some(events) = state.asynchronous_events.take() else {
        return Ok(());
    };
    let destroyed = state.control.execute(DestroyAsynchronousEventQueue {
        size_entries: events.entries,
        ..DestroyAsynchronousEventQueue::ZERO
    });
    keep_unless(destroyed.is_ok(), events.buffer);
    destroyed?;
    Ok(())
}

/// Memory goes back once the device has let go of it.
fn keep_unless(confirmed: bool, buffer: DmaBuffer) {
    if !confirmed {
        buffer.leak();
    }
}

impl From<RdmaError> for StageError {
    fn from(error: RdmaError) -> Self {
        Self::Rdma(error.into())
    }
}
