//! Descriptors as older cards write them back.

use crate::lan::wire::wire;
use zerocopy::byteorder::little_endian::{U16, U32, U64};

wire! {
    /// A descriptor of profile [`profile::LEGACY_32`](super::profile::LEGACY_32), written back.
    pub struct LegacyDescriptor "ice_32byte_rx_desc": 32 {
        /// mirror rule
        mirror "wb.qword0.lo_dword.mirroring_status": U16,
        /// first tag
        l2tag1 "wb.qword0.lo_dword.l2tag1": U16,
        /// hash of the packet, if `filter_status` says so
        hash "wb.qword0.hi_dword.rss": U32,
        /// see [`LegacyStatus`]
        status "wb.qword1.status_error_len": U64,
        /// see [`LegacyExtended`]
        extended "wb.qword2.ext_status": U16,
        /// zero
        reserved "wb.qword2.rsvd": U16,
        /// second tag, first word
        l2tag2_first "wb.qword2.l2tag2_1": U16,
        /// second tag, second word
        l2tag2_second "wb.qword2.l2tag2_2": U16,
        /// zero
        reserved_3 "wb.qword3.reserved": U32,
        /// number that a filter gave the packet
        flow_id "wb.qword3.fd_id": U32,
    }
}

/// Values of [`LegacyStatus::filter_status`]. Source: ice 2.6.6 `ice_lan_tx_rx.h`,
/// `ICE_RX_DESC_FLTSTAT_*`.
pub mod filter_status {
    /// nothing
    pub const NONE: u64 = 0;
    /// the word of the hash holds the number of a filter: of descriptors of 16 bytes only
    pub const FLOW: u64 = 1;
    /// the word of the hash holds the hash
    pub const HASH: u64 = 3;
}

/// Value of [`LegacyExtended::flow`]: `flow_id` is valid.
pub const FLOW_VALID: u16 = 1;

crate::words! {
    /// Second word of a descriptor that was written back.
    /// Source: ice 2.6.6 `ice_lan_tx_rx.h`, `ICE_RXD_QW1_*`, `ICE_RX_DESC_STATUS_*`,
    /// `ICE_RX_DESC_ERROR_*`.
    pub struct LegacyStatus: u64 {
        /// the device is done: all other fields are written
        done: [0],
        /// last buffer of the packet
        end_of_packet: [1],
        /// `l2tag1` is valid
        l2tag1_present: [2],
        /// layer 3 and 4 checksums were checked
        checksums_checked: [3],
        /// the CRC is in the buffer
        crc_present: [4],
        /// 0 unicast, 1 multicast, 2 broadcast
        cast: [10:9],
        /// a filter matched
        filter_match: [11],
        /// see [`filter_status`]
        filter_status: [13:12],
        /// looped back
        loopback: [14],
        /// IPv6 with extension headers
        ipv6_extension: [15],
        /// receive error
        receive_error: [19],
        /// IP checksum wrong
        ip_checksum_error: [22],
        /// layer 4 checksum wrong
        layer_4_checksum_error: [23],
        /// see [`packet_type`](super::packet_type)
        packet_type: [37:30],
        /// bytes in this buffer
        bytes: [51:38],
        /// bytes of the header that was split off
        header_bytes: [62:52],
        /// a header was split off
        header_split: [63],
    }
    /// Source: as above, `ICE_RX_DESC_EXT_STATUS_*`.
    pub struct LegacyExtended: u16 {
        /// `l2tag2_second` is valid
        l2tag2_present: [0],
        /// see [`FLOW_VALID`]
        flow: [5:4],
    }
}
