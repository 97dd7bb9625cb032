//! Counters of ports and VSIs.
//!
//! All but `GLV_REPC` run freely, start anywhere and are not cleared when read: a reader takes a
//! base line and subtracts modulo the width. Wide counters have 40 bits: the low dword at the
//! offset, the high eight bits in the next dword, also readable as one 64-bit access.

use crate::lan::identity::{MAX_PHYSICAL_FUNCTIONS, VSI_COUNT};
use crate::lan::wire::registers;
use crate::lan::{RegisterArray, RegisterGrid};

registers! {
    /// Packets that the receive packet buffer dropped, 32 bits.
    RECEIVE_BUFFER_DROPPED "PRTRPB_RDPC" = 0x0A_C260;
}

/// A counter and how many bits it has before it wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its offset.
    pub registers: RegisterArray,
    /// 32 or 40.
    pub width_bits: u32,
    /// The counted quantity, in the words of the field.
    pub name: &'static str,
}

impl Counter {
    /// The count between two readings of the counter, across at most one wrap.
    #[must_use]
    pub const fn difference(&self, earlier: u64, later: u64) -> u64 {
        later.wrapping_sub(earlier) & ((1 << self.width_bits) - 1)
    }
}

macro_rules! counters {
    ($list:ident, $arrays:ident, $count:expr;
     $( $constant:ident $c_name:literal $offset:literal $width:literal $stride:literal $name:literal; )*) => {
        $(
            #[doc = concat!("Counter of ", $name, ". (`", $c_name, "`)")]
            pub const $constant: Counter = Counter {
                registers: RegisterArray::new($c_name, $offset, $stride, $count),
                width_bits: $width,
                name: $name,
            };
        )*
        /// All of them.
        pub const $list: &[Counter] = &[ $( $constant ),* ];
        const $arrays: &[RegisterArray] = &[ $( $constant.registers ),* ];
    };
}

const PORTS: u32 = MAX_PHYSICAL_FUNCTIONS as u32;
const VSIS: u32 = VSI_COUNT as u32;

