//! The extended form of posting: requests are built call by call, and posted together.

use crate::abi::{
    ibv_ah, ibv_context, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex,
    ibv_qp_init_attr_ex, ibv_sge, kind, qp_init, request, send_ops,
};
use crate::bind::union_of;
use crate::builder::Builder;
use crate::cancel::Uncancelled;
use crate::errno;
use crate::fragments::entries;
use crate::post::post_all;
use crate::queue_pair::{QueuePairObject, ibv_create_qp};
use std::ffi::{c_int, c_void};

/// Operations of datagram queue pairs.
const DATAGRAM: u64 = send_ops::SEND | send_ops::SEND_WITH_IMM;
/// Operations of connections.
const CONNECTED: u64 = DATAGRAM
    | send_ops::RDMA_WRITE
    | send_ops::RDMA_WRITE_WITH_IMM
    | send_ops::RDMA_READ
    | send_ops::LOCAL_INV
    | send_ops::BIND_MW
    | send_ops::SEND_WITH_INV;

/// Checks the attributes beyond the plain form; returns the operations that the program names, if
/// it names some.
pub(crate) fn operations(wanted: &ibv_qp_init_attr_ex) -> Result<Option<u64>, c_int> {
    const KNOWN: u32 = qp_init::DOMAIN | qp_init::CREATE_FLAGS | qp_init::SEND_OPS_FLAGS;
    let has = |bit: u32| wanted.comp_mask & bit != 0;
    if wanted.comp_mask & !KNOWN != 0 || has(qp_init::CREATE_FLAGS) && wanted.create_flags != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if !has(qp_init::SEND_OPS_FLAGS) {
        return Ok(None);
    }
    let there = match wanted.qp_type {
        kind::RC => CONNECTED,
        _ => DATAGRAM,
    };
    if wanted.send_ops_flags & !there != 0 {
        tracing::warn!(
            operations = wanted.send_ops_flags,
            "no queue pair: the card has no atomics and no segmentation, and binds windows of \
             connections only"
        );
        return Err(libc::EOPNOTSUPP);
    }
    Ok(Some(wanted.send_ops_flags))
}

/// The slot behind `ibv_create_qp_ex`.
///
/// Errors: `EOPNOTSUPP` for features that the card lacks; `EINVAL` without a protection domain.
///
/// # Safety
/// `init` is valid; its objects are of this library.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let wanted = unsafe { &*init };
    let named = match operations(wanted) {
        Ok(named) => named,
        Err(error) => return errno::null(error),
    };
    if wanted.comp_mask & qp_init::DOMAIN == 0 || wanted.pd.is_null() {
        return errno::null(libc::EINVAL);
    }
    // SAFETY: the first 64 bytes of both structures are equal; the caller's promise.
    unsafe {
        let made = ibv_create_qp(wanted.pd, init.cast());
        if let (Some(named), false) = (named, made.is_null()) {
            enable(made, named);
        }
        made
    }
}

/// Gives a queue pair its table of the extended form. `wr_flush` and `wr_atomic_write` stay null:
/// programs (librpma) find out by the pointer if a device has these operations, as the providers of
/// rdma-core that lack them leave it null.
///
/// # Safety
/// `pair` came from [`ibv_create_qp`] just now: no other thread has it.
pub(crate) unsafe fn enable(pair: *mut ibv_qp, named: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        QueuePairObject::of(pair).operations.set(Some(named));
        let table = &mut *pair.cast::<ibv_qp_ex>();
        table.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
        table.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
        table.wr_bind_mw = Some(wr_bind_mw);
        table.wr_local_inv = Some(wr_local_inv);
        table.wr_rdma_read = Some(wr_rdma_read);
        table.wr_rdma_write = Some(wr_rdma_write);
        table.wr_rdma_write_imm = Some(wr_rdma_write_imm);
        table.wr_send = Some(wr_send);
        table.wr_send_imm = Some(wr_send_imm);
        table.wr_send_inv = Some(wr_send_inv);
        table.wr_send_tso = Some(wr_send_tso);
        table.wr_set_ud_addr = Some(wr_set_ud_addr);
        table.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
        table.wr_set_inline_data = Some(wr_set_inline_data);
        table.wr_set_inline_data_list = Some(wr_set_inline_data_list);
        table.wr_set_sge = Some(wr_set_sge);
        table.wr_set_sge_list = Some(wr_set_sge_list);
        table.wr_start = Some(wr_start);
        table.wr_complete = Some(wr_complete);
        table.wr_abort = Some(wr_abort);
    }
}

