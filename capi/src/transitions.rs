//! The states of queue pairs: the attributes that each transition needs and may change.

use crate::abi::{access, ibv_ah_attr, ibv_gid, ibv_qp_attr, ibv_qp_cap, kind, mask, state};
use ringside_pmd::rdma::Access;
use std::ffi::c_int;

const fn no_route() -> ibv_ah_attr {
    ibv_ah_attr {
        grh: crate::abi::ibv_global_route {
            dgid: ibv_gid {
                raw: [0; 16],
                align: [],
            },
            flow_label: 0,
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
        },
        dlid: 0,
        sl: 0,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 0,
        port_num: 0,
    }
}

pub(crate) const fn no_attributes(cap: ibv_qp_cap) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: state::RESET,
        cur_qp_state: state::RESET,
        path_mtu: 0,
        path_mig_state: 0,
        qkey: 0,
        rq_psn: 0,
        sq_psn: 0,
        dest_qp_num: 0,
        qp_access_flags: 0,
        cap,
        ah_attr: no_route(),
        alt_ah_attr: no_route(),
        pkey_index: 0,
        alt_pkey_index: 0,
        en_sqd_async_notify: 0,
        sq_draining: 0,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
        port_num: 0,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: 0,
    }
}

/// Attributes that a transition needs, and those that it may change besides. Source: the transition
/// table of the InfiniBand specification, as the kernel checks it. Alternate paths are not among
/// them: the kernel refuses them for RoCE.
fn masks(kind: c_int, from: c_int, to: c_int) -> Option<(c_int, c_int)> {
    use mask::*;
    let reliable = kind == kind::RC;
    let table = match (from, to) {
        (state::RESET, state::ERR) => return None,
        (_, state::ERR | state::RESET) => (0, 0),
        (state::RESET, state::INIT) if reliable => (PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
        (state::RESET, state::INIT) => (PKEY_INDEX | PORT | QKEY, 0),
        (state::INIT, state::INIT) if reliable => (0, PKEY_INDEX | PORT | ACCESS_FLAGS),
        (state::INIT, state::INIT) => (0, PKEY_INDEX | PORT | QKEY),
        (state::INIT, state::RTR) if reliable => (
            AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
            ACCESS_FLAGS | PKEY_INDEX,
        ),
        (state::INIT, state::RTR) => (0, PKEY_INDEX | QKEY),
        (state::RTR, state::RTS) if reliable => (
            TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC,
            CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE,
        ),
        (state::RTR, state::RTS) => (SQ_PSN, CUR_STATE | QKEY),
        (state::RTS, state::RTS) if reliable => {
            (0, CUR_STATE | ACCESS_FLAGS | PATH_MIG_STATE | MIN_RNR_TIMER)
        }
        (state::RTS, state::RTS) => (0, CUR_STATE | QKEY),
        (state::RTS, state::SQD) => (0, EN_SQD_ASYNC_NOTIFY),
        (state::SQD, state::SQD) if reliable => (
            0,
            PORT | AV
                | TIMEOUT
                | RETRY_CNT
                | RNR_RETRY
                | MAX_QP_RD_ATOMIC
                | MAX_DEST_RD_ATOMIC
                | ACCESS_FLAGS
                | PKEY_INDEX
                | MIN_RNR_TIMER
                | PATH_MIG_STATE,
        ),
        (state::SQD, state::SQD) => (0, PKEY_INDEX | QKEY),
        (state::SQD, state::RTS) if reliable => {
            (0, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE)
        }
        (state::SQD, state::RTS) => (0, CUR_STATE | QKEY),
        _ => return None,
    };
    Some(table)
}

/// Checks if a mask fits a transition.
///
/// Errors: `EOPNOTSUPP` for bits beyond the standard ones, else `EINVAL`.
pub(crate) fn check(kind: c_int, from: c_int, to: c_int, given: c_int) -> Result<(), c_int> {
    if given & !mask::STANDARD != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let (needed, allowed) = masks(kind, from, to).ok_or(libc::EINVAL)?;
    let complete = given & needed == needed;
    let nothing_else = given & !(needed | allowed | mask::STATE) == 0;
    if complete && nothing_else {
        Ok(())
    } else {
        Err(libc::EINVAL)
    }
}

/// The rights that a queue pair gives its peer. The card has one switch for the peer's writes and
/// the answers to own reads: a queue pair that `reads` has to take writes.
pub(crate) fn remote_access(flags: c_int, reads: bool) -> Access {
    let mut rights = Access::LOCAL_READ;
    if flags & access::REMOTE_WRITE != 0 || reads {
        rights = rights | Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    }
    if flags & access::REMOTE_READ != 0 {
        rights = rights | Access::REMOTE_READ;
    }
    rights
}

/// Keeps the attributes that a mask names.
pub(crate) fn keep(into: &mut ibv_qp_attr, from: &ibv_qp_attr, given: c_int) {
    macro_rules! keep {
        ($($bit:ident: $($field:ident),+;)*) => {$(
            if given & mask::$bit != 0 {
                $(into.$field = from.$field;)+
            }
        )*};
    }
    keep! {
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: ah_attr;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qp_num;
    }
    // Numbers of 24 bits: the device ignores the others.
    for number in [&mut into.rq_psn, &mut into.sq_psn, &mut into.dest_qp_num] {
        *number &= 0xFF_FFFF;
    }
}

#[cfg(test)]
mod tests {
    use super::{check, kind, mask, state};

    const TO_RTR: i32 = mask::STATE
        | mask::AV
        | mask::PATH_MTU
        | mask::DEST_QPN
        | mask::RQ_PSN
        | mask::MAX_DEST_RD_ATOMIC
        | mask::MIN_RNR_TIMER;

    #[test]
    fn a_transition_needs_all_its_attributes_and_takes_no_others() {
        assert_eq!(check(kind::RC, state::INIT, state::RTR, TO_RTR), Ok(()));
        let missing = TO_RTR & !mask::RQ_PSN;
        assert_eq!(
            check(kind::RC, state::INIT, state::RTR, missing),
            Err(libc::EINVAL)
        );
        let beyond = TO_RTR | mask::SQ_PSN;
        assert_eq!(
            check(kind::RC, state::INIT, state::RTR, beyond),
            Err(libc::EINVAL)
        );
        assert_eq!(
            check(kind::UD, state::INIT, state::RTR, mask::STATE),
            Ok(())
        );
        assert_eq!(
            check(kind::RC, state::RESET, state::RTR, TO_RTR),
            Err(libc::EINVAL)
        );
        assert_eq!(check(kind::RC, state::RTS, state::ERR, mask::STATE), Ok(()));
        let alternate = TO_RTR | mask::ALT_PATH;
        assert_eq!(
            check(kind::RC, state::INIT, state::RTR, alternate),
            Err(libc::EINVAL)
        );
        let rate_limit = mask::STATE | 1 << 25;
        assert_eq!(
            check(kind::RC, state::RTS, state::ERR, rate_limit),
            Err(libc::EOPNOTSUPP)
        );
    }
}
