//! `rdma-addresses`: the device's table of MAC addresses gets the function's own. From here on
//! verbs are served.
//!
//! Source: irdma `hw.c`, `irdma_manage_arp_cache`.

use crate::bring_up::{Context, Needs, RdmaUndo, Stage, StageError, Undo};

pub(super) const STAGE: Stage = Stage {
    name: "rdma-addresses",
    needs: Needs::Rdma,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    let mac = engine.facts.mac;
    let _ = context.record(Undo::Rdma(RdmaUndo::DeleteAddress { mac }));
    engine.state().take_address(mac)?;
    let _ = context.record(Undo::Rdma(RdmaUndo::DestroyObjects));
    engine.start_statistics()?;
    Ok(())
}