/// The extended form of a queue pair that was made with operations; else null.
///
/// # Safety
/// `pair` came from [`ibv_create_qp`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(pair: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller's promise.
    match unsafe { QueuePairObject::of(pair) }.operations.get() {
        Some(_) => pair.cast(),
        None => std::ptr::null_mut(),
    }
}

/// Begins a batch: it is this thread's until [`wr_complete`] or [`wr_abort`].
///
/// # Safety
/// `pair` came from [`ibv_qp_to_qp_ex`].
unsafe extern "C" fn wr_start(pair: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise; `batch` is used by the thread that holds the builder, which is
    // this one. What is kept is dropped when the batch ends, before the queue pair.
    unsafe {
        let object = QueuePairObject::of(pair.cast());
        let held = object.builder.hold().keep();
        *object.batch.get() = Some(held);
    }
}

/// Posts the batch and rings the doorbell: all of it, or nothing and an errno value.
///
/// # Safety
/// `pair` came from [`ibv_qp_to_qp_ex`]; this thread called [`wr_start`].
unsafe extern "C" fn wr_complete(pair: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { QueuePairObject::of(pair.cast()) };
    // SAFETY: `batch` belongs to the thread that holds the builder.
    let Some(mut builder) = (unsafe { (*object.batch.get()).take() }) else {
        return libc::EINVAL;
    };
    let result = match builder.finish() {
        // SAFETY: the program's promises about keys and handles; the rest is the builder's.
        Ok(requests) => unsafe { post_all(object, requests) },
        Err(error) => Err(error),
    };
    builder.clear();
    result.err().unwrap_or(0)
}

/// Forgets the batch.
///
/// # Safety
/// As [`wr_complete`].
unsafe extern "C" fn wr_abort(pair: *mut ibv_qp_ex) {
    // SAFETY: as in `wr_complete`.
    let batch = unsafe { (*QueuePairObject::of(pair.cast()).batch.get()).take() };
    if let Some(mut builder) = batch {
        builder.clear();
    }
}

/// Calls `change` with the batch of this thread, if it began one.
///
/// # Safety
/// As [`wr_complete`].
#[inline(always)]
unsafe fn with_batch(pair: *mut ibv_qp_ex, change: impl FnOnce(&mut Builder)) {
    // SAFETY: as in `wr_complete`.
    if let Some(builder) = unsafe { &mut *QueuePairObject::of(pair.cast()).batch.get() } {
        change(builder);
    }
}

/// Adds a request of an operation that the queue pair was made for.
///
/// # Safety
/// As [`wr_complete`].
#[inline(always)]
unsafe fn add(pair: *mut ibv_qp_ex, operation: u64, opcode: c_int, number: u32, wr: [u64; 4]) {
    // SAFETY: the caller's promise.
    let (id, flags, named) = unsafe {
        let named = QueuePairObject::of(pair.cast()).operations.get();
        ((*pair).wr_id, (*pair).wr_flags, named)
    };
    let is_there = named.is_some_and(|named| named & operation != 0);
    // SAFETY: the caller's promise.
    unsafe {
        with_batch(pair, |builder| match is_there {
            true => builder.add(id, flags, opcode, number, wr),
            false => builder.refuse(libc::EOPNOTSUPP),
        });
    }
}

macro_rules! requests {
    ($($name:ident($($argument:ident: $type:ty),*)
        = $operation:ident, $opcode:ident, $number:expr, $wr:expr;)*) => {$(
        /// Adds a request to the batch.
        ///
        /// # Safety
        /// As [`wr_complete`].
        unsafe extern "C" fn $name(pair: *mut ibv_qp_ex $(, $argument: $type)*) {
            // SAFETY: the caller's promise.
            unsafe { add(pair, send_ops::$operation, request::$opcode, $number, $wr) };
        }
    )*};
}

