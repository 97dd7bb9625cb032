//! The stages, one file each. A file, its module, the trace and `--fail-at` use one name.

mod admin_queue;
mod capabilities;
mod claim;
mod clear_pf_config;
mod clear_pxe;
mod config_space;
mod ddp_package;
mod driver_version;
mod firmware_ready;
mod health;
mod link;
mod mac_address;
mod mac_config;
mod mac_filters;
mod pf_reset;
mod port_params;
mod protocol_engine;
mod rdma_addresses;
pub(super) mod rdma_asynchronous_events;
pub(super) mod rdma_completion_events;
pub(super) mod rdma_control_completions;
pub(super) mod rdma_control_queue;
mod rdma_features;
mod rdma_nodes;
pub(super) mod rdma_scheduler;
pub(super) mod rdma_segments;
mod rdma_sizing;
mod reset_mark;
mod scheduler;
mod switch_config;
mod vsi;
mod vsi_rdma_filter;

use super::{Context, Stage, StageError};

/// The stages, in order.
const STAGES: &[Stage] = &[
    claim::STAGE,
    config_space::STAGE,
    pf_reset::STAGE,
    firmware_ready::STAGE,
    admin_queue::STAGE,
    clear_pf_config::STAGE,
    driver_version::STAGE,
    capabilities::STAGE,
    clear_pxe::STAGE,
    mac_address::STAGE,
    switch_config::STAGE,
    scheduler::STAGE,
    mac_config::STAGE,
    ddp_package::STAGE,
    protocol_engine::STAGE,
    port_params::STAGE,
    vsi::STAGE,
    mac_filters::STAGE,
    link::STAGE,
    reset_mark::STAGE,
    vsi_rdma_filter::STAGE,
    rdma_nodes::STAGE,
    rdma_control_queue::STAGE,
    rdma_sizing::STAGE,
    rdma_segments::STAGE,
    rdma_control_completions::STAGE,
    rdma_features::STAGE,
    rdma_completion_events::STAGE,
    rdma_asynchronous_events::STAGE,
    rdma_scheduler::STAGE,
    rdma_addresses::STAGE,
    health::STAGE,
];

/// Runs the stages after which the firmware of a function that was reset takes commands. One that
/// is silent is asked once.
pub(super) fn start_firmware(context: &mut Context) -> Result<(), StageError> {
    (config_space::STAGE.run)(context)?;
    admin_queue::run_once(context)
}

/// Every stage, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Stage> + Clone {
    STAGES.iter()
}
