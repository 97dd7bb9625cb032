//! The LAN half: reset, virtual station interface, link, reports of the firmware, packet queues.

mod events;
pub mod link;
pub mod port;
pub mod reset;
pub mod vsi;

pub use events::FirmwareEvent;
pub use port::{OpenPort, Port, PortError, PortSettings, PortStatistic, VlanStripping};