counters! { PORT, PORT_ARRAYS, PORTS;
    PORT_RECEIVE_BYTES "GLPRT_GORC" 0x38_0000 40 8 "bytes received with CRC";
    PORT_TRANSMIT_BYTES "GLPRT_GOTC" 0x38_0B40 40 8 "bytes sent with CRC";
    PORT_RECEIVE_UNICAST "GLPRT_UPRC" 0x38_1300 40 8 "unicast packets received";
    PORT_RECEIVE_MULTICAST "GLPRT_MPRC" 0x38_1340 40 8 "multicast packets received";
    PORT_RECEIVE_BROADCAST "GLPRT_BPRC" 0x38_1380 40 8 "broadcast packets received";
    PORT_TRANSMIT_UNICAST "GLPRT_UPTC" 0x38_11C0 40 8 "unicast packets sent";
    PORT_TRANSMIT_MULTICAST "GLPRT_MPTC" 0x38_1200 40 8 "multicast packets sent";
    PORT_TRANSMIT_BROADCAST "GLPRT_BPTC" 0x38_1240 40 8 "broadcast packets sent";
    PORT_RECEIVE_64 "GLPRT_PRC64" 0x38_0900 40 8 "packets of 64 bytes received";
    PORT_RECEIVE_127 "GLPRT_PRC127" 0x38_0940 40 8 "packets of 65 to 127 bytes received";
    PORT_RECEIVE_255 "GLPRT_PRC255" 0x38_0980 40 8 "packets of 128 to 255 bytes received";
    PORT_RECEIVE_511 "GLPRT_PRC511" 0x38_09C0 40 8 "packets of 256 to 511 bytes received";
    PORT_RECEIVE_1023 "GLPRT_PRC1023" 0x38_0A00 40 8 "packets of 512 to 1023 bytes received";
    PORT_RECEIVE_1522 "GLPRT_PRC1522" 0x38_0A40 40 8 "packets of 1024 to 1522 bytes received";
    PORT_RECEIVE_9522 "GLPRT_PRC9522" 0x38_0A80 40 8 "packets of 1523 to 9522 bytes received";
    PORT_TRANSMIT_64 "GLPRT_PTC64" 0x38_0B80 40 8 "packets of 64 bytes sent";
    PORT_TRANSMIT_127 "GLPRT_PTC127" 0x38_0BC0 40 8 "packets of 65 to 127 bytes sent";
    PORT_TRANSMIT_255 "GLPRT_PTC255" 0x38_0C00 40 8 "packets of 128 to 255 bytes sent";
    PORT_TRANSMIT_511 "GLPRT_PTC511" 0x38_0C40 40 8 "packets of 256 to 511 bytes sent";
    PORT_TRANSMIT_1023 "GLPRT_PTC1023" 0x38_0C80 40 8 "packets of 512 to 1023 bytes sent";
    PORT_TRANSMIT_1522 "GLPRT_PTC1522" 0x38_0CC0 40 8 "packets of 1024 to 1522 bytes sent";
    PORT_TRANSMIT_9522 "GLPRT_PTC9522" 0x38_0D00 40 8 "packets of 1523 to 9522 bytes sent";
    PORT_CRC_ERRORS "GLPRT_CRCERRS" 0x38_0100 32 8 "packets with a bad CRC";
    PORT_ILLEGAL_BYTES "GLPRT_ILLERRC" 0x38_01C0 32 8 "packets with illegal bytes";
    PORT_LOCAL_FAULTS "GLPRT_MLFC" 0x38_0040 32 8 "local faults of the MAC";
    PORT_REMOTE_FAULTS "GLPRT_MRFC" 0x38_0080 32 8 "remote faults of the MAC";
    PORT_LENGTH_ERRORS "GLPRT_RLEC" 0x38_0140 32 8 "packets with a wrong length";
    PORT_RECEIVE_UNDERSIZE "GLPRT_RUC" 0x38_0200 32 8 "packets that were too short";
    PORT_RECEIVE_OVERSIZE "GLPRT_ROC" 0x38_0240 32 8 "packets that were too long";
    PORT_PAUSE_ON_RECEIVED "GLPRT_LXONRXC" 0x38_0280 32 8 "link XON received";
    PORT_PAUSE_OFF_RECEIVED "GLPRT_LXOFFRXC" 0x38_02C0 32 8 "link XOFF received";
    PORT_PAUSE_ON_SENT "GLPRT_LXONTXC" 0x38_1140 32 8 "link XON sent";
    PORT_PAUSE_OFF_SENT "GLPRT_LXOFFTXC" 0x38_1180 32 8 "link XOFF sent";
    PORT_RECEIVE_FRAGMENTS "GLPRT_RFC" 0x38_0AC0 32 8 "fragments with a bad CRC";
    PORT_RECEIVE_JABBER "GLPRT_RJC" 0x38_0B00 32 8 "packets too long with a bad CRC";
    PORT_TRANSMIT_LINK_DOWN "GLPRT_TDOLD" 0x38_1280 32 8 "packets dropped because the link was down";
}

