//! `capabilities`: reads the abilities of device and function.
//!
//! Source: ice `ice_common.c`, `ice_get_caps` and `ice_recalc_port_limited_caps`.

use crate::bring_up::{Context, Needs, Stage, StageError};

pub(super) const STAGE: Stage = Stage {
    name: "capabilities",
    needs: Needs::Device,
    run,
};

/// The most functions with RDMA: with more functions the firmware offers RDMA to none.
const MAX_RDMA_FUNCTIONS: u32 = 4;

fn run(context: &mut Context) -> Result<(), StageError> {
    let found = context.admin()?.capabilities()?;
    let lacking = [
        (found.vsis == 0, "VSIs"),
        (found.receive_queues.count == 0, "receive queues"),
        (found.transmit_queues.count == 0, "transmit queues"),
    ];
    if let Some((_, what)) = lacking.iter().find(|(lacks, _)| *lacks) {
        return Err(StageError::Unusable {
            what: format!("the function has no {what}"),
            remedy: "the device is partitioned so that this function cannot be driven; use another"
                .to_owned(),
        });
    }
    if !found.rdma {
        context.facts.rdma_unavailable = Some(
            "the function has no RDMA capability; enable RDMA in the device's setup".to_owned(),
        );
    } else if found.functions > MAX_RDMA_FUNCTIONS {
        context.facts.rdma_unavailable = Some(format!(
            "the device has {} functions, and RDMA works with at most {MAX_RDMA_FUNCTIONS}",
            found.functions
        ));
    }
    context.facts.capabilities = Some(found);
    Ok(())
}
