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
        c"TM error",
        c"TM software rendezvous",
    ];
    pick(&TEXTS, status, c"unknown")
}

/// Text of an asynchronous event.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const TEXTS: [&CStr; 21] = [
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
        c"Device link speed change",
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
    pick(&TEXTS, state, c"unknown")
}

/// Text of a node's type.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_node_type_str(kind: c_int) -> *const c_char {
    const TEXTS: [&CStr; 8] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    pick(&TEXTS, kind, c"unknown")
}

/// Text of a request's opcode.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    const TEXTS: [&CStr; 16] = [
        c"rdma-write",
        c"rdma-write-with-imm",
        c"send",
        c"send-with-imm",
        c"rdma-read",
        c"atomic-cmp-and-swp",
        c"atomic-fetch-and-add",
        c"local-inv",
        c"bind-mw",
        c"send-with-inv",
        c"tso",
        c"driver1",
        c"unknown",
        c"unknown",
        c"flush",
        c"atomic-write",
    ];
    pick(&TEXTS, opcode, c"unknown")
}

/// Rates that are multiples of 2.5 Gb/s: code and multiple, as rdma-core counts them; those of
/// newer links by their names. Source: `ibv_rate_to_mult` of rdma-core 65.
const MULTIPLES: [(c_int, c_int); 15] = [
    (2, 1),
    (5, 2),
    (3, 4),
    (6, 8),
    (4, 12),
    (7, 16),
    (8, 24),
    (9, 32),
    (10, 48),
    (19, 11),
    (20, 20),
    (21, 160),
    (22, 240),
    (23, 320),
    (24, 480),
];

/// Rates: code and Mb/s. Source: InfiniBand specification, table of rates; `enum ibv_rate` and
/// `ibv_rate_to_mbps` of rdma-core 65.
const MEGABITS: [(c_int, c_int); 23] = [
    (2, 2500),
    (5, 5000),
    (3, 10_000),
    (6, 20_000),
    (4, 30_000),
    (7, 40_000),
    (8, 60_000),
    (9, 80_000),
    (10, 120_000),
    (11, 14_062),
    (12, 56_250),
    (13, 112_500),
    (14, 168_750),
    (15, 25_781),
    (16, 103_125),
    (17, 206_250),
    (18, 309_375),
    (19, 28_125),
    (20, 53_125),
    (21, 425_000),
    (22, 637_500),
    (23, 850_000),
    (24, 1_275_000),
];

fn value_of(table: &[(c_int, c_int)], rate: c_int) -> c_int {
    let found = table.iter().find(|(code, _)| *code == rate);
    found.map_or(-1, |(_, value)| *value)
}

fn rate_of(table: &[(c_int, c_int)], value: c_int) -> c_int {
    let found = table.iter().find(|(_, one)| *one == value);
    found.map_or(0, |(code, _)| *code)
}

/// Multiple of 2.5 Gb/s of a rate; -1 if it is none, or unknown.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    value_of(&MULTIPLES, rate)
}

/// Rate of a multiple of 2.5 Gb/s; 0 (the port's current one) if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    rate_of(&MULTIPLES, multiple)
}

/// Mb/s of a rate; -1 if unknown.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    value_of(&MEGABITS, rate)
}

/// Rate of so many Mb/s; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(megabits: c_int) -> c_int {
    rate_of(&MEGABITS, megabits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(given: *const c_char) -> String {
        // SAFETY: a text of the library.
        let text = unsafe { CStr::from_ptr(given) };
        text.to_string_lossy().into_owned()
    }

    #[test]
    fn rates_are_those_of_rdma_core() {
        assert_eq!(
            [2, 9, 19, 24].map(|rate| ibv_rate_to_mult(rate)),
            [1, 32, 11, 480]
        );
        assert!((11..=18).all(|rate| ibv_rate_to_mult(rate) == -1));
        let megabits = [12, 13, 20, 24, 25].map(|rate| ibv_rate_to_mbps(rate));
        assert_eq!(megabits, [56_250, 112_500, 53_125, 1_275_000, -1]);
        for rate in 2..=24 {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
            let multiple = ibv_rate_to_mult(rate);
            assert!(multiple == -1 || mult_to_ibv_rate(multiple) == rate);
        }
        assert_eq!((mult_to_ibv_rate(10), mbps_to_ibv_rate(1)), (0, 0));
    }

    #[test]
    fn texts_are_those_of_rdma_core() {
        assert_eq!(text(ibv_wr_opcode_str(0)), "rdma-write");
        assert_eq!(text(ibv_wr_opcode_str(15)), "atomic-write");
        assert_eq!(text(ibv_wr_opcode_str(16)), "unknown");
        assert_eq!(text(ibv_wc_status_str(22)), "TM error");
        assert_eq!(text(ibv_wc_status_str(23)), "TM software rendezvous");
        assert_eq!(text(ibv_node_type_str(7)), "unspecified");
        assert_eq!(text(ibv_event_type_str(20)), "Device link speed change");
        assert_eq!(text(ibv_port_state_str(6)), "unknown");
    }
}
