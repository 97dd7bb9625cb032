//! Context of a queue pair: 256 bytes in host memory, named in every command for the queue pair.
//!
//! An IP address is one number of 128 bits, the first octet on the wire the most significant; an
//! IPv4 address is the low 32 bits.

use super::layout::layout;

layout! {
    /// Context of a RoCEv2 queue pair. Words 27 to 31 are unused.
    /// Source: irdma `ctrl.c`, `irdma_sc_qp_setctx_roce`; `defs.h`, IRDMAQPC_*.
    pub struct RoceQueuePairContext: [u64; 32] {
        /// The addresses are IPv4.
        ipv4: bool = 0[3],
        /// Insert `vlan_tag`.
        insert_vlan: bool = 0[5],
        /// The queue pair is QP1.
        is_qp1: bool = 0[6],
        /// Size of a receive work queue element, see [`rq_wqe_size_code`].
        rq_wqe_size_code: u8 = 0[9:8],
        /// `error_rq_index` is valid.
        error_rq_index_valid: bool = 0[19],
        /// Protection domain, 18 bits.
        protection_domain: u32 = 7[63:48] | 0[21:20],
        /// Congestion control as in DCTCP.
        dctcp_enable: bool = 0[25],
        /// Cache hints for received data.
        receive_tph_enable: bool = 0[28],
        /// Cache hints for sent data.
        transmit_tph_enable: bool = 0[29],
        /// Cache hints for the receive queue.
        rq_tph_enable: bool = 0[30],
        /// Cache hints for the send queue.
        sq_tph_enable: bool = 0[31],
        /// Push page, with `push_enable`.
        push_page_index: u16 = 0[41:32],
        /// The queue pair uses a push page.
        push_enable: bool = 0[47],
        /// Version in the base transport header.
        roce_tver: u8 = 0[63:60],
        /// I/O virtual address of the send queue, or the index of its page buffer list.
        sq_address: u64 = 1[63:0],
        /// I/O virtual address of the receive queue, or the index of its page buffer list.
        rq_address: u64 = 2[63:0],
        /// Hop limit.
        ttl: u8 = 3[7:0],
        /// Size of the receive queue, see [`queue_size_code`].
        rq_size_code: u8 = 3[11:8],
        /// Size of the send queue, see [`queue_size_code`].
        sq_size_code: u8 = 3[15:12],
        /// Traffic class.
        tos: u8 = 3[31:24],
        /// UDP source port.
        source_port: u16 = 3[47:32],
        /// UDP destination port: 4791.
        destination_port: u16 = 3[63:48],
        /// Peer's IP address.
        destination_ip: u128 = 4[63:0] | 5[63:0],
        /// Path MTU, bytes, 256..=4096.
        send_mss: u16 = 6[29:16],
        /// VLAN tag with priority.
        vlan_tag: u16 = 6[47:32],
        /// Index of the ARP entry: the destination MAC address.
        arp_index: u16 = 6[63:48],
        /// Flow label.
        flow_label: u32 = 7[19:0],
        /// Credits granted in acknowledges.
        ack_credits: u8 = 7[24:20],
        /// Partition key.
        p_key: u16 = 7[47:32],
        /// Peer's queue pair.
        destination_qp: u32 = 8[23:0],
        /// Queue key of datagrams.
        q_key: u32 = 8[63:32],
        /// Next packet sequence number to send.
        psn_next: u32 = 10[23:0],
        /// Limit sequence number.
        lsn: u32 = 10[55:32],
        /// Packet sequence number expected next.
        expected_psn: u32 = 11[23:0],
        /// Highest packet sequence number sent.
        psn_max: u32 = 12[23:0],
        /// Oldest packet sequence number that is not acknowledged.
        psn_unacknowledged: u32 = 12[55:32],
        /// Congestion window.
        congestion_window: u32 = 14[55:32],
        /// Index of the receive work queue element that failed.
        error_rq_index: u16 = 16[45:32],
        /// Retries without answer.
        retransmit_threshold: u8 = 16[53:48],
        /// Retries while the receiver is not ready; 7 means without end.
        rnr_retry_threshold: u8 = 16[56:54],
        /// Least retransmission timeout; drivers write 5, its unit is not documented.
        rto_min: u8 = 16[63:57],
        /// Completion queue of the send queue.
        tx_cq_number: u32 = 17[18:0],
        /// Completion queue of the receive queue.
        rx_cq_number: u32 = 17[50:32],
        /// Statistics instance, with `use_statistics_instance`.
        statistics_instance: u8 = 18[6:0],
        /// Source MAC address.
        source_mac: [u8; 6] = 19[63:16],
        /// Outbound reads in flight (ORD).
        ord_size: u8 = 20[7:0],
        /// Inbound reads in flight, see [`ird_code`].
        ird_size: u8 = 20[18:16],
        /// A completion queue for datagrams alone.
        ud_private_cq: bool = 20[19],
        /// Inbound writes and read responses are allowed.
        write_and_read_response_ok: bool = 20[20],
        /// Inbound reads are allowed.
        read_ok: bool = 20[21],
        /// Congestion control as in DCQCN.
        dcqcn_enable: bool = 20[22],
        /// Memory windows may be bound.
        bind_enable: bool = 20[23],
        /// Fast register is allowed.
        fast_register_enable: bool = 20[24],
        /// Steering tag 0 (all of memory) is allowed.
        privileged: bool = 20[25],
        /// Use `statistics_instance`.
        use_statistics_instance: bool = 20[26],
        /// Congestion control as in Timely.
        timely_enable: bool = 20[27],
        /// Congestion control by the firmware.
        firmware_congestion_control: bool = 20[28],
        /// Accept packets without ICRC.
        receive_without_icrc: bool = 20[31],
        /// Returned in completions and events.
        completion_context: u64 = 21[63:0],
        /// Cache hint of the send queue.
        sq_tph_value: u8 = 22[7:0],
        /// Cache hint of the receive queue.
        rq_tph_value: u8 = 22[15:8],
        /// Handle of the queue set.
        queue_set_handle: u16 = 22[25:16],
        /// Local IP address.
        local_ip: u128 = 23[63:0] | 24[63:0],
        /// Timely: lower threshold.
        timely_low: u8 = 25[39:32],
        /// Timely: upper threshold.
        timely_high: u16 = 25[63:52],
        /// Index of the remote endpoint: equal to `arp_index`.
        remote_endpoint_index: u32 = 26[16:0],
    }
}

