//! Configuration of the two halves, in the units of the engine.

use std::time::Duration;

use crate::packet::{Psn, QpNumber};

/// The RNR retry limit that means "without end".
/// Source: InfiniBand Architecture Specification volume 1, 9.7.5.2.8.
pub const RETRY_FOREVER: u8 = 7;

/// Payload of a full packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathMtu {
    /// 256 bytes
    Bytes256,
    /// 512 bytes
    Bytes512,
    /// 1024 bytes
    Bytes1024,
    /// 2048 bytes
    Bytes2048,
    /// 4096 bytes
    Bytes4096,
}

impl PathMtu {
    /// Every value, smallest first.
    pub const ALL: [Self; 5] = [
        Self::Bytes256,
        Self::Bytes512,
        Self::Bytes1024,
        Self::Bytes2048,
        Self::Bytes4096,
    ];

    /// The value of `bytes` bytes (queue pair context `w6[29:16]`); `None` for any other number.
    #[must_use]
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        Some(match bytes {
            256 => Self::Bytes256,
            512 => Self::Bytes512,
            1024 => Self::Bytes1024,
            2048 => Self::Bytes2048,
            4096 => Self::Bytes4096,
            _ => return None,
        })
    }

    /// The size in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Bytes256 => 256,
            Self::Bytes512 => 512,
            Self::Bytes1024 => 1024,
            Self::Bytes2048 => 2048,
            Self::Bytes4096 => 4096,
        }
    }

    /// Its binary logarithm.
    #[inline]
    const fn shift(self) -> u32 {
        match self {
            Self::Bytes256 => 8,
            Self::Bytes512 => 9,
            Self::Bytes1024 => 10,
            Self::Bytes2048 => 11,
            Self::Bytes4096 => 12,
        }
    }

    /// Packets that a message of `length_bytes` takes; an empty one takes one.
    #[inline]
    #[must_use]
    pub const fn packets(self, length_bytes: u32) -> u32 {
        let full = length_bytes >> self.shift();
        let packets = full + (length_bytes & (self.bytes() - 1) != 0) as u32;
        if packets == 0 { 1 } else { packets }
    }

    /// Full packets that `length_bytes` hold, at least 1.
    #[inline]
    #[must_use]
    pub(crate) const fn full_packets(self, length_bytes: u32) -> u32 {
        let full = length_bytes >> self.shift();
        if full == 0 { 1 } else { full }
    }
}

/// The settings of a [`Requester`](super::Requester).
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// The peer's queue pair. Context `w8[23:0]`.
    pub destination_qp: QpNumber,
    /// Context `w7[47:32]`.
    pub partition_key: u16,
    /// Context `w6[29:16]`.
    pub path_mtu: PathMtu,
    /// Number of the first packet. Context `w10[23:0]`, taken at the step to RTS.
    pub first_psn: Psn,
    /// Reads that may be outstanding (ORD). Context `w20[7:0]`.
    pub outstanding_reads: u8,
    /// Tries after the first without progress before giving up. Context `w16[53:48]`.
    pub retry_limit: u8,
    /// The same for a receiver that is not ready; [`RETRY_FOREVER`] = no limit. Context
    /// `w16[56:54]`.
    pub not_ready_retry_limit: u8,
    /// The wait for an answer before a packet is sent again.
    pub retransmit_after: Duration,
    /// Packets that may be unacknowledged, at least 1. Context `w14[55:32]`.
    pub window_packets: u32,
    /// The number of packets after which an acknowledgement is requested; the end of each message
    /// also requests one.
    pub acknowledge_every_packets: u32,
    /// Work requests that may be outstanding, completions not taken included; rounded up to a
    /// power of two.
    pub capacity: usize,
}

impl RequesterConfig {
    /// A connection to `destination_qp` with the values that the Linux driver puts into a context
    /// (0x400 packets, 7 retries), and 67 ms (4.096 us x 2^14), which a card's RTO minimum of 5 is
    /// taken for.
    #[must_use]
    pub const fn new(destination_qp: QpNumber, path_mtu: PathMtu, first_psn: Psn) -> Self {
        Self {
            destination_qp,
            partition_key: 0xFFFF,
            path_mtu,
            first_psn,
            outstanding_reads: 16,
            retry_limit: 7,
            not_ready_retry_limit: RETRY_FOREVER,
            retransmit_after: Duration::from_nanos(4096 * 16_384),
            window_packets: 0x400,
            acknowledge_every_packets: 64,
            capacity: 256,
        }
    }
}

/// The settings of a [`Responder`](super::Responder).
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// The peer's queue pair. Context `w8[23:0]`.
    pub destination_qp: QpNumber,
    /// Context `w7[47:32]`.
    pub partition_key: u16,
    /// Context `w6[29:16]`.
    pub path_mtu: PathMtu,
    /// Number of the first packet to come. Context `w11[23:0]`, taken at the step to RTR.
    pub expected_psn: Psn,
    /// Reads that may wait or be under way (IRD). Context `w20[18:16]`, decoded.
    pub inbound_reads: u16,
    /// Credit code of acknowledgements, 5 bits; 31 = none are counted. Context `w7[24:20]`.
    pub acknowledge_credits: u8,
    /// The time that a sender shall wait for a receive request, 5 bits, see
    /// [`receiver_not_ready_wait`].
    pub not_ready_timer: u8,
}

impl ResponderConfig {
    /// A connection from `destination_qp` that takes 16 reads, counts no credits and requests a
    /// wait of 0.64 ms where no receive request is posted.
    #[must_use]
    pub const fn new(destination_qp: QpNumber, path_mtu: PathMtu, expected_psn: Psn) -> Self {
        Self {
            destination_qp,
            partition_key: 0xFFFF,
            path_mtu,
            expected_psn,
            inbound_reads: 16,
            acknowledge_credits: 31,
            not_ready_timer: 12,
        }
    }
}

/// The wait that an RNR NAK requests; `timer` is its 5-bit code.
///
/// Source: InfiniBand Architecture Specification volume 1, table 45.
#[must_use]
pub const fn receiver_not_ready_wait(timer: u8) -> Duration {
    const TENS_OF_MICROSECONDS: [u32; 32] = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    // the code has five bits; a larger value from a caller means the longest wait
    let index = if timer < 32 { timer as usize } else { 0 };
    Duration::from_micros(TENS_OF_MICROSECONDS[index] as u64 * 10)
}
