//! The LAN half: reset, virtual station interface, link.

pub mod link;
pub mod reset;
pub mod vsi;
