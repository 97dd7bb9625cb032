//! Places of the headers of a packet.

use super::error::OffloadError;
use super::protocol::Layer4;

const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
/// Bytes of the header of IPv6 without extensions.
const IPV6_BYTES: usize = 40;
/// Most bytes of an IP header with extensions: 7 bits count units of 4.
const MAX_IP_BYTES: usize = 127 * 4;

/// Extension headers of IPv6. Source: RFC 8200, section 4.
mod extension {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION: u8 = 60;
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    pub(super) layer_2_bytes: usize,
    /// extensions included
    pub(super) ip_bytes: usize,
    pub(super) is_v6: bool,
    /// that of layer 4
    pub(super) protocol: u8,
    fragment: bool,
    /// the destination address is not that of the last node
    routed: bool,
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([*pair.first()?, *pair.last()?]))
}

impl Headers {
    pub(super) fn find(bytes: &[u8]) -> Result<Self, OffloadError> {
        let split = OffloadError::HeadersSplit(bytes.len());
        let mut at = ETHERNET_BYTES - 2;
        let mut kind = be16(bytes, at).ok_or(split)?;
        for _ in 0..2 {
            if matches!(kind, 0x8100 | 0x88A8 | 0x9100) {
                at += TAG_BYTES;
                kind = be16(bytes, at).ok_or(split)?;
            }
        }
        let layer_2_bytes = at + 2;
        let ip = bytes.get(layer_2_bytes..).ok_or(split)?;
        let first = *ip.first().ok_or(split)?;
        match kind {
            IPV4 => {
                let ip_bytes = usize::from(first & 0xF) * 4;
                if first >> 4 != 4 || ip_bytes < 20 {
                    return Err(OffloadError::MalformedIp);
                }
                let header = ip.get(..ip_bytes).ok_or(split)?;
                Ok(Self {
                    layer_2_bytes,
                    ip_bytes,
                    is_v6: false,
                    protocol: *header.get(9).ok_or(split)?,
                    fragment: be16(header, 6).ok_or(split)? & 0x3FFF != 0,
                    routed: false,
                })
            }
            IPV6 => {
                if first >> 4 != 6 {
                    return Err(OffloadError::MalformedIp);
                }
                let extensions = ip.get(IPV6_BYTES..).ok_or(split)?;
                let next = *ip.get(6).ok_or(split)?;
                Self::behind_extensions(layer_2_bytes, next, extensions, split)
            }
            other => Err(OffloadError::NotIp(other)),
        }
    }

    /// Looks behind the extension headers of IPv6, of which the first is of kind `next`.
    fn behind_extensions(
        layer_2_bytes: usize,
        mut next: u8,
        extensions: &[u8],
        split: OffloadError,
    ) -> Result<Self, OffloadError> {
        use extension::{DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};
        let (mut at, mut routed) = (0, false);
        while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION) {
            let here = extensions.get(at..).unwrap_or_default();
            let Some([after, units, _, nodes_left]) = here.first_chunk() else {
                return Err(split);
            };
            routed |= next == ROUTING && *nodes_left > 0;
            next = *after;
            at += (usize::from(*units) + 1) * 8;
            if IPV6_BYTES + at > MAX_IP_BYTES {
                return Err(OffloadError::IpHeaderBytes(IPV6_BYTES + at));
            }
        }
        Ok(Self {
            layer_2_bytes,
            ip_bytes: IPV6_BYTES + at,
            is_v6: true,
            protocol: next,
            fragment: next == FRAGMENT,
            routed,
        })
    }

    pub(super) fn layer_4(&self) -> Result<Layer4, OffloadError> {
        match self.protocol {
            _ if self.fragment => Err(OffloadError::Fragment),
            _ if self.routed => Err(OffloadError::Routed),
            6 => Ok(Layer4::Tcp),
            17 => Ok(Layer4::Udp),
            132 => Ok(Layer4::Sctp),
            other => Err(OffloadError::Protocol(other)),
        }
    }

    /// Place of the length field of IP.
    pub(super) const fn length_field(&self) -> usize {
        self.layer_2_bytes + if self.is_v6 { 4 } else { 2 }
    }

    /// Bytes of IP that the length field does not count.
    pub(super) const fn uncounted(&self) -> usize {
        if self.is_v6 { IPV6_BYTES } else { 0 }
    }

    /// The end of the IP datagram in a packet of `total` bytes: that of the packet, unless the
    /// length field says that bytes follow. The field of a longer packet cannot say it.
    pub(super) fn datagram_end(&self, bytes: &[u8], total: usize) -> usize {
        let counted = usize::from(be16(bytes, self.length_field()).unwrap_or(0));
        let start = self.layer_2_bytes + self.uncounted();
        let is_said = counted > 0 && start + usize::from(u16::MAX) >= total;
        match is_said {
            true => total.min(start + counted),
            false => total,
        }
    }

    /// Bytes after the IP header according to its length field, so without padding.
    pub(super) fn ip_payload_bytes(&self, bytes: &[u8]) -> u32 {
        let length = u32::from(be16(bytes, self.length_field()).unwrap_or(0));
        length.saturating_sub((self.ip_bytes - self.uncounted()) as u32)
    }

    /// Sum of the pseudo header, folded: the device adds the rest. `length`: 0 where it differs
    /// from segment to segment.
    pub(super) fn pseudo_sum(&self, bytes: &[u8], length: u32) -> u16 {
        let ip = bytes.get(self.layer_2_bytes..).unwrap_or_default();
        let addresses = if self.is_v6 { 8..40 } else { 12..20 };
        let addresses = ip.get(addresses).unwrap_or_default();
        let pairs = addresses.chunks_exact(2);
        let words = pairs.map(|pair| u32::from(be16(pair, 0).unwrap_or(0)));
        let mut sum: u32 = words.sum::<u32>() + u32::from(self.protocol);
        sum += (length >> 16) + (length & 0xFFFF);
        while sum > 0xFFFF {
            sum = (sum >> 16) + (sum & 0xFFFF);
        }
        sum as u16
    }
}

/// Bytes of the layer 4 header; field of its checksum.
pub(super) fn layer_4_header(kind: Layer4, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    match kind {
        Layer4::Tcp => {
            let words = bytes.get(at + 12)? >> 4;
            Some((usize::from(words) * 4, at + 16))
        }
        Layer4::Udp => Some((8, at + 6)),
        Layer4::Sctp => Some((12, at + 8)),
    }
}
