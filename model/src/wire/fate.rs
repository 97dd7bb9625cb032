//! The fate of a frame on a scripted wire.

use crate::packet::{INVARIANT_CRC_LENGTH, invariant_crc};
use std::time::Duration;

/// The action of a scripted wire on one frame. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameFate {
    /// It never arrives.
    pub lost: bool,
    /// It arrives twice.
    pub twice: bool,
    /// This bit behind the addresses changes, counted modulo their number; the invariant CRC stays.
    pub damaged_bit: Option<u32>,
    /// It is marked "congestion experienced", if its sender allows.
    pub marked: bool,
    /// The number of frames that overtake it; it is sent sooner if no further frames come.
    pub overtaken_by: Option<u32>,
    /// It takes so much longer.
    pub later_by: Option<Duration>,
    /// The bit of the payload that changes, counted modulo their number, with a corrected invariant
    /// CRC: no wire does that, but tests of data comparisons need it.
    pub forged_bit: Option<u32>,
}

/// Says what happens to each frame: they are numbered from 0 on, in the order in which they are
/// sent.
pub type Script = Box<dyn FnMut(u64) -> FrameFate + Send>;

/// Ethernet addresses and type, which stay whole.
const ETHERNET_BYTES: usize = 14;

/// IPv4, UDP and base transport header: the least bytes before a payload.
const HEADERS_BYTES: usize = 20 + 8 + 12;

/// Longest extension of the base transport header, an RDMA extended header with immediate data.
const EXTENSION_BYTES: usize = 16 + 4;

/// Changes one bit near the end of the payload of a RoCEv2 packet over IPv4, and makes the
/// invariant CRC fit. Packets whose payload is too short to be sure that it is one stay whole.
pub(super) fn forge(frame: &mut [u8], bit: u32) {
    let Some((_, datagram)) = frame.split_at_mut_checked(ETHERNET_BYTES) else {
        return;
    };
    let Some(&[version, _, high, low]) = datagram.first_chunk::<4>() else {
        return;
    };
    let total = usize::from(u16::from_be_bytes([high, low]));
    let Some(packet) = datagram.get_mut(..total) else {
        return;
    };
    let first = HEADERS_BYTES + EXTENSION_BYTES;
    let crc_at = total.saturating_sub(INVARIANT_CRC_LENGTH);
    // Up to three bytes of padding precede the CRC.
    let last = crc_at.saturating_sub(3);
    if version != 0x45 || first >= last {
        return;
    }
    let bits = (last - first) * 8;
    let chosen = bit as usize % bits;
    if let Some(byte) = packet.get_mut(first + chosen / 8) {
        *byte ^= 1 << (chosen % 8);
    }
    let Some((covered, crc)) = packet.split_at_mut_checked(crc_at) else {
        return;
    };
    if let Some(right) = invariant_crc(covered) {
        crc.copy_from_slice(&right.to_le_bytes());
    }
}
