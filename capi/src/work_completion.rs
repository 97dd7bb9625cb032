//! Completions of the driver as verbs has them.

use crate::abi::{completed, ibv_wc, status, wc_flags};
use ringside_pmd::rdma::{Completion, Operation, Status};
use ringside_spec::verbs::FlushCode;
use ringside_spec::verbs::status::FLUSH_MAJOR;
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Kind of the IP header before a datagram, in the place of the service level, which RoCE does not
/// have. UCX 1.13 reads it there, as mlx5 reports it, and drops IPv4 datagrams without it.
const IPV4: u8 = 2;
/// The same, of IPv6.
const IPV6: u8 = 1;

/// Writes a completion as verbs has it.
#[inline(always)]
pub(crate) fn convert(completion: &Completion, place: &mut MaybeUninit<ibv_wc>) {
    if !completion.is_success() || !completion.is_send() {
        convert_in_full(completion, place);
        return;
    }
    place.write(ibv_wc {
        status: status::SUCCESS,
        vendor_err: 0,
        byte_len: completion.byte_length(),
        ..flushed(
            completion.id,
            completion.queue_pair(),
            opcode_of(completion),
        )
    });
}

#[inline(never)]
fn convert_in_full(completion: &Completion, place: &mut MaybeUninit<ibv_wc>) {
    let mut flags = 0;
    let mut number = 0;
    if let Some(immediate) = completion.immediate() {
        flags |= wc_flags::WITH_IMM;
        number = immediate.to_be();
    } else if completion.is_received()
        && let Some(key) = completion.invalidated_key()
    {
        flags |= wc_flags::WITH_INV;
        number = key;
    }
    let datagram = completion.datagram();
    let mut header_kind = 0;
    if let Some(datagram) = &datagram {
        flags |= wc_flags::GRH;
        header_kind = if datagram.ipv4 { IPV4 } else { IPV6 };
    }
    let (major, minor) = completion.error_codes();
    place.write(ibv_wc {
        wr_id: completion.id,
        status: status_of(completion.status()),
        opcode: opcode_of(completion),
        vendor_err: vendor_error(major, minor),
        byte_len: completion.byte_length(),
        imm_data: number,
        qp_num: completion.queue_pair(),
        src_qp: datagram.map_or(0, |datagram| datagram.source_queue_pair),
        wc_flags: flags,
        pkey_index: 0,
        slid: 0,
        sl: header_kind,
        dlid_path_bits: 0,
    });
}

fn opcode_of(completion: &Completion) -> c_int {
    match completion.operation() {
        Operation::Write => completed::RDMA_WRITE,
        Operation::Read => completed::RDMA_READ,
        Operation::Receive => completed::RECV,
        Operation::ReceiveWriteImmediate => completed::RECV_RDMA_WITH_IMM,
        Operation::BindWindow => completed::BIND_MW,
        Operation::LocalInvalidate => completed::LOCAL_INV,
        _ => completed::SEND,
    }
}

const fn status_of(status: Status) -> c_int {
    match status {
        Status::Success => status::SUCCESS,
        Status::LocalLength => 1,
        Status::LocalOperation => 2,
        Status::LocalProtection => 4,
        Status::Flushed => status::WR_FLUSH_ERR,
        Status::WindowBind => 6,
        Status::RemoteInvalidRequest => 9,
        Status::RemoteAccess => 10,
        Status::RemoteOperation => 11,
        Status::RetryExceeded => 12,
        Status::ReceiverNotReady => 13,
        Status::Fatal | Status::Unreported => 19,
        Status::Unknown { .. } => 21,
    }
}

/// The codes of a failed request as rdma-core's provider for the card shows them.
const fn vendor_error(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}

/// A completion of a request that was posted to a queue pair that has failed.
pub(crate) const fn flushed(id: u64, queue_pair: u32, opcode: c_int) -> ibv_wc {
    ibv_wc {
        wr_id: id,
        status: status::WR_FLUSH_ERR,
        opcode,
        vendor_err: vendor_error(FLUSH_MAJOR, FlushCode::General.code()),
        byte_len: 0,
        imm_data: 0,
        qp_num: queue_pair,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}