requests! {
    wr_rdma_write(rkey: u32, address: u64)
        = RDMA_WRITE, RDMA_WRITE, 0, [address, rkey.into(), 0, 0];
    wr_rdma_write_imm(rkey: u32, address: u64, immediate: u32)
        = RDMA_WRITE_WITH_IMM, RDMA_WRITE_WITH_IMM, immediate, [address, rkey.into(), 0, 0];
    wr_rdma_read(rkey: u32, address: u64)
        = RDMA_READ, RDMA_READ, 0, [address, rkey.into(), 0, 0];
    wr_send() = SEND, SEND, 0, [0; 4];
    wr_send_imm(immediate: u32) = SEND_WITH_IMM, SEND_WITH_IMM, immediate, [0; 4];
    wr_send_inv(rkey: u32) = SEND_WITH_INV, SEND_WITH_INV, rkey, [0; 4];
    wr_local_inv(key: u32) = LOCAL_INV, LOCAL_INV, key, [0; 4];
}

macro_rules! refused {
    ($($name:ident($($type:ty),*);)*) => {$(
        /// Refuses the batch: the card does not have this operation.
        ///
        /// # Safety
        /// As [`wr_complete`].
        unsafe extern "C" fn $name(pair: *mut ibv_qp_ex $(, _: $type)*) {
            // SAFETY: the caller's promise.
            unsafe { with_batch(pair, |builder| builder.refuse(libc::EOPNOTSUPP)) };
        }
    )*};
}

refused! {
    wr_atomic_cmp_swp(u32, u64, u64, u64);
    wr_atomic_fetch_add(u32, u64, u64);
    wr_send_tso(*mut c_void, u16, u16);
    wr_set_xrc_srqn(u32);
}

/// Adds the bind of a window of type 2 to the batch.
///
/// # Safety
/// As [`wr_complete`]; `window` and the region in `bind` are of this library.
unsafe extern "C" fn wr_bind_mw(
    pair: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    key: u32,
    bind: *const ibv_mw_bind_info,
) {
    // SAFETY: the caller's promise.
    unsafe {
        add(pair, send_ops::BIND_MW, request::BIND_MW, 0, [0; 4]);
        with_batch(pair, |builder| {
            builder.set_bind(union_of(window, key, &*bind))
        });
    }
}

/// # Safety
/// As [`wr_complete`]; `handle` is one of this library, or null.
unsafe extern "C" fn wr_set_ud_addr(
    pair: *mut ibv_qp_ex,
    handle: *mut ibv_ah,
    queue_pair: u32,
    key: u32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        with_batch(pair, |builder| {
            builder.set_destination(handle as u64, queue_pair, key);
        });
    }
}

/// # Safety
/// As [`wr_complete`].
unsafe extern "C" fn wr_set_sge(pair: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let entry = ibv_sge { addr, length, lkey };
    // SAFETY: the caller's promise.
    unsafe { with_batch(pair, |builder| builder.set_entries(&[entry])) };
}

/// # Safety
/// As [`wr_complete`]; `list` has `count` entries.
unsafe extern "C" fn wr_set_sge_list(pair: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the caller's promise.
    unsafe {
        let list = match c_int::try_from(count) {
            Ok(count) => entries(list, count, c_int::MAX as u32),
            Err(_) => Err(libc::EINVAL),
        };
        with_batch(pair, |builder| match list {
            Ok(list) => builder.set_entries(list),
            Err(error) => builder.refuse(error),
        });
    }
}

/// # Safety
/// As [`wr_complete`]; `address` has `length` bytes.
unsafe extern "C" fn wr_set_inline_data(pair: *mut ibv_qp_ex, address: *mut c_void, length: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let data = slice(address.cast(), length);
        with_batch(pair, |builder| {
            builder.set_inline(std::iter::once(data));
        });
    }
}

/// # Safety
/// As [`wr_complete`]; `list` has `count` entries that name memory of the program.
unsafe extern "C" fn wr_set_inline_data_list(
    pair: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let pieces = slice(list, count).iter();
        let pieces = pieces.map(|piece| slice(piece.addr.cast::<u8>().cast_const(), piece.length));
        with_batch(pair, |builder| builder.set_inline(pieces));
    }
}

/// # Safety
/// `list` has `count` entries; without any it may be null.
unsafe fn slice<'a, T>(list: *const T, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(list, count) },
    }
}
