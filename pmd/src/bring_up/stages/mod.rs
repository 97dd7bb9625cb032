//! The stages, one file each, in the order of [`all`].

mod config_space;
pub mod rdma_state;

use super::Stage;

/// The stages of the LAN half, in order.
const LAN: &[Stage] = &[config_space::STAGE];

/// Every stage, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Stage> + Clone {
    LAN.iter().chain(rdma_state::STAGES)
}
