//! Addresses: MAC table, ARP, address handles, multicast groups, hash tables.
//!
//! An IP address is one number of 128 bits, the first octet on the wire the most significant; an
//! IPv4 address is the low 32 bits.

use crate::rdma::layout::{codes, layout};

codes! {
    /// The key of an entry of the hash table (iWARP).
    /// Source: irdma `defs.h`/`type.h`, IRDMA_QHASH_TYPE_*.
    pub enum QuadHashType: u8 {
        /// Established TCP connection: all four values.
        TcpEstablished = 1,
        /// TCP SYN: local address and port.
        TcpSyn = 2,
        /// UDP unicast.
        UdpUnicast = 3,
        /// UDP multicast.
        UdpMulticast = 4,
        /// RoCE multicast.
        RoceMulticast = 5,
        /// RoCEv2.
        RoceV2Hardware = 6,
    }

    /// The action on an entry of the hash table.
    /// Source: irdma `type.h`, IRDMA_QHASH_MANAGE_TYPE_*.
    pub enum QuadHashOperation: u8 {
        /// Remove it.
        Delete = 0,
        /// Add it.
        Add = 1,
        /// Change it.
        Modify = 2,
    }
}

commands! {
    /// Writes or deletes an ARP entry.
    /// Source: irdma `ctrl.c`, `irdma_sc_add_arp_cache_entry`, `irdma_sc_del_arp_cache_entry`.
    pub struct ManageArp {
        /// Longest reachability time; 0.
        reach_max: u32 = 1[31:0],
        /// MAC address.
        mac_address: [u8; 6] = 2[47:0],
        /// Index of the entry.
        arp_index: u16 = 3[11:0],
        /// Write the entry; else delete it.
        entry_valid: bool = 3[42],
        /// The entry does not age.
        permanent: bool = 3[43],
        /// Ask for the entry.
        query: bool = 3[44],
    }

    /// Allocates an entry of the local MAC table; its index is returned. Not on the E810.
    /// Source: irdma `ctrl.c`, `irdma_sc_alloc_local_mac_entry`.
    pub struct AllocateLocalMacTableEntry {}

    /// Writes or frees an entry of the local MAC table. Not on the E810.
    /// Source: irdma `ctrl.c`, `irdma_sc_add_local_mac_entry`, `irdma_sc_del_local_mac_entry`.
    pub struct ManageLocalMacTable {
        /// MAC address.
        mac_address: [u8; 6] = 4[47:0],
        /// Index of the entry.
        table_index: u8 = 3[5:0],
        /// Free it although it is referenced.
        ignore_reference_count: bool = 3[61],
        /// Free the entry.
        free: bool = 3[62],
    }

    /// Accepts or refuses connections to a TCP port (iWARP).
    /// Source: irdma `ctrl.c`, `irdma_sc_manage_apbvt_entry`.
    pub struct ManageAcceleratedPort {
        /// TCP port.
        port: u16 = 2[15:0],
        /// Accept; else refuse.
        add: bool = 3[62],
    }

    /// Adds, changes or deletes a hash entry (iWARP).
    /// Source: irdma `ctrl.c`, `irdma_sc_manage_qhash_table_entry`.
    pub struct ManageQuadHash {
        /// Local MAC address.
        mac_address: [u8; 6] = 0[47:0],
        /// Local port.
        local_port: u16 = 1[15:0],
        /// Peer's port; only with [`QuadHashType::TcpEstablished`].
        remote_port: u16 = 1[31:16],
        /// Number of the queue pair.
        qp_number: u32 = 1[49:32],
        /// Handle of the queue set.
        queue_set_handle: u16 = 2[9:0],
        /// VLAN.
        vlan_id: u16 = 2[43:32],
        /// Peer's IP address; only with [`QuadHashType::TcpEstablished`].
        remote_ip: u128 = 4[63:0] | 5[63:0],
        /// Local IP address.
        local_ip: u128 = 6[63:0] | 7[63:0],
        /// The key of the entry.
        entry_type: QuadHashType = 3[44:42],
        /// `vlan_id` is valid.
        vlan_valid: bool = 3[59],
        /// The addresses are IPv4.
        ipv4: bool = 3[60],
        /// The action.
        manage: QuadHashOperation = 3[62:61],
    }
}

