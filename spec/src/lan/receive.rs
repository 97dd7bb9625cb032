//! Receive queues: context, descriptors.
//!
//! Descriptors have 32 bytes: the driver writes the address of a buffer, and the device overwrites
//! it with the packet's fields, the status last. Free descriptors reach up to the tail, not
//! including it; hardware reads the tail in steps of [`TAIL_MULTIPLE`].

use super::wire::wire;
use zerocopy::byteorder::little_endian::{U16, U32, U64};

mod context;
mod legacy;
mod write_back;
pub use context::{ReceiveContext, split, split_rule};
pub use legacy::{FLOW_VALID, LegacyDescriptor, LegacyExtended, LegacyStatus, filter_status};
pub use write_back::{WriteBack0, WriteBack1, WriteBack2, WriteBack3};

wire! {
    /// A free descriptor.
    pub struct FreeDescriptor "ice_32b_rx_flex_desc": 32 {
        /// I/O virtual address of the packet's buffer
        packet_address "read.pkt_addr": U64,
        /// I/O virtual address of the header's buffer
        header_address "read.hdr_addr": U64,
        /// zero
        reserved_1 "read.rsvd1": U64,
        /// zero
        reserved_2 "read.rsvd2": U64,
    }
    /// A descriptor that the device wrote back, for any profile; see [`NicDescriptor`].
    pub struct FlexDescriptor "ice_32b_rx_flex_desc": 32 {
        /// profile; see [`profile`]
        profile "wb.rxdid": u8,
        /// see [`Mirror`]
        mirror "wb.mir_id_umb_cast": u8,
        /// see [`PacketType`]
        packet_type "wb.ptype_flex_flags0": U16,
        /// see [`PacketLength`]
        packet_length "wb.pkt_len": U16,
        /// see [`HeaderLength`]
        header_length "wb.hdr_len_sph_flex_flags1": U16,
        /// see [`Status0`]
        status_0 "wb.status_error0": U16,
        /// first tag
        l2tag1 "wb.l2tag1": U16,
        /// by profile
        metadata_0 "wb.flex_meta0": U16,
        /// by profile
        metadata_1 "wb.flex_meta1": U16,
        /// see [`Status1`]
        status_1 "wb.status_error1": U16,
        /// by profile
        flags_2 "wb.flex_flags2": u8,
        /// time stamp, low byte
        time_stamp_low "wb.time_stamp_low": u8,
        /// second tag, first word
        l2tag2_first "wb.l2tag2_1st": U16,
        /// second tag, second word
        l2tag2_second "wb.l2tag2_2nd": U16,
        /// by profile
        metadata_2 "wb.flex_meta2": U16,
        /// by profile
        metadata_3 "wb.flex_meta3": U16,
        /// by profile
        metadata_4 "wb.flex_ts.flex.flex_meta4": U16,
        /// by profile
        metadata_5 "wb.flex_ts.flex.flex_meta5": U16,
    }
    /// A descriptor of profile [`profile::NIC`].
    pub struct NicDescriptor "ice_32b_rx_flex_desc_nic": 32 {
        /// profile
        profile "rxdid": u8,
        /// see [`Mirror`]
        mirror "mir_id_umb_cast": u8,
        /// see [`PacketType`]
        packet_type "ptype_flexi_flags0": U16,
        /// see [`PacketLength`]
        packet_length "pkt_len": U16,
        /// see [`HeaderLength`]
        header_length "hdr_len_sph_flex_flags1": U16,
        /// see [`Status0`]
        status_0 "status_error0": U16,
        /// first tag
        l2tag1 "l2tag1": U16,
        /// hash of the packet
        hash "rss_hash": U32,
        /// see [`Status1`]
        status_1 "status_error1": U16,
        /// flags by profile
        flags_2 "flexi_flags2": u8,
        /// time stamp, low byte; bit 0 valid
        time_stamp_low "ts_low": u8,
        /// second tag, first word
        l2tag2_first "l2tag2_1st": U16,
        /// second tag, second word
        l2tag2_second "l2tag2_2nd": U16,
        /// flow id
        flow_id "flow_id": U32,
        /// time stamp, high part
        time_stamp_high "flex_ts.ts_high": U32,
    }
    /// A descriptor of profile [`profile::NIC_2`].
    pub struct Nic2Descriptor "ice_32b_rx_flex_desc_nic_2": 32 {
        /// profile
        profile "rxdid": u8,
        /// see [`Mirror`]
        mirror "mir_id_umb_cast": u8,
        /// see [`PacketType`]
        packet_type "ptype_flexi_flags0": U16,
        /// see [`PacketLength`]
        packet_length "pkt_len": U16,
        /// see [`HeaderLength`]
        header_length "hdr_len_sph_flex_flags1": U16,
        /// see [`Status0`]
        status_0 "status_error0": U16,
        /// first tag
        l2tag1 "l2tag1": U16,
        /// hash of the packet
        hash "rss_hash": U32,
        /// see [`Status1`]
        status_1 "status_error1": U16,
        /// flags by profile
        flags_2 "flexi_flags2": u8,
        /// time stamp, low byte; bit 0 valid
        time_stamp_low "ts_low": u8,
        /// second tag, first word
        l2tag2_first "l2tag2_1st": U16,
        /// second tag, second word
        l2tag2_second "l2tag2_2nd": U16,
        /// flow id
        flow_id "flow_id": U16,
        /// VSI that sent the packet
        source_vsi "src_vsi": U16,
        /// time stamp, high part
        time_stamp_high "flex_ts.ts_high": U32,
    }
}

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 32;
/// Bytes of a descriptor of a queue whose context says that they are short: its first half, in
/// every layout. Source: DPDK `base/ice_lan_tx_rx.h`, `ice_16b_rx_flex_desc`; `ice_rxtx.c`,
/// `ice_program_hw_rx_queue`, which are built so with RTE_LIBRTE_ICE_16BYTE_RX_DESC.
pub const SHORT_DESCRIPTOR_BYTES: usize = 16;
/// Hardware sees the tail in steps of this many descriptors.
pub const TAIL_MULTIPLE: u16 = 8;
/// Most buffers that one packet takes.
pub const MAX_BUFFERS_PER_PACKET: u16 = 5;
pub use super::limits::{MAX_FRAME_BYTES, MAX_RING, RING_ALIGNMENT, RING_MIN, RING_MULTIPLE};

