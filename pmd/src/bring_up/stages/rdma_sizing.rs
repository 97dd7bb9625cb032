//! `rdma-sizing`: the host memory cache, sized for the configured numbers of objects.
//!
//! Source: irdma `hw.c`, `irdma_hmc_setup`; `ctrl.c`, `irdma_cfg_fpm_val`.

use crate::bring_up::{Context, Needs, Stage, StageError};
use crate::rdma::RdmaStageError;
use crate::rdma::address::ArpTable;
use crate::rdma::engine::Engine;
use crate::rdma::host_memory::HostMemory;
use crate::rdma::numbers::Numbers;
use crate::rdma::objects::{Objects, RestedNumbers, Table};
use crate::trace::Exchange;
use ringside_bus::DmaBuffer;
use ringside_config::{Config, RdmaSection};
use ringside_hmc::{DeviceLimits, Layout, Plan, Wanted};
use ringside_spec::rdma::commands::{CommitFpm, QueryFpm};
use ringside_spec::rdma::fpm::{BUFFER_WORDS, FpmCommit, FpmQuery, ObjectType};
use ringside_spec::rdma::limits::{
    FIRST_USER_COMPLETION_QUEUE, FIRST_USER_PROTECTION_DOMAIN, FIRST_USER_QUEUE_PAIR,
    FPM_BUFFER_BYTES, MULTICAST_GROUPS,
};
use std::sync::Arc;

pub(super) const STAGE: Stage = Stage {
    name: "rdma-sizing",
    needs: Needs::Rdma,
    run,
};

/// Protection domains at once: the driver's own choice; the device takes 2^18.
const PROTECTION_DOMAINS: u32 = 16_384;

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    let (layout, event_queues) = ask(&engine, context.config())?;
    context.facts.rdma.event_queues = event_queues;
    for (object, asked, granted) in layout.lowered() {
        context.warn(format!(
            "the device grants {granted} of {}, asked were {asked}",
            object.name()
        ));
    }
    let table = layout.to_string();
    context.recorder().record(|| Exchange::Note { text: table });
    let objects = objects(
        &layout,
        &context.config().rdma,
        &engine.state().names.rested,
    );
    let memory = HostMemory::new(
        engine.registers.clone(),
        Arc::clone(&engine.pool),
        engine.facts.function_index,
        &layout,
    )?;
    context.facts.rdma.layout = Some(layout);
    let mut state = engine.state();
    *engine.memory() = Some(memory);
    state.objects = objects;
    Ok(())
}

fn words(buffer: &DmaBuffer) -> [u64; BUFFER_WORDS] {
    let words = buffer.words();
    std::array::from_fn(|index| words.load_acquire(index))
}

/// Asks for the limits, and sets the counts. Returns the number of event queues too.
fn ask(engine: &Engine, config: &Config) -> Result<(Layout, u16), RdmaStageError> {
    let buffer = engine.pool.allocate(FPM_BUFFER_BYTES, 256)?;
    let hmc_function_index = engine.facts.function_index;
    let buffer_address = buffer.iova().0;
    let mut state = engine.state();
    let queried = state.execute(QueryFpm {
        hmc_function_index,
        buffer_address,
    });
    if let Err(error) = queried {
        buffer.leak();
        return Err(error.into());
    }
    let limits = DeviceLimits::from_query(&FpmQuery::decode(&words(&buffer))?)?;
    let plan = Plan::new(&limits, &wanted(&config.rdma))?;
    for (index, word) in plan.commit_request().iter().enumerate() {
        buffer.words().store(index, *word);
    }
    let committed = state.execute(CommitFpm {
        hmc_function_index,
        buffer_length: FPM_BUFFER_BYTES as u32,
        buffer_address,
    });
    if let Err(error) = committed {
        buffer.leak();
        return Err(error.into());
    }
    let layout = Layout::from_commit(plan, &FpmCommit::decode(&words(&buffer)))?;
    Ok((layout, limits.max_completion_event_queues()))
}

fn wanted(section: &RdmaSection) -> Wanted {
    Wanted {
        queue_pairs: section.queue_pairs,
        completion_queues: section.completion_queues,
        memory_regions: section.memory_regions,
        pbles: section.pbles,
        address_handles: section.address_handles,
        arp_entries: section.arp_entries,
        multicast_groups: section.multicast_groups,
    }
}

fn objects(layout: &Layout, section: &RdmaSection, rested: &RestedNumbers) -> Objects {
    let queue_pairs = layout.count(ObjectType::QueuePair);
    let completion_queues = layout.count(ObjectType::CompletionQueue);
    let regions = layout.count(ObjectType::MemoryRegion);
    let domains = FIRST_USER_PROTECTION_DOMAIN..FIRST_USER_PROTECTION_DOMAIN + PROTECTION_DOMAINS;
    Objects {
        queue_pairs: Table::new(
            Numbers::new(
                "queue pairs",
                "rdma.queue_pairs",
                FIRST_USER_QUEUE_PAIR..queue_pairs,
                section.queue_pairs,
            )
            .resting_from(&rested.queue_pairs),
        ),
        completion_queues: Table::new(
            Numbers::new(
                "completion queues",
                "rdma.completion_queues",
                FIRST_USER_COMPLETION_QUEUE..completion_queues,
                section.completion_queues,
            )
            .resting_from(&rested.completion_queues),
        ),
        regions: Table::new(
            Numbers::new(
                "memory regions",
                "rdma.memory_regions",
                1..regions,
                section.memory_regions,
            )
            .resting_from(&rested.regions),
        ),
        address_handles: Table::new(
            Numbers::new(
                "address handles",
                "rdma.address_handles",
                1..layout.count(ObjectType::AddressVector).max(1),
                section.address_handles,
            )
            .resting_from(&rested.address_handles),
        ),
        multicast_groups: Table::new(
            Numbers::new(
                "multicast groups",
                "rdma.multicast_groups",
                1..layout
                    .count(ObjectType::MulticastGroup)
                    .clamp(1, MULTICAST_GROUPS),
                section.multicast_groups,
            )
            .resting_from(&rested.multicast_groups),
        ),
        protection_domains: Numbers::new(
            "protection domains",
            "no key (the number is fixed)",
            domains,
            PROTECTION_DOMAINS,
        )
        .resting_from(&rested.protection_domains),
        arp: ArpTable::new(layout.count(ObjectType::Arp)),
        region_index_bits: layout.steering_tag_index_bits(),
        queue_pair_slots: queue_pairs,
    }
}
