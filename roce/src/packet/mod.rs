//! RoCEv2 frames: bytes to plain values and back.
//!
//! [`parse`] decodes a frame into a [`Packet`] and returns the range of its payload; [`emit`]
//! writes the frame of a [`Packet`], invariant CRC included. Neither does any input or output, and
//! neither panics for any bytes. Inside the process the values are passed unchanged; bytes exist
//! only on an external wire, on a capture tap and where faults are injected.
//!
//! Sources: InfiniBand Architecture Specification volume 1, chapter 9 (transport headers) and
//! annex A17 (RoCEv2: encapsulation and ICRC); RFC 791, RFC 8200, RFC 768, IEEE 802.1Q.

mod error;
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

pub use error::{EmitError, ParseError};
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
