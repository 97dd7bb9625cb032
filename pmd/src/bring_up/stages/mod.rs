//! The stages, one file each, in the order in which they run.

mod admin_queue;
mod capabilities;
mod claim;
mod clear_function_config;
mod clear_pxe;
mod config_space;
mod ddp_package;
mod driver_version;
mod firmware_ready;
mod function_reset;
mod health;
mod link;
mod mac_address;
mod mac_config;
mod mac_filters;
mod port_parameters;
mod protocol_engine;
mod queue_group;
mod rdma_addresses;
mod rdma_control_queue;
mod rdma_host_memory;
mod rdma_queues;
mod rdma_scheduler;
pub mod rdma_state;
mod reset_mark;
mod scheduler;
mod switch_config;
mod vsi;
mod vsi_rdma_filter;

use super::Stage;

/// The stages of the LAN half, in order.
const LAN: &[Stage] = &[
    claim::STAGE,
    config_space::STAGE,
    function_reset::STAGE,
    firmware_ready::STAGE,
    admin_queue::STAGE,
    clear_function_config::STAGE,
    driver_version::STAGE,
    capabilities::STAGE,
    clear_pxe::STAGE,
    mac_address::STAGE,
    switch_config::STAGE,
    scheduler::STAGE,
    mac_config::STAGE,
    ddp_package::STAGE,
    protocol_engine::STAGE,
    port_parameters::STAGE,
    vsi::STAGE,
    mac_filters::STAGE,
    link::STAGE,
    reset_mark::STAGE,
    vsi_rdma_filter::STAGE,
    queue_group::STAGE,
];

/// Every stage, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Stage> + Clone {
    let last = std::iter::once(&health::STAGE);
    LAN.iter().chain(rdma_state::STAGES).chain(last)
}
