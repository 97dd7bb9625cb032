//! Transmit queues: context, descriptors.
//!
//! A ring has a multiple of [`RING_MULTIPLE`] descriptors of 16 bytes and begins at a multiple of
//! 128 bytes. Its doorbell takes the index of the next free descriptor.

use super::wire::wire;
use zerocopy::byteorder::little_endian::{U16, U32, U64};

mod context;
pub use context::{TransmitContext, owner};

wire! {
    /// Data descriptor: one buffer of a packet.
    pub struct DataDescriptor "ice_tx_desc": 16 {
        /// I/O virtual address of the buffer
        address "buf_addr": U64,
        /// see [`DataCommand`]; written by the device when done
        command "cmd_type_offset_bsz": U64,
    }
    /// Context descriptor: precedes the data descriptors of its packet.
    pub struct ContextDescriptor "ice_tx_ctx_desc": 16 {
        /// see [`Tunneling`]
        tunneling "tunneling_params": U32,
        /// second tag
        l2tag2 "l2tag2": U16,
        /// zero
        reserved "rsvd": U16,
        /// see [`ContextCommand`]
        command "qw1": U64,
    }
    /// Flow director programming descriptor.
    pub struct FilterDescriptor "ice_fltr_desc": 16 {
        /// queue, completion, counter
        queue "qidx_compq_space_stat": U64,
        /// type, command, VSI, id
        command "dtype_cmd_vsi_fdid": U64,
    }
}

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
pub use super::limits::{MAX_RING, RING_ALIGNMENT, RING_MIN, RING_MULTIPLE};
/// Most bytes of one buffer.
pub const MAX_BUFFER_BYTES: u64 = 16383;
/// Most data descriptors of a packet, or of a segment with segmentation.
pub const MAX_DESCRIPTORS_PER_PACKET: u8 = 8;
/// Shortest frame.
pub const FRAME_BYTES_MIN: u64 = 17;
/// Smallest segment of segmentation.
pub const SEGMENT_BYTES_MIN: u64 = 64;
/// Largest segment of segmentation.
pub const MAX_SEGMENT_BYTES: u64 = 9668;

/// Bit of a data descriptor that older cards have for the frame check sequence and that is
/// reserved on this one. iPXE sets it in every descriptor, also on this card. Source: iPXE
/// `intelxl.h`, `INTELXL_TX_DATA_JFDI`; ice `ICE_TX_DESC_CMD_RSV`.
pub const OLD_CHECK_SEQUENCE: u64 = 1 << 6;

/// Values of [`DataCommand::kind`] and its neighbours. Source: ice `ICE_TX_DESC_DTYPE_*`.
pub mod kind {
    /// data
    pub const DATA: u64 = 0;
    /// context
    pub const CONTEXT: u64 = 1;
    /// filter programming
    pub const FILTER: u64 = 8;
    /// the device is done
    pub const DONE: u64 = 0xF;
}

/// Values of [`DataCommand::inner_ip`].
pub mod inner_ip {
    /// not IP
    pub const NONE: u64 = 0;
    /// IPv6
    pub const V6: u64 = 1;
    /// IPv4 without checksum
    pub const V4: u64 = 2;
    /// IPv4 with checksum
    pub const V4_CHECKSUM: u64 = 3;
}

/// Values of [`DataCommand::layer_4`].
pub mod layer_4 {
    /// no checksum
    pub const NONE: u64 = 0;
    /// TCP
    pub const TCP: u64 = 1;
    /// SCTP
    pub const SCTP: u64 = 2;
    /// UDP
    pub const UDP: u64 = 3;
}

/// Values of [`ContextCommand::destination`].
pub mod destination {
    /// the switch decides
    pub const SWITCH: u64 = 0;
    /// to the wire
    pub const UPLINK: u64 = 1;
    /// to local VSIs
    pub const LOCAL: u64 = 2;
    /// to the VSI in [`ContextCommand::segment_bytes`](super::ContextCommand::segment_bytes)
    pub const VSI: u64 = 3;
}

/// Values of [`Tunneling::outer_ip`].
pub mod outer_ip {
    /// no outer header
    pub const NONE: u32 = 0;
    /// IPv6
    pub const V6: u32 = 1;
    /// IPv4 without checksum
    pub const V4: u32 = 2;
    /// IPv4 with checksum
    pub const V4_CHECKSUM: u32 = 3;
}

/// Values of [`Tunneling::kind`].
pub mod tunnel {
    /// none
    pub const NONE: u32 = 0;
    /// in UDP
    pub const UDP: u32 = 1;
    /// GRE
    pub const GRE: u32 = 2;
}

