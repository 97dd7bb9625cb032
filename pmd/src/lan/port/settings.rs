//! Settings of a port.

use super::hash_table::DEFAULT_KEY;
use super::tags::VlanStripping;
use ringside_lan::{PacketPath, PoolSettings};
use ringside_spec::lan::limits;

/// Largest MTU.
pub const MAX_MTU: u16 = limits::MAX_MTU;

/// Smallest MTU: that of IPv4.
pub const MTU_MIN: u16 = 68;

/// The most queues of one direction.
pub const MAX_QUEUES: usize = 64;

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Receive queues, 1..=[`MAX_QUEUES`].
    pub receive_queues: usize,
    /// Transmit queues, 1..=[`MAX_QUEUES`].
    pub transmit_queues: usize,
    /// Descriptors of a receive ring: a multiple of 32, 64..=8160.
    pub receive_descriptors: u16,
    /// The same of a transmit ring.
    pub transmit_descriptors: u16,
    /// Largest payload of a frame with two VLAN tags, [`MTU_MIN`]..=[`MAX_MTU`]. The device does
    /// not look for tags: the payload of a frame with fewer may be longer by 4 bytes for each.
    pub mtu: u16,
    /// The pool of all queues: 64 buffers or more for each receive queue. A quarter of it, at most
    /// as many buffers as all transmit rings have descriptors, stays free of the receive rings, for
    /// packets to be sent. If the rest does not fill the receive rings
    /// ([`PortSettings::receive_queues`] times [`PortSettings::receive_descriptors`]), each of them
    /// has an equal share of it. The default number of buffers grows where all rings need more.
    pub pool: PoolSettings,
    /// Tags of received packets.
    pub vlan_stripping: VlanStripping,
    /// All packets of the wire are delivered: see
    /// [`Vsi::set_promiscuous`](super::Vsi::set_promiscuous).
    pub promiscuous: bool,
    /// The device stamps received packets with the time of its clock: see
    /// [`Packet::timestamp`](ringside_lan::Packet::timestamp) and
    /// [`Vsi::device_time`](super::Vsi::device_time).
    pub time_stamps: bool,
    /// The key of the hash that spreads packets over receive queues.
    pub hash_key: [u8; 52],
    /// Instructions of the queues; `None` for those of the environment variable, else AVX2 if
    /// the processor has it.
    pub packet_path: Option<PacketPath>,
}

impl Default for PortSettings {
    /// One queue of each kind with 1024 descriptors, MTU 1500, tags left where they are.
    fn default() -> Self {
        Self {
            receive_queues: 1,
            transmit_queues: 1,
            receive_descriptors: 1024,
            transmit_descriptors: 1024,
            mtu: 1500,
            pool: PoolSettings::default(),
            vlan_stripping: VlanStripping::Off,
            promiscuous: false,
            time_stamps: false,
            hash_key: DEFAULT_KEY,
            packet_path: None,
        }
    }
}
