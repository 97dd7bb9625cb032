//! `config-space`: memory for the device, and the right to reach it.

use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use ringside_bus::DmaPool;
use ringside_bus::config_space::{COMMAND, Command, ConfigSpace};
use ringside_bus::dma_pool::PoolSettings;
use ringside_bus::memory::PageSize;
use ringside_config::{HugePages, NumaNode};
use std::sync::Arc;

pub(super) const STAGE: Stage = Stage {
    name: "config-space",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let space = ConfigSpace::read(&**context.function())?;
    let found = space.command;
    let _ = context.record(Undo::RestoreCommand { found: found.0 });
    // Recorded before bus mastering, so that it is undone after bus mastering is off.
    let _ = context.record(Undo::CloseDmaPool);
    let pool = DmaPool::new(Arc::clone(context.function()), pool_settings(context))?;
    context.set_pool(Some(pool));
    let _ = context.record(Undo::DisableBusMastering);
    let wanted = found.with_memory_space(true).with_bus_master(true);
    context.set_silent(false);
    context.write_config16(COMMAND, found.0, wanted.0)?;
    let after = Command(context.read_config16(COMMAND)?);
    if !after.bus_master() || !after.memory_space() {
        return Err(StageError::Unusable {
            what: format!("the PCI command register reads {:#06x} after {:#06x} was written", after.0, wanted.0),
            remedy: "the function does not take bus mastering or memory space; check that it is bound to vfio-pci and not in a reset".to_owned(),
        });
    }
    Ok(())
}

/// Where the configuration wants DMA memory to come from.
fn pool_settings(context: &Context) -> PoolSettings {
    let memory = &context.config().memory;
    let (largest_page, exact) = match memory.hugepages {
        HugePages::Auto => (PageSize::OneGiB, false),
        HugePages::OneGib => (PageSize::OneGiB, true),
        HugePages::TwoMib => (PageSize::TwoMiB, true),
        HugePages::None => (PageSize::FourKiB, false),
    };
    let numa_node = match memory.numa_node {
        NumaNode::Auto => None,
        NumaNode::Node(node) => Some(node),
    };
    PoolSettings {
        largest_page,
        exact,
        numa_node,
    }
}
