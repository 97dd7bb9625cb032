//! `rdma-features`: versions and abilities that the RDMA engine reports.
//!
//! Source: irdma `ctrl.c`, `irdma_get_rdma_features`.

use crate::bring_up::{Context, Needs, Stage, StageError};
use crate::rdma::RdmaStageError;
use crate::rdma::engine::Engine;
use ringside_spec::rdma::commands::QueryFeatures;
use ringside_spec::rdma::features::{Features, FeaturesError};
use ringside_spec::rdma::limits::FEATURE_BUFFER_BYTES;

pub(super) const STAGE: Stage = Stage {
    name: "rdma-features",
    needs: Needs::Rdma,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    let features = match features(&engine, FEATURE_BUFFER_BYTES) {
        // Once more with the room that the list needs, up to a limit.
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
    let asked = engine.control.execute(QueryFeatures {
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
