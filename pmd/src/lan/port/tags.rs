//! VLAN tags of received packets.

/// Tags of received packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum VlanStripping {
    /// They stay in the packet.
    #[default]
    Off,
    /// The outermost goes from the packet into [`Packet::vlan`](ringside_lan::Packet::vlan).
    On,
}