counters! { VSI, VSI_ARRAYS, VSIS;
    VSI_RECEIVE_BYTES "GLV_GORC" 0x3B_0000 40 8 "bytes received with CRC";
    VSI_RECEIVE_UNICAST "GLV_UPRC" 0x3B_2000 40 8 "unicast packets received";
    VSI_RECEIVE_MULTICAST "GLV_MPRC" 0x3B_4000 40 8 "multicast packets received";
    VSI_RECEIVE_BROADCAST "GLV_BPRC" 0x3B_6000 40 8 "broadcast packets received";
    VSI_TRANSMIT_BYTES "GLV_GOTC" 0x30_0000 40 8 "bytes sent without CRC";
    VSI_TRANSMIT_UNICAST "GLV_UPTC" 0x30_A000 40 8 "unicast packets sent";
    VSI_TRANSMIT_MULTICAST "GLV_MPTC" 0x30_C000 40 8 "multicast packets sent";
    VSI_TRANSMIT_BROADCAST "GLV_BPTC" 0x30_E000 40 8 "broadcast packets sent";
    // The second one tells apart the causes of what the first one counts, in two halves that stay
    // at 0xFFFF until a write clears the register. Source: FreeBSD `ice_common.c`,
    // ice_stat_update_repc.
    VSI_RECEIVE_DROPPED "GLV_RDPC" 0x29_4C04 32 4 "packets that receive queues dropped";
    VSI_RECEIVE_ERRORS "GLV_REPC" 0x29_5804 32 4 "these: bits 15:0 no descriptor, bits 31:16 errors";
    VSI_TRANSMIT_ERRORS "GLV_TEPC" 0x31_2000 32 4 "packets that were not sent because of errors";
}

/// Priority XON received, 32 bits, row = priority, index = port.
pub const PRIORITY_ON_RECEIVED: RegisterGrid =
    RegisterGrid::new("GLPRT_PXONRXC", 0x38_0300, (0x40, 8), (8, PORTS));
/// Priority XOFF received, 32 bits, row = priority, index = port.
pub const PRIORITY_OFF_RECEIVED: RegisterGrid =
    RegisterGrid::new("GLPRT_PXOFFRXC", 0x38_0500, (0x40, 8), (8, PORTS));
/// Changes from XON to XOFF, 32 bits, row = priority, index = port.
pub const PRIORITY_ON_TO_OFF: RegisterGrid =
    RegisterGrid::new("GLPRT_RXON2OFFCNT", 0x38_0700, (0x40, 8), (8, PORTS));
/// Priority XON sent, 32 bits, row = priority, index = port.
pub const PRIORITY_ON_SENT: RegisterGrid =
    RegisterGrid::new("GLPRT_PXONTXC", 0x38_0D40, (0x40, 8), (8, PORTS));
/// Priority XOFF sent, 32 bits, row = priority, index = port.
pub const PRIORITY_OFF_SENT: RegisterGrid =
    RegisterGrid::new("GLPRT_PXOFFTXC", 0x38_0F40, (0x40, 8), (8, PORTS));

/// All grids of this module.
pub const GRIDS: &[RegisterGrid] = &[
    PRIORITY_ON_RECEIVED,
    PRIORITY_OFF_RECEIVED,
    PRIORITY_ON_TO_OFF,
    PRIORITY_ON_SENT,
    PRIORITY_OFF_SENT,
];

/// Flow director matches: the high eight bits of each counter.
pub const FLOW_DIRECTOR_MATCHES_HIGH: RegisterArray =
    RegisterArray::new("GLSTAT_FD_CNT0H", 0x3A_0004, 8, 4096);
/// Flow director matches, 40 bits: the low half of each counter.
pub const FLOW_DIRECTOR_MATCHES: RegisterArray =
    RegisterArray::new("GLSTAT_FD_CNT0L", 0x3A_0000, 8, 4096);

/// All arrays of this module.
pub const ARRAYS: &[RegisterArray] = &concat_arrays();

const fn concat_arrays() -> [RegisterArray; PORT_ARRAYS.len() + VSI_ARRAYS.len() + 2] {
    let mut all = [FLOW_DIRECTOR_MATCHES; PORT_ARRAYS.len() + VSI_ARRAYS.len() + 2];
    let mut next = 0;
    while next < PORT_ARRAYS.len() {
        all[next] = PORT_ARRAYS[next];
        next += 1;
    }
    let mut vsi = 0;
    while vsi < VSI_ARRAYS.len() {
        all[next + vsi] = VSI_ARRAYS[vsi];
        vsi += 1;
    }
    all[next + vsi] = FLOW_DIRECTOR_MATCHES_HIGH;
    all
}
