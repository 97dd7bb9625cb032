//! `config-space`: link and vectors, memory for the device, and its right to reach it.
//!
//! Source: ice `ice_main.c`, `ice_probe`.

use crate::bring_up::{Bus, Context, Needs, Stage, StageError, Undo};
use ringside_bus::DmaPool;
use ringside_bus::config_space::{COMMAND, Command, ConfigSpace};
use ringside_bus::dma_pool::PoolSettings;
use ringside_bus::memory::PageSize;
use ringside_config::{HugePages, NumaNode};
use ringside_spec::lan::identity::MSIX_VECTORS_MIN;
use ringside_spec::lan::registers::reset::{FUNCTION_REQUESTER_ID, RequesterId};
use std::sync::Arc;

pub(super) const STAGE: Stage = Stage {
    name: "config-space",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let space = ConfigSpace::read(&**context.function())?;
    let found = space.command;
    for line in context.function().attachment() {
        context.recorder().note(line);
    }
    let vectors = check_vectors(context, &space)?;
    check_link(context, &space);
    context.facts.bus = Some(Bus {
        link: space.link.map(|link| link.to_string()),
        best_link: space.best_link.map(|link| link.to_string()),
        vectors,
    });
    // A device that is brought up again still has its memory, and its original values are recorded.
    if context.pool().is_err() {
        let _ = context.record(Undo::RestoreCommand { found: found.0 });
        // Recorded before bus mastering, so that it is undone after bus mastering is off.
        let _ = context.record(Undo::CloseDmaPool);
        let pool = DmaPool::new(Arc::clone(context.function()), pool_settings(context))?;
        context.set_pool(Some(pool));
    }
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
    read_function_number(context)
}

/// Vectors of the MSI-X table. The driver polls and needs none of them; a function without them is
/// no E810, and no other driver could take it over.
fn check_vectors(context: &Context, space: &ConfigSpace) -> Result<u16, StageError> {
    let Some((_, control)) = space.msix else {
        return Err(StageError::Unusable {
            what: "the function has no MSI-X capability".to_owned(),
            remedy: "the device or its emulation is faulty".to_owned(),
        });
    };
    let vectors = control.table_size_minus_one() + 1;
    if control.enable() {
        context
            .recorder()
            .note("MSI-X was found enabled and is left so");
    }
    if vectors < MSIX_VECTORS_MIN {
        return Err(StageError::Unusable {
            what: format!(
                "the function has {vectors} MSI-X vectors, and {MSIX_VECTORS_MIN} are needed"
            ),
            remedy: "the device or its emulation is faulty".to_owned(),
        });
    }
    Ok(vectors)
}

/// Says so if the PCI Express link is slower or narrower than the card could have it.
fn check_link(context: &mut Context, space: &ConfigSpace) {
    let (Some(link), Some(best)) = (space.link, space.best_link) else {
        return;
    };
    let (has, could) = (link.gigabits_per_second(), best.gigabits_per_second());
    if has < could {
        context.warn(format!(
            "the PCI Express link is {link} ({has:.0} Gbit/s) where the card could have {best} ({could:.0} Gbit/s): use another slot, or check the slot's bifurcation"
        ));
    }
}

/// `PF_FUNC_RID`: the first register that is read, so also the sign that registers answer at all.
fn read_function_number(context: &mut Context) -> Result<(), StageError> {
    let requester = context.registers().read(FUNCTION_REQUESTER_ID)?;
    let number = RequesterId(requester).function();
    if let Some(identity) = &mut context.facts.identity {
        identity.function = u8::try_from(number).ok();
    }
    Ok(())
}

/// The configured source of DMA memory.
fn pool_settings(context: &Context) -> PoolSettings {
    let memory = &context.config().memory;
    let (largest_page, exact) = match memory.hugepages {
        HugePages::Auto => (PageSize::OneGiB, false),
        HugePages::OneGib => (PageSize::OneGiB, true),
        HugePages::TwoMib => (PageSize::TwoMiB, true),
        HugePages::None => (PageSize::FourKiB, false),
    };
    let numa_node = match memory.numa_node {
        NumaNode::Auto => context.function().numa_node(),
        NumaNode::Node(node) => Some(node),
    };
    PoolSettings {
        largest_page,
        exact,
        numa_node,
        placement: context.placement(),
    }
}