crate::words! {
    /// Second word of a data descriptor. Source: ice `ice_lan_tx_rx.h`, `ICE_TXD_QW1_*`.
    pub struct DataCommand: u64 {
        /// see [`kind`]
        kind: [3:0],
        /// last buffer of the packet
        end_of_packet: [4],
        /// the device reports when it is done, by writing [`kind::DONE`] here
        report_status: [5],
        /// `l2tag1` is inserted
        insert_l2tag1: [7],
        /// not a packet to send
        dummy: [8],
        /// see [`inner_ip`]
        inner_ip: [10:9],
        /// see [`layer_4`]
        layer_4: [13:12],
        /// report an event
        report_event: [14],
        /// length of the layer 2 header in 2 bytes
        layer_2_length_2: [22:16],
        /// length of the IP header in 4 bytes
        ip_length_4: [29:23],
        /// length of the layer 4 header in 4 bytes
        layer_4_length_4: [33:30],
        /// bytes of the buffer
        buffer_bytes: [47:34],
        /// first tag
        l2tag1: [63:48],
    }
    /// Second word of a context descriptor. Source: ice `ICE_TXD_CTX_QW1_*`.
    pub struct ContextCommand: u64 {
        /// see [`kind`]
        kind: [3:0],
        /// segmentation
        segmentation: [4],
        /// time stamp; its index is in `payload_bytes`
        time_stamp: [5],
        /// `l2tag2` is inserted
        insert_l2tag2: [6],
        /// `l2tag2` is inserted into the inner header
        l2tag2_inner: [7],
        /// see [`destination`]
        destination: [9:8],
        /// more of the command
        command_reserved: [10],
        /// payload of all segments in bytes, or the index of the time stamp
        payload_bytes: [47:30],
        /// bytes of a segment, or the destination VSI
        segment_bytes: [63:50],
    }
    /// Tunnel of a context descriptor. Source: ice `ICE_TXD_CTX_QW0_*`.
    pub struct Tunneling: u32 {
        /// see [`outer_ip`]
        outer_ip: [1:0],
        /// length of the outer IP header in 4 bytes
        outer_ip_length_4: [8:2],
        /// see [`tunnel`]
        kind: [10:9],
        /// the outer IP id stays the same
        keep_ip_id: [11],
        /// length of the tunnel's header in 2 bytes
        length_2: [18:12],
        /// outer layer 4 checksum
        outer_checksum: [23],
    }
}

crate::words! {
    /// First word of a flow director programming descriptor: the action for packets. Source: ice
    /// `ice_lan_tx_rx.h`, `ICE_FXD_FLTR_QW0_*`.
    pub struct FilterAction: u64 {
        /// queue, counted from the first of the VSI
        queue: [10:0],
        /// report to the completion queue
        completion_queue: [11],
        /// see [`filter_report`]
        report: [13:12],
        /// the pool of entries
        space: [15:14],
        /// counter
        counter: [28:16],
        /// 0 none, 1 packets, 2 bytes, 3 both
        count: [30:29],
        /// another entry may take its place
        evict: [31],
        /// 0: `queue` alone, n: a group of 2^n queues from `queue` on
        group_log2: [34:32],
        /// 0: the filter chooses no queue
        queue_priority: [37:35],
        /// recipe of the data processing unit
        recipe: [39:38],
        /// drop
        drop: [40],
        /// priority of the flexible word
        flex_priority: [43:41],
        /// number of the flexible word
        flex_number: [47:44],
        /// the flexible word
        flex: [63:48],
    }
    /// Second word of a flow director programming descriptor: which filter.
    /// Source: ice `ice_lan_tx_rx.h`, `ICE_FXD_FLTR_QW1_*`.
    pub struct FilterIdentity: u64 {
        /// [`kind::FILTER`]
        kind: [3:0],
        /// remove it, else add it
        remove: [4],
        /// priority of the profile
        profile_priority: [7:5],
        /// profile, as drivers write it: always 1
        profile: [13:8],
        /// VSI whose packets the filter applies to
        vsi: [23:14],
        /// the packet is not as if it were sent; does not work
        swap: [24],
        /// 0: the id is not shown in receive descriptors
        id_priority: [27:25],
        /// number of the id among the packet's metadata
        id_number: [31:28],
        /// id
        id: [63:32],
    }
}

/// Values of [`FilterAction::report`].
pub mod filter_report {
    /// nothing
    pub const NONE: u64 = 0;
    /// failures
    pub const FAILURES: u64 = 1;
    /// every outcome
    pub const ALWAYS: u64 = 2;
}

impl DataCommand {
    /// The device's write-back.
    pub const DONE: Self = Self(kind::DONE);
}

#[cfg(test)]
mod tests;
