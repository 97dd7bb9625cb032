//! Multicast groups: the queue pairs that receive datagrams to a group's address.

use crate::packet::{Network, Path};
use ringside_spec::rdma::commands::{
    CreateMulticastGroup, MULTICAST_GROUP_MEMBERS, MulticastMember,
};

ringside_spec::words! {
    /// Tag control information of IEEE 802.1Q.
    struct VlanTag: u16 {
        /// VLAN identifier; 0 means priority only
        identifier: [11:0],
    }
}

/// A group as its commands made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct MulticastGroup {
    mac: [u8; 6],
    ip: u128,
    ipv4: bool,
    vlan: Option<u16>,
    members: [Option<u32>; MULTICAST_GROUP_MEMBERS],
}

impl MulticastGroup {
    /// The group of a command and its list of members. Members of other functions are left aside:
    /// they receive the frame through their own.
    pub(in crate::rdma) fn new(
        command: &CreateMulticastGroup,
        list: &[u64; MULTICAST_GROUP_MEMBERS],
    ) -> Self {
        let members = list.map(|word| {
            let member = MulticastMember::decode(&[word]);
            (member.valid && !member.is_vf).then_some(member.qp_number)
        });
        Self {
            mac: command.group_mac,
            ip: command.group_ip,
            ipv4: command.ipv4,
            vlan: command.vlan_valid.then_some(command.vlan_id),
            members,
        }
    }

    /// True if a frame is for both or for none of them.
    pub(in crate::rdma) fn is_same(&self, other: &Self) -> bool {
        let key = |one: &Self| {
            (
                one.mac,
                one.ip,
                one.ipv4,
                one.vlan.filter(|vlan| *vlan != 0),
            )
        };
        key(self) == key(other)
    }

    /// True if a frame on this path is for the group: MAC address, IP address and VLAN.
    pub(in crate::rdma) fn hears(&self, path: &Path) -> bool {
        let ip = match &path.network {
            Network::V4(ip) => self.ipv4 && u128::from(ip.destination.to_bits()) == self.ip,
            Network::V6(ip) => !self.ipv4 && ip.destination.to_bits() == self.ip,
        };
        let vlan = path.vlan.map(|tag| VlanTag(tag).identifier());
        let vlan = vlan.filter(|identifier| *identifier != 0);
        ip && path.destination.0 == self.mac && vlan == self.vlan.filter(|own| *own != 0)
    }

    /// Numbers of its queue pairs.
    pub(in crate::rdma) fn members(&self) -> [Option<u32>; MULTICAST_GROUP_MEMBERS] {
        self.members
    }
}
