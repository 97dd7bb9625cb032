//! `vsi-rdma-filter`: RDMA packets of the VSI go to the RDMA engine.
//!
//! Source: ice `ice_idc.c`, `ice_rdma_update_vsi_filter`.

use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use crate::lan::vsi::rdma_filters;

pub(super) const STAGE: Stage = Stage {
    name: "vsi-rdma-filter",
    needs: Needs::Rdma,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let vsi = context.facts.vsi()?;
    let _ = context.record(Undo::DisableRdmaFilters { vsi });
    Ok(context.admin()?.update_vsi(vsi, &rdma_filters(true))?)
}
