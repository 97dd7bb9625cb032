//! The reasons why frames are neither read nor written.

use super::opcode::{ExtensionKind, Opcode};

/// The reason why a frame is not a valid RoCEv2 packet. A receiver drops it and counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The frame ends inside a header.
    #[error("the frame ends inside its {header} header")]
    Truncated {
        /// the header
        header: &'static str,
    },
    /// Neither IPv4 nor IPv6 (ARP, LLDP, ...): not for this engine.
    #[error("ethertype {ether_type:#06x} is neither IPv4 nor IPv6")]
    NotIp {
        /// the type, after the VLAN tag if there is one
        ether_type: u16,
    },
    /// The IP header's version contradicts the ethertype, or its length is below 20 bytes.
    #[error("malformed IP header: version and length byte {first_byte:#04x}")]
    BadIpHeader {
        /// the header's first byte
        first_byte: u8,
    },
    /// IPv4 options, which RoCEv2 does not use.
    #[error("IPv4 header with options ({header_bytes} bytes)")]
    Ipv4Options {
        /// length of the header in bytes
        header_bytes: usize,
    },
    /// The IPv4 header's checksum is wrong.
    #[error("IPv4 header checksum {found:#06x}, computed {computed:#06x}")]
    BadIpv4Checksum {
        /// in the frame
        found: u16,
        /// the expected value
        computed: u16,
    },
    /// A fragment of an IPv4 packet; RoCEv2 packets are never fragmented.
    #[error("fragment of an IPv4 packet")]
    Fragment,
    /// Not UDP (TCP, ICMP, ...): not for this engine.
    #[error("IP protocol {protocol} is not UDP")]
    NotUdp {
        /// protocol or next header
        protocol: u8,
    },
    /// UDP to another port: not for this engine.
    #[error("UDP port {port} is not RoCEv2's 4791")]
    NotRoce {
        /// destination port
        port: u16,
    },
    /// A length field contradicts another or the frame.
    #[error("{header} length is {said} bytes, {available} are present")]
    BadLength {
        /// the header
        header: &'static str,
        /// value of the field
        said: usize,
        /// bytes in the enclosing layer
        available: usize,
    },
    /// The UDP checksum is present and wrong.
    #[error("UDP checksum {found:#06x} does not fit the datagram")]
    BadUdpChecksum {
        /// in the frame
        found: u16,
    },
    /// A transport header version that this engine does not support.
    #[error("transport header version {version}, only 0 is known")]
    BadTransportVersion {
        /// the field's value
        version: u8,
    },
    /// The invariant CRC is wrong: the packet was damaged.
    #[error("invariant CRC {found:#010x}, computed {computed:#010x}")]
    BadInvariantCrc {
        /// in the frame
        found: u32,
        /// the expected value
        computed: u32,
    },
}

/// The reason why a packet cannot be written. Always the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The opcode requires other extension headers than the value holds.
    #[error("{opcode:?} takes extension {wanted:?}, the packet holds {held:?}")]
    ExtensionMismatch {
        /// opcode of the packet
        opcode: Opcode,
        /// extension that it takes
        wanted: ExtensionKind,
        /// extension that it was given
        held: ExtensionKind,
    },
    /// The packet does not fit an IP datagram; cut the payload to the path MTU (at most 4096).
    #[error("payload of {length_bytes} bytes does not fit an IP datagram")]
    PayloadTooLong {
        /// length of the payload
        length_bytes: usize,
    },
}
