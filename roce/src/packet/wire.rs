//! The headers as they lie in a frame: big-endian, no alignment.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

ringside_spec::words! {
    /// IPv4, byte 0 (RFC 791).
    pub(super) struct VersionAndLength: u8 {
        /// 4
        version: [7:4],
        /// header length in units of 4 bytes
        header_words: [3:0],
    }

    /// IPv4, bytes 6..8 (RFC 791).
    pub(super) struct FragmentWord: u16 {
        /// DF
        do_not_fragment: [14],
        /// MF
        more_fragments: [13],
        /// in units of 8 bytes
        offset: [12:0],
    }

    /// IPv6, bytes 0..4 (RFC 8200).
    pub(super) struct Ipv6First: u32 {
        /// 6
        version: [31:28],
        /// DSCP and ECN
        traffic_class: [27:20],
        /// flow label
        flow_label: [19:0],
    }

    /// IPv4 type of service, IPv6 traffic class (RFC 3168, section 5).
    pub(super) struct TrafficClass: u8 {
        /// DSCP
        differentiated_services: [7:2],
        /// ECN: 0 not capable, 1 and 2 capable, 3 congestion experienced
        congestion: [1:0],
    }

    /// BTH, bytes 0..4 (InfiniBand volume 1, 9.2).
    pub(super) struct TransportFirst: u32 {
        /// OpCode
        opcode: [31:24],
        /// SE
        solicited: [23],
        /// M
        migrated: [22],
        /// PadCnt, bytes
        pad_bytes: [21:20],
        /// TVer
        version: [19:16],
        /// P_Key
        partition_key: [15:0],
    }

    /// BTH, bytes 4..8 (InfiniBand volume 1, 9.2; annex A17 for FECN and BECN).
    pub(super) struct TransportSecond: u32 {
        /// FECN
        forward_congestion: [31],
        /// BECN
        backward_congestion: [30],
        /// DestQP
        destination_qp: [23:0],
    }

    /// BTH, bytes 8..12 (InfiniBand volume 1, 9.2).
    pub(super) struct TransportThird: u32 {
        /// A
        acknowledge_request: [31],
        /// PSN
        psn: [23:0],
    }

    /// AETH (InfiniBand volume 1, 9.3.5).
    pub(super) struct AcknowledgeWord: u32 {
        /// Syndrome
        syndrome: [31:24],
        /// MSN
        message_sequence_number: [23:0],
    }

    /// AETH:Syndrome (InfiniBand volume 1, table 46).
    pub(super) struct SyndromeByte: u8 {
        /// reserved, 0
        extended: [7],
        /// 0 acknowledge, 1 receiver not ready, 3 negative
        kind: [6:5],
        /// credits, timer or code
        value: [4:0],
    }

    /// DETH, bytes 4..8 (InfiniBand volume 1, 9.3.2).
    pub(super) struct DatagramSecond: u32 {
        /// SrcQP
        source_qp: [23:0],
    }
}

macro_rules! headers {
    ($( $(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty,)* } )*) => {$(
        $(#[$doc])*
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
        #[repr(C)]
        pub(super) struct $name { $( pub(super) $field: $type, )* }
    )*};
}

headers! {
    /// 14 bytes
    struct EthernetHeader {
        destination: [u8; 6],
        source: [u8; 6],
        ether_type: U16,
    }

    /// 802.1Q tag: control information, then the type of what follows; 4 bytes
    struct VlanHeader {
        control: U16,
        ether_type: U16,
    }

    /// 20 bytes
    struct Ipv4Header {
        version_and_length: u8,
        type_of_service: u8,
        total_length: U16,
        identification: U16,
        fragment: U16,
        time_to_live: u8,
        protocol: u8,
        checksum: U16,
        source: [u8; 4],
        destination: [u8; 4],
    }

    /// 40 bytes
    struct Ipv6Header {
        first: U32,
        payload_length: U16,
        next_header: u8,
        hop_limit: u8,
        source: [u8; 16],
        destination: [u8; 16],
    }

    /// 8 bytes
    struct UdpHeader {
        source_port: U16,
        destination_port: U16,
        length: U16,
        checksum: U16,
    }

    /// BTH, 12 bytes
    struct BaseHeader {
        first: U32,
        second: U32,
        third: U32,
    }

    /// RETH, 16 bytes
    struct RemoteHeader {
        address: U64,
        key: U32,
        length: U32,
    }

    /// AtomicETH, 28 bytes
    struct AtomicHeader {
        address: U64,
        key: U32,
        swap_or_add: U64,
        compare: U64,
    }

    /// DETH, 8 bytes
    struct DatagramHeader {
        queue_key: U32,
        source: U32,
    }
}
