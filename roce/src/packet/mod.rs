//! RoCEv2 frames: bytes to plain values and back.
//!
//! [`parse`] decodes a frame into a [`Packet`] and returns the range of its payload; [`emit`]
//! writes the frame of a [`Packet`], invariant CRC included. Neither does any input or output, and
//! neither panics for any bytes. Inside the process the values are passed unchanged; bytes exist
//! only on an external wire, on a capture tap and where faults are injected.
//!
//! Sources: InfiniBand Architecture Specification volume 1, chapter 9 (transport headers) and
//! annex A17 (RoCEv2: encapsulation and ICRC); RFC 791, RFC 8200, RFC 768, IEEE 802.1Q.

mod icrc;
mod network;
mod numbers;
mod opcode;
pub mod pcap;
mod transport;
mod wire;

#[cfg(test)]
mod tests;

use std::ops::Range;

pub use icrc::{INVARIANT_CRC_LENGTH, invariant_crc};
pub use network::{Ipv4, Ipv6, MacAddress, Network, Path, ROCE_UDP_PORT, UdpChecksum};
pub use numbers::{Psn, QpNumber};
pub use opcode::{ExtensionKind, Opcode, OpcodeClass};
pub use transport::{
    Acknowledgement, AtomicRequest, Datagram, Extension, NegativeCode, RemoteBuffer, Syndrome,
    TransportHeaders,
};

/// A RoCEv2 packet without its payload: the path that it takes and its transport headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Ethernet, IP and UDP; constant for a connection.
    pub path: Path,
    /// Base transport header and the headers that its opcode adds.
    pub transport: TransportHeaders,
}

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

/// Reads a frame, from its Ethernet header to its invariant CRC (no frame check sequence).
///
/// Returns the headers and the range of the payload in `frame`, pad excluded. Bytes after the IP
/// datagram (Ethernet's padding of short frames) are ignored. Also checked: IPv4 header checksum,
/// every length, UDP checksum if present, invariant CRC.
///
/// # Errors
/// [`ParseError`] names the check that failed; it also identifies frames of other protocols.
pub fn parse(frame: &[u8]) -> Result<(Packet, Range<usize>), ParseError> {
    let (path, ip, udp_payload) = network::parse(frame)?;
    let segment = frame
        .get(udp_payload.clone())
        .ok_or(ParseError::Truncated { header: "UDP" })?;
    let (transport, payload) = transport::parse(segment)?;
    let covered = ip.start..udp_payload.end.saturating_sub(INVARIANT_CRC_LENGTH);
    let trailer = frame
        .get(covered.end..udp_payload.end)
        .and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    let found = u32::from_le_bytes(trailer.ok_or(ParseError::Truncated { header: "ICRC" })?);
    let computed = frame
        .get(covered)
        .and_then(invariant_crc)
        .ok_or(ParseError::Truncated { header: "ICRC" })?;
    if found != computed {
        return Err(ParseError::BadInvariantCrc { found, computed });
    }
    let start = udp_payload.start + payload.start;
    Ok((Packet { path, transport }, start..start + payload.len()))
}

/// True for a whole UDP datagram to RoCEv2's port, with any content: a frame that [`parse`] refuses
/// nevertheless was damaged.
#[must_use]
pub fn is_for_roce(frame: &[u8]) -> bool {
    network::parse(frame).is_ok()
}

/// Marks an IP frame "congestion experienced", as a switch with a growing queue does. Returns false
/// and changes nothing if its sender did not announce that it supports the mark. The invariant CRC
/// leaves the field out. Source: RFC 3168, section 5.
pub fn mark_congestion(frame: &mut [u8]) -> bool {
    network::mark_congestion(frame)
}

/// The 40 bytes that a datagram's receiver finds ahead of a payload of `payload_bytes`: the IPv6
/// header, or 20 bytes of 0 and the IPv4 header.
///
/// Source: InfiniBand Architecture Specification, annex A17.4.5.1.
#[must_use]
pub fn global_route_header(packet: &Packet, payload_bytes: usize) -> [u8; 40] {
    let segment = transport::emitted_length(&packet.transport, payload_bytes).unwrap_or(0);
    network::route_header(&packet.path.network, segment)
}

/// Appends the frame of `packet` with `payload` to `frame`, from the Ethernet header to the
/// invariant CRC.
///
/// Lengths, pad, checksums and the CRC are computed. Nothing is written if it fails.
///
/// # Errors
/// [`EmitError`] if opcode and extension contradict each other or the payload is too long.
pub fn emit(packet: &Packet, payload: &[u8], frame: &mut Vec<u8>) -> Result<(), EmitError> {
    let start = frame.len();
    let segment_bytes = transport::emitted_length(&packet.transport, payload.len())?;
    let ip = network::emit(&packet.path, segment_bytes, frame).map_err(|_| {
        EmitError::PayloadTooLong {
            length_bytes: payload.len(),
        }
    })?;
    transport::emit(&packet.transport, payload, frame);
    let ip = start + ip;
    if let Some(crc) = frame.get(ip..).and_then(invariant_crc) {
        frame.extend_from_slice(&crc.to_le_bytes());
    }
    if packet.path.udp_checksum == UdpChecksum::Computed {
        network::fill_udp_checksum(&packet.path.network, frame, ip);
    }
    Ok(())
}
