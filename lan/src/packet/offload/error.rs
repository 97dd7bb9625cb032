//! The error of offloads.

use super::protocol::Layer4;

/// The reason why an offload is not possible for a packet. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// Other handles to the packet exist, and its checksum field has to be written.
    #[error("the packet is shared: copy it before asking for checksums")]
    Shared,
    /// Headers are not in the first segment, or a TCP header says that it is shorter than 20 bytes.
    #[error("the headers do not lie in the packet's first segment of {0} bytes")]
    HeadersSplit(usize),
    /// The packet is neither IPv4 nor IPv6.
    #[error("EtherType {0:#06x} is neither IPv4 nor IPv6: no checksum is possible")]
    NotIp(u16),
    /// An IP header that contradicts itself.
    #[error("the IP header is malformed")]
    MalformedIp,
    /// A fragment, whose layer 4 header is elsewhere.
    #[error("the packet is a fragment: the device cannot compute its checksum")]
    Fragment,
    /// A protocol that the device does not support.
    #[error("the device computes no checksum for IP protocol {0}")]
    Protocol(u8),
    /// A routing header of IPv6 that leads to further nodes: the checksum covers the address of the
    /// last one.
    #[error(
        "an IPv6 routing header names further nodes: compute the packet's checksum in software"
    )]
    Routed,
    /// An IPv6 header with more extension headers than the descriptor can describe.
    #[error("an IP header of {0} bytes with its extensions: the device takes 508 at most")]
    IpHeaderBytes(usize),
    /// Segments out of range.
    #[error("segments of {0} bytes: the device cuts into 64 to 9668 bytes")]
    SegmentBytes(u16),
    /// The device cuts only TCP and UDP into segments.
    #[error("{0:?} cannot be cut into segments")]
    NotSegmentable(Layer4),
    /// No payload, or a longer one than the device cuts. One that fits a single segment is cut,
    /// too.
    #[error("a payload of {0} bytes cannot be cut: the device takes 1 to 262143")]
    Payload(usize),
    /// A packet of several segments with bytes behind its IP datagram: the device would take them
    /// for payload.
    #[error("{0} bytes follow the IP datagram: build the packet without them")]
    Behind(usize),
}
