//! A descriptor that the device wrote back, as the four words that the data path loads.

crate::words! {
    /// Bytes 0..8 of every flexible profile. Source: ice `ice_lan_tx_rx.h`,
    /// `ice_32b_rx_flex_desc_nic`.
    pub struct WriteBack0: u64 {
        /// layout of the rest; see [`profile`](super::profile)
        profile: [7:0],
        /// mirror rule
        mirror: [13:8],
        /// 0 unicast, 1 multicast, 2 broadcast, 3 mirrored
        cast: [15:14],
        /// see [`packet_type`](super::packet_type)
        packet_type: [25:16],
        /// flags by profile
        flags_0: [31:26],
        /// bytes in this buffer
        bytes: [45:32],
        /// bytes of the header that was split off
        header_bytes: [58:48],
        /// a header was split off
        header_split: [59],
        /// flags by profile
        flags_1: [63:60],
    }
    /// Bytes 8..16 of profile [`profile::NIC`](super::profile::NIC): the word that the device
    /// writes last. The low 16 bits are those of [`Status0`](super::Status0). Source: as above.
    pub struct WriteBack1: u64 {
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
        /// `hash` is valid
        hash_valid: [12],
        /// `l2tag1` is valid
        l2tag1_present: [13],
        /// tag
        l2tag1: [31:16],
        /// hash of the packet
        hash: [63:32],
    }
    /// Bytes 16..24. Source: as above.
    pub struct WriteBack2: u64 {
        /// in a UDP or GRE tunnel: the outer UDP status counts
        tunnel: [4],
        /// `l2tag2_second` is valid
        l2tag2_present: [11],
        /// the time stamp is valid
        time_stamp_valid: [24],
        /// tag, first word
        l2tag2_first: [47:32],
        /// tag, second word: that of the inner tag
        l2tag2_second: [63:48],
    }
    /// Bytes 24..32 of profile [`profile::NIC`](super::profile::NIC). Source: as above.
    pub struct WriteBack3: u64 {
        /// number that a flow director rule gave; all ones: none did
        flow_id: [31:0],
        /// time stamp, nanoseconds
        time_stamp: [63:32],
    }
}