/// UDP destination port of RoCEv2.
pub const ROCE_UDP_PORT: u16 = 4791;
/// UDP source port of a queue pair without a path: the lowest that RoCEv2 uses. Queue pairs of
/// datagrams keep it. Source: irdma `verbs.c`, irdma_roce_fill_and_set_qpctx_info.
pub const SOURCE_PORT_WITHOUT_PATH: u16 = 0xC000;
/// `ack_credits` that drivers set.
pub const ACK_CREDITS: u8 = 0x1E;
/// `lsn` that drivers set.
pub const INITIAL_LSN: u32 = 0xFFFF;
/// `congestion_window` that drivers set.
pub const CONGESTION_WINDOW: u32 = 0x400;
/// `rto_min` that drivers set for every application.
pub const RTO_MIN: u8 = 5;
/// Default partition key.
pub const DEFAULT_P_KEY: u16 = 0xFFFF;

/// Entries for inbound reads of each `ird_size`.
const IRD_ENTRIES: [u32; 5] = [4, 16, 64, 128, 256];

/// `ird_size` for so many inbound reads: two entries each. `None` beyond 128.
/// Source: irdma `ctrl.c`, `irdma_sc_get_encoded_ird_size`.
#[must_use]
pub fn ird_code(inbound_reads: u32) -> Option<u8> {
    let entries = inbound_reads.checked_mul(2)?.checked_next_power_of_two()?;
    let code = IRD_ENTRIES.iter().position(|most| entries <= *most)?;
    u8::try_from(code).ok()
}

/// Entries for inbound reads of a queue pair with this `ird_size`; `None` for an unknown code.
#[must_use]
pub fn ird_entries(code: u8) -> Option<u32> {
    IRD_ENTRIES.get(usize::from(code)).copied()
}

/// `rq_wqe_size_code` of a receive work queue element of 32, 64, 128 or 256 bytes.
/// Source: irdma `utils.c`/`uk.c`, `irdma_get_wqe_shift`.
#[must_use]
pub const fn rq_wqe_size_code(bytes: u32) -> Option<u8> {
    match bytes {
        32 => Some(0),
        64 => Some(1),
        128 => Some(2),
        256 => Some(3),
        _ => None,
    }
}

/// Bytes of a receive work queue element; only the low two bits of the code count.
#[must_use]
pub const fn rq_wqe_bytes(code: u8) -> u32 {
    32 << (code & 3)
}

/// Size code of a work queue of so many quanta; `None` unless a power of two of 4..=32768.
/// Source: irdma `ctrl.c`, `irdma_get_encoded_wqe_size`.
#[must_use]
pub const fn queue_size_code(quanta: u32) -> Option<u8> {
    if quanta.is_power_of_two() && quanta >= 4 && quanta <= 32_768 {
        Some(quanta.ilog2() as u8 - 2)
    } else {
        None
    }
}

/// Quanta of a work queue with this size code; `None` for a code that [`queue_size_code`] never
/// gives.
#[must_use]
pub const fn queue_quanta(code: u8) -> Option<u32> {
    if code <= 13 { Some(4 << code) } else { None }
}
