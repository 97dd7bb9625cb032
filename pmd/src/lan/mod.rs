//! The LAN half: virtual station interface, link, reports of the firmware, packet queues.

pub(crate) mod bridging;
mod counters;
mod events;
pub mod link;
pub mod port;
pub mod vsi;

pub(crate) use counters::PORT_COUNTERS;
pub use events::FirmwareEvent;
pub use port::{
    OpenPort, OpenVsi, Port, PortError, PortSettings, PortStatistic, VlanStripping, Vsi,
    VsiSettings,
};
