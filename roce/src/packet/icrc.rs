//! The invariant CRC of RoCEv2.

use zerocopy::{FromBytes, IntoBytes};

use super::wire::{BaseHeader, Ipv4Header, Ipv6Header, UdpHeader, VersionAndLength};

/// Length of the invariant CRC at the end of a packet, in bytes.
pub const INVARIANT_CRC_LENGTH: usize = 4;

const IPV4_BYTES: usize = size_of::<Ipv4Header>();
const IPV6_BYTES: usize = size_of::<Ipv6Header>();
const AFTER_IP_BYTES: usize = size_of::<UdpHeader>() + size_of::<BaseHeader>();

/// CRC-32 of eight bytes of ones, in place of the local route header that RoCE lacks.
const PREFIX: u32 = {
    let mut state = u32::MAX;
    let mut bit = 0;
    while bit < 64 {
        // every message bit is one; the polynomial is Ethernet's, reflected
        state = if (state ^ 1) & 1 == 1 {
            (state >> 1) ^ 0xEDB8_8320
        } else {
            state >> 1
        };
        bit += 1;
    }
    !state
};

/// The invariant CRC of `datagram`: from the IP header to the end of the pad, the CRC excluded.
///
/// The fields that routers change count as ones: IPv4 type of service, time to live and header
/// checksum; IPv6 traffic class, flow label and hop limit; UDP checksum; the byte of the base
/// transport header that holds FECN and BECN. On the wire the result goes least significant byte
/// first. `None` if the bytes are neither IPv4 without options nor IPv6, or end inside the base
/// transport header.
/// Source: InfiniBand Architecture Specification, annex A17.3.3.
#[must_use]
pub fn invariant_crc(datagram: &[u8]) -> Option<u32> {
    let mut headers = [0u8; IPV6_BYTES + AFTER_IP_BYTES];
    let ip_bytes = match VersionAndLength(*datagram.first()?).version() {
        4 => IPV4_BYTES,
        6 => IPV6_BYTES,
        _ => return None,
    };
    let (covered, rest) = datagram.split_at_checked(ip_bytes + AFTER_IP_BYTES)?;
    let masked = headers.get_mut(..covered.len())?;
    masked.copy_from_slice(covered);
    mask(masked)?;
    let mut hasher = crc32fast::Hasher::new_with_initial(PREFIX);
    hasher.update(masked);
    hasher.update(rest);
    Some(hasher.finalize())
}

/// Sets the fields that may change on the way to ones.
fn mask(headers: &mut [u8]) -> Option<()> {
    let rest = if VersionAndLength(*headers.first()?).version() == 4 {
        let (ip, rest) = Ipv4Header::mut_from_prefix(headers).ok()?;
        ip.type_of_service = 0xFF;
        ip.time_to_live = 0xFF;
        ip.checksum.set(0xFFFF);
        rest
    } else {
        let (ip, rest) = Ipv6Header::mut_from_prefix(headers).ok()?;
        let first = super::wire::Ipv6First(ip.first.get());
        ip.first
            .set(first.with_traffic_class(0xFF).with_flow_label(0xF_FFFF).0);
        ip.hop_limit = 0xFF;
        rest
    };
    let (udp, rest) = UdpHeader::mut_from_prefix(rest).ok()?;
    udp.checksum.set(0xFFFF);
    let (base, _) = BaseHeader::mut_from_prefix(rest).ok()?;
    *base.second.as_mut_bytes().first_mut()? = 0xFF;
    Some(())
}