commands! {
    /// Creates an address handle. It is good if the completion returns 0 and no error.
    /// Source: irdma `uda.c`, `irdma_sc_access_ah`.
    pub struct CreateAddressHandle;
    /// Changes an address handle.
    /// Source: irdma `uda.c`, `irdma_sc_access_ah`.
    pub struct ModifyAddressHandle;
    /// Destroys an address handle.
    /// Source: irdma `uda.c`, `irdma_sc_access_ah`.
    pub struct DestroyAddressHandle;
    with {
        /// Source MAC address.
        source_mac: [u8; 6] = 0[63:16],
        /// VLAN tag with priority; used with `insert_vlan`.
        vlan_tag: u16 = 1[15:0],
        /// Traffic class.
        traffic_class: u8 = 1[39:32],
        /// Protection domain, 18 bits.
        protection_domain: u32 = 1[63:48] | 2[21:20],
        /// Flow label, 20 bits.
        flow_label: u32 = 2[19:0],
        /// Hop limit.
        hop_limit: u8 = 2[39:32],
        /// Index of the ARP entry: the destination MAC address.
        arp_index: u16 = 2[63:48],
        /// Number of the address handle, 17 bits.
        ah_number: u32 = 3[16:0],
        /// The addresses are IPv4.
        ipv4: bool = 3[59],
        /// Insert `vlan_tag`.
        insert_vlan: bool = 3[60],
        /// Loop packets back.
        loopback: bool = 3[62],
        /// Destination IP address.
        destination_ip: u128 = 4[63:0] | 5[63:0],
        /// Source IP address.
        source_ip: u128 = 6[63:0] | 7[63:0],
    }
}

commands! {
    /// Creates a multicast group.
    /// Source: irdma `uda.c`, `irdma_access_mcast_grp`.
    pub struct CreateMulticastGroup;
    /// Changes a multicast group.
    /// Source: irdma `uda.c`, `irdma_access_mcast_grp`.
    pub struct ModifyMulticastGroup;
    /// Destroys a multicast group.
    /// Source: irdma `uda.c`, `irdma_access_mcast_grp`.
    pub struct DestroyMulticastGroup;
    with {
        /// MAC address of the group.
        group_mac: [u8; 6] = 0[47:0],
        /// Function index of the host memory cache.
        hmc_function_index: u8 = 1[5:0],
        /// Handle of the queue set.
        queue_set_handle: u16 = 2[9:0],
        /// VLAN.
        vlan_id: u16 = 2[43:32],
        /// I/O virtual address of eight [`MulticastMember`]s.
        member_list_address: u64 = 4[63:0],
        /// Index of the group, 0..=4095.
        group_index: u16 = 3[12:0],
        /// `vlan_id` is valid.
        vlan_valid: bool = 3[59],
        /// The address is IPv4.
        ipv4: bool = 3[60],
        /// IP address of the group.
        group_ip: u128 = 6[63:0] | 7[63:0],
    }
}

impl From<ModifyAddressHandle> for CreateAddressHandle {
    /// The handle as the change leaves it.
    fn from(change: ModifyAddressHandle) -> Self {
        Self::extract_fields(&change.encode(false))
    }
}

impl From<ModifyMulticastGroup> for CreateMulticastGroup {
    /// The group as the change leaves it.
    fn from(change: ModifyMulticastGroup) -> Self {
        Self::extract_fields(&change.encode(false))
    }
}

/// Members that the list of a multicast group holds.
pub const MULTICAST_GROUP_MEMBERS: usize = 8;

layout! {
    /// Member of a multicast group, as listed in memory.
    /// Source: irdma `uda.c`, `irdma_create_mg_ctx`.
    pub struct MulticastMember: [u64; 1] {
        /// Number of the queue pair.
        qp_number: u32 = 0[17:0],
        /// Physical function. No driver sets it, nor the fields of the virtual function.
        pf_number: u8 = 0[21:18],
        /// Virtual function; valid with `is_vf`.
        vf_number: u8 = 0[28:22],
        /// The member belongs to a virtual function.
        is_vf: bool = 0[29],
        /// Do not compare the destination port.
        ignore_destination_port: bool = 0[30],
        /// The entry is used.
        valid: bool = 0[31],
        /// UDP destination port.
        destination_port: u16 = 0[47:32],
    }
}
