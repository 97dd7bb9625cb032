//! Texts and rates.

use std::ffi::{CStr, c_char, c_int};

fn pick(texts: &[&'static CStr], index: c_int, unknown: &'static CStr) -> *const c_char {
    let text = usize::try_from(index)
        .ok()
        .and_then(|index| texts.get(index));
    text.copied().unwrap_or(unknown).as_ptr()
}

/// Text of a completion's status.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const TEXTS: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    pick(&TEXTS, status, c"unknown")
}

/// Text of an asynchronous event.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const TEXTS: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    pick(&TEXTS, event, c"unknown")
}

/// Text of a port's state.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const TEXTS: [&CStr; 6] = [
        c"no state change (NOP)",
        c"down",
        c"init",
        c"armed",
        c"active",
        c"active defer",
    ];
    pick(&TEXTS, state, c"invalid state")
}

/// Text of a node's type.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_node_type_str(kind: c_int) -> *const c_char {
    const TEXTS: [&CStr; 5] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
    ];
    pick(&TEXTS, kind, c"unknown")
}

/// Text of a request's opcode.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    const TEXTS: [&CStr; 11] = [
        c"IBV_WR_RDMA_WRITE",
        c"IBV_WR_RDMA_WRITE_WITH_IMM",
        c"IBV_WR_SEND",
        c"IBV_WR_SEND_WITH_IMM",
        c"IBV_WR_RDMA_READ",
        c"IBV_WR_ATOMIC_CMP_AND_SWP",
        c"IBV_WR_ATOMIC_FETCH_AND_ADD",
        c"IBV_WR_LOCAL_INV",
        c"IBV_WR_BIND_MW",
        c"IBV_WR_SEND_WITH_INV",
        c"IBV_WR_TSO",
    ];
    pick(&TEXTS, opcode, c"IBV_WR_UNKNOWN")
}

/// Rates: code, multiple of 2.5 Gb/s, Mb/s. Source: InfiniBand specification, table of rates.
const RATES: [(c_int, c_int, c_int); 17] = [
    (2, 1, 2500),
    (5, 2, 5000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 6, 14_062),
    (12, 45, 112_500),
    (13, 22, 56_250),
    (14, 67, 168_750),
    (15, 10, 25_781),
    (16, 40, 103_125),
    (17, 82, 206_250),
    (18, 124, 309_375),
];

/// Multiple of 2.5 Gb/s of a rate; -1 if unknown.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES
        .iter()
        .find(|(code, ..)| *code == rate)
        .map_or(-1, |(_, multiple, _)| *multiple)
}

/// Rate of a multiple of 2.5 Gb/s; 0 (the port's current one) if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    RATES
        .iter()
        .find(|(_, one, _)| *one == multiple)
        .map_or(0, |(code, ..)| *code)
}

/// Mb/s of a rate; -1 if unknown.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES
        .iter()
        .find(|(code, ..)| *code == rate)
        .map_or(-1, |(.., megabits)| *megabits)
}

/// Rate of so many Mb/s; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(megabits: c_int) -> c_int {
    RATES
        .iter()
        .find(|(.., one)| *one == megabits)
        .map_or(0, |(code, ..)| *code)
}
