//! Queues of packets: enabling, contexts, tails and doorbells.

use crate::lan::wire::registers;
use crate::lan::{RegisterArray, RegisterGrid};

registers! {
    /// Receive queues of the function; see [`ReceiveQueueAllocation`].
    RECEIVE_QUEUE_ALLOCATION "PFLAN_RX_QALLOC" = 0x1D_2500;
    /// Transmit queues of the function; see [`TransmitQueueAllocation`].
    TRANSMIT_QUEUE_ALLOCATION "PFLAN_TX_QALLOC" = 0x1D_2580;
    /// Bit 0: boot mode, left with the command clear PXE.
    RECEIVE_CONTROL_0 "GLLAN_RCTL_0" = 0x29_41F8;
    /// Lengths of packets that transmit accepts.
    PACKET_LENGTH_LIMITS "GLCOMM_MIN_MAX_PKT" = 0x0F_C064;
}

/// Receive queues of the whole device.
pub const RECEIVE_QUEUE_COUNT: u32 = 2048;
/// Transmit queues of the whole device.
pub const TRANSMIT_QUEUE_COUNT: u32 = 16384;
/// Dwords of a receive queue's context.
pub const RECEIVE_CONTEXT_DWORDS: u32 = 8;

/// Enables a receive queue; see [`ReceiveQueueControl`].
pub const RECEIVE_QUEUE_CONTROL: RegisterArray =
    RegisterArray::new("QRX_CTRL", 0x12_0000, 4, RECEIVE_QUEUE_COUNT);
/// Context of a receive queue, row = dword 0..8; see
/// [`ReceiveContext`](crate::lan::receive::ReceiveContext).
pub const RECEIVE_QUEUE_CONTEXT: RegisterGrid = RegisterGrid::new(
    "QRX_CONTEXT",
    0x28_0000,
    (0x2000, RECEIVE_CONTEXT_DWORDS),
    (4, RECEIVE_QUEUE_COUNT),
);
/// Tail of a receive queue, bits `[12:0]`; hardware ignores the low three.
pub const RECEIVE_QUEUE_TAIL: RegisterArray =
    RegisterArray::new("QRX_TAIL", 0x29_0000, 4, RECEIVE_QUEUE_COUNT);
/// Throttling of a receive queue; bit 0: no expiry.
pub const RECEIVE_QUEUE_THROTTLE: RegisterArray =
    RegisterArray::new("QRX_ITR", 0x29_2000, 4, RECEIVE_QUEUE_COUNT);
/// Descriptor profile of a receive queue; see [`DescriptorProfile`].
pub const RECEIVE_QUEUE_PROFILE: RegisterArray =
    RegisterArray::new("QRXFLXP_CNTXT", 0x48_0000, 4, RECEIVE_QUEUE_COUNT);
/// Flags that a descriptor profile reports, row = word 0..5, index = profile 0..64.
pub const PROFILE_FLAGS: RegisterGrid =
    RegisterGrid::new("GLFLXP_RXDID_FLAGS", 0x45_D000, (0x100, 5), (4, 64));
/// Metadata words that a descriptor profile reports, row = word 0..6, index = profile 0..64.
pub const PROFILE_WORDS: RegisterGrid =
    RegisterGrid::new("GLFLXP_RXDID_FLX_WRD", 0x45_C800, (0x100, 6), (4, 64));
/// Doorbell of a transmit queue: the index of the next free descriptor.
pub const TRANSMIT_QUEUE_DOORBELL: RegisterArray =
    RegisterArray::new("QTX_COMM_DBELL", 0x2C_0000, 4, TRANSMIT_QUEUE_COUNT);
/// Head of a transmit queue; see [`TransmitQueueHead`].
pub const TRANSMIT_QUEUE_HEAD: RegisterArray =
    RegisterArray::new("QTX_COMM_HEAD", 0x0E_0000, 4, TRANSMIT_QUEUE_COUNT);

/// All arrays of this module.
pub const ARRAYS: &[RegisterArray] = &[
    RECEIVE_QUEUE_CONTROL,
    RECEIVE_QUEUE_TAIL,
    RECEIVE_QUEUE_THROTTLE,
    RECEIVE_QUEUE_PROFILE,
    TRANSMIT_QUEUE_DOORBELL,
    TRANSMIT_QUEUE_HEAD,
];
/// All grids of this module.
pub const GRIDS: &[RegisterGrid] = &[RECEIVE_QUEUE_CONTEXT, PROFILE_FLAGS, PROFILE_WORDS];

crate::words! {
    /// Enables a receive queue. Source: `QRX_CTRL`.
    pub struct ReceiveQueueControl: u32 {
        /// the driver requests that the queue be enabled
        enable_request: [0],
        /// disable without waiting for packets in flight
        fast_disable: [1],
        /// the queue is enabled; follows the request
        enable_status: [2],
        /// context descriptors enabled
        context_enable: [3],
        /// context descriptors status
        context_status: [4],
    }
    /// Descriptor profile of a receive queue. Source: `QRXFLXP_CNTXT`.
    pub struct DescriptorProfile: u32 {
        /// the write-back layout; see [`crate::lan::receive`]
        profile: [5:0],
        /// priority against profiles that filters choose; Linux uses 3
        priority: [10:8],
        /// time stamps are written
        time_stamp: [11],
    }
    /// Four flag indices of a descriptor profile. Source: `GLFLXP_RXDID_FLAGS`.
    pub struct ProfileFlags: u32 {
        /// first flag
        flag_0: [5:0],
        /// second flag
        flag_1: [13:8],
        /// third flag
        flag_2: [21:16],
        /// fourth flag
        flag_3: [29:24],
    }
    /// One metadata word of a descriptor profile. Source: `GLFLXP_RXDID_FLX_WRD_0`.
    pub struct ProfileWord: u32 {
        /// protocol or metadata id
        protocol: [7:0],
        /// offset in the header
        offset: [17:8],
        /// the rule by which the word is made
        operation: [31:30],
    }
    /// Receive queues of a function. Source: `PFLAN_RX_QALLOC`.
    pub struct ReceiveQueueAllocation: u32 {
        /// first queue in the device
        first: [10:0],
        /// last queue in the device
        last: [26:16],
        /// the function has queues
        valid: [31],
    }
    /// Transmit queues of a function. Source: `PFLAN_TX_QALLOC`.
    pub struct TransmitQueueAllocation: u32 {
        /// first queue in the device
        first: [13:0],
        /// last queue in the device
        last: [29:16],
        /// the function has queues
        valid: [31],
    }
    /// Head of a transmit queue. Source: `QTX_COMM_HEAD`.
    pub struct TransmitQueueHead: u32 {
        /// descriptor that the device works on
        head: [12:0],
        /// a report of status is pending
        report_pending: [16],
    }
}
