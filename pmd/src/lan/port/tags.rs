//! VLAN tags of received packets.

/// Highest VLAN id.
pub(super) const MAX_VLAN: u16 = 4094;

/// Tags of received packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum VlanStripping {
    /// They stay in the packet.
    #[default]
    Off,
    /// The outermost goes from the packet into [`Packet::vlan`](ringside_lan::Packet::vlan). Its
    /// type is lost: a packet that is sent again gets one of type 0x8100.
    On,
}