/// Descriptor profiles: values of the first byte of a descriptor that was written back, and of
/// [`DescriptorProfile`](super::registers::queues::DescriptorProfile). Source: ice
/// `ice_lan_tx_rx.h`, `enum ice_rxdid`.
pub mod profile {
    /// the first half of a [`LegacyDescriptor`](super::LegacyDescriptor)
    pub const LEGACY_16: u8 = 0;
    /// [`LegacyDescriptor`](super::LegacyDescriptor)
    pub const LEGACY_32: u8 = 1;
    /// [`NicDescriptor`](super::NicDescriptor)
    pub const NIC: u8 = 2;
    /// [`Nic2Descriptor`](super::Nic2Descriptor)
    pub const NIC_2: u8 = 6;
    /// of the package for communications: as [`NIC`]
    pub const COMMS: u8 = 16;
    /// first and last profile of that package with two words of the packet's headers instead of the
    /// time stamp; `metadata_4_valid` and `metadata_5_valid` announce them. Source: DPDK
    /// `ice_rxtx.c`, `ice_rxd_to_pkt_fields_by_comms_aux_v1`.
    pub const COMMS_WORDS: (u8, u8) = (17, 21);
    /// the same with the offset of the IP header, all ones if there is none. Source: DPDK,
    /// `ice_rxd_to_pkt_fields_by_comms_aux_v2`.
    pub const COMMS_IP_OFFSET: u8 = 25;
    /// for Open vSwitch; DPDK's default
    pub const OPEN_VSWITCH: u8 = 22;
    /// priority that Linux programs with its profile
    pub const LINUX_PRIORITY: u32 = 3;
}

/// Values of [`WriteBack0::cast`].
pub mod cast {
    /// to one station
    pub const UNICAST: u64 = 0;
    /// to a group of stations
    pub const MULTICAST: u64 = 1;
    /// to all stations
    pub const BROADCAST: u64 = 2;
}

