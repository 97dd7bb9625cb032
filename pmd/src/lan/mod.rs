//! The LAN half: reset, virtual station interface, link, reports of the firmware.

mod events;
pub mod link;
pub mod reset;
pub mod vsi;

pub use events::FirmwareEvent;