/// Values of [`PacketType::packet_type`]. Source: ice `ice_lan_tx_rx.h`, `ice_ptype_lkup`.
pub mod packet_type {
    /// layer 2, nothing else known
    pub const LAYER_2: u16 = 1;
    /// time synchronisation
    pub const TIME_SYNC: u16 = 2;
    /// LLDP
    pub const LLDP: u16 = 6;
    /// ARP
    pub const ARP: u16 = 11;
    /// IPv4, fragment
    pub const IPV4_FRAGMENT: u16 = 22;
    /// IPv4, other
    pub const IPV4: u16 = 23;
    /// IPv4, UDP
    pub const IPV4_UDP: u16 = 24;
    /// IPv4, TCP
    pub const IPV4_TCP: u16 = 26;
    /// IPv4, SCTP
    pub const IPV4_SCTP: u16 = 27;
    /// IPv4, ICMP
    pub const IPV4_ICMP: u16 = 28;
    /// IPv6, fragment
    pub const IPV6_FRAGMENT: u16 = 88;
    /// IPv6, other
    pub const IPV6: u16 = 89;
    /// IPv6, UDP
    pub const IPV6_UDP: u16 = 90;
    /// IPv6, TCP
    pub const IPV6_TCP: u16 = 92;
    /// IPv6, SCTP
    pub const IPV6_SCTP: u16 = 93;
    /// IPv6, ICMP
    pub const IPV6_ICMP: u16 = 94;
}

crate::words! {
    /// Mirror and cast of a packet. Source: ice `ice_lan_tx_rx.h`, `mir_id_umb_cast`.
    pub struct Mirror: u8 {
        /// mirror rule
        mirror: [5:0],
        /// 0 unicast, 1 multicast, 2 broadcast
        cast: [7:6],
    }
    /// Source: ice `ICE_RX_FLEX_DESC_PTYPE_M`.
    pub struct PacketType: u16 {
        /// see [`packet_type`]
        packet_type: [9:0],
        /// flags by profile
        flags: [15:10],
    }
    /// Source: ice `ICE_RX_FLX_DESC_PKT_LEN_M`.
    pub struct PacketLength: u16 {
        /// bytes in this buffer
        bytes: [13:0],
    }
    /// Source: ice `ice_lan_tx_rx.h`, `hdr_len_sph_flex_flags1`.
    pub struct HeaderLength: u16 {
        /// bytes of the header
        bytes: [10:0],
        /// the header was split off
        split: [11],
        /// flags by profile
        flags: [15:12],
    }
    /// Source: ice `ICE_RX_FLEX_DESC_STATUS0_*`.
    pub struct Status0: u16 {
        /// the device is done: all other fields are written
        done: [0],
        /// last buffer of the packet
        end_of_packet: [1],
        /// the header did not fit its buffer
        header_overflow: [2],
        /// layer 3 and 4 checksums were checked
        checksums_checked: [3],
        /// IP checksum wrong
        ip_checksum_error: [4],
        /// layer 4 checksum wrong
        layer_4_checksum_error: [5],
        /// outer IP checksum wrong
        outer_ip_checksum_error: [6],
        /// outer UDP checksum wrong
        outer_udp_checksum_error: [7],
        /// looped back
        loopback: [8],
        /// IPv6 with extension headers
        ipv6_extension: [9],
        /// receive error
        receive_error: [10],
        /// the CRC is in the buffer
        crc_present: [11],
        /// the hash is valid
        hash_valid: [12],
        /// `l2tag1` is valid
        l2tag1_present: [13],
        /// first metadata valid
        metadata_0_valid: [14],
        /// second metadata valid
        metadata_1_valid: [15],
    }
    /// Outcome of a flow director programming descriptor, in the second word of a descriptor of the
    /// control VSI's report queue. Source: ice `ICE_FXD_FLTR_WB_QW1_*`.
    pub struct FilterStatus: u64 {
        /// the device is done
        done: [0],
        /// 0 added, 1 removed
        program: [2:1],
        /// it failed
        failed: [4],
        /// no profile matches the packet
        no_profile: [5],
        /// address of the entry
        address: [21:8],
        /// profile of the packet
        profile: [34:28],
        /// hash of the entry
        hash: [63:38],
    }
    /// Source: ice `ICE_RX_FLEX_DESC_STATUS1_*`.
    pub struct Status1: u16 {
        /// UDP tunnel
        tunnel: [4],
        /// `l2tag2` is valid
        l2tag2_present: [11],
    }
}

#[cfg(test)]
mod tests;
