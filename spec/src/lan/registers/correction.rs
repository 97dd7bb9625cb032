//! Counters of forward error correction in the coding sublayer of each port: addresses for
//! [`NeighbourDeviceRequest`](crate::lan::admin::Opcode::NeighbourDeviceRequest).
//!
//! A counter has two registers of 16 bits, the low half first. Source: ice `ice_common.h`, `FEC_*`;
//! `ice_common.c`, `ice_aq_get_fec_stats`; `ice_ethtool.c`, `ice_map_port_topology_for_qsfp`.

/// Ports of a device.
pub const PORTS: u8 = 8;

/// Registers of a port, four bytes each: blocks corrected, low and high half, and blocks that
/// cannot be corrected, low and high half.
pub const REGISTERS: u32 = 4;

/// The first register of each port of a quad.
const FIRST: [u32; 4] = [0x02 << 2, 0x42 << 2, 0x4A << 2, 0x52 << 2];

/// The quad of the ports with even numbers, and that of the others.
const EVEN: u32 = 0x330 << 16;
const ODD: u32 = 0x340 << 16;

/// The first register of a port; `None` if the device has no port of that number.
#[must_use]
pub fn first(port: u8) -> Option<u32> {
    let quad = if port.is_multiple_of(2) { EVEN } else { ODD };
    let first = FIRST.get(usize::from(port / 2))?;
    Some(quad | first)
}

/// True for the registers of any port.
#[must_use]
pub fn is_counter(register: u32) -> bool {
    (0..PORTS).filter_map(first).any(|first| {
        register
            .checked_sub(first)
            .is_some_and(|at| at.is_multiple_of(4) && at / 4 < REGISTERS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_the_registers_that_linux_reads() {
        // FEC_RECEIVER_ID_PCS0 and PCS1; FEC_CORR_LOW_REG_PORT0 to FEC_UNCORR_HIGH_REG_PORT3.
        assert_eq!(first(0), Some(0x0330_0008));
        assert_eq!(first(1), Some(0x0340_0008));
        assert_eq!(first(2), Some(0x0330_0108));
        assert_eq!(first(7), Some(0x0340_0148));
        assert_eq!(first(8), None);
        for register in [0x0330_0008, 0x0330_0014, 0x0340_0154] {
            assert!(is_counter(register), "{register:#x}");
        }
        for register in [0x0330_0004, 0x0330_0018, 0x0330_0009, 0x0350_0008] {
            assert!(!is_counter(register), "{register:#x}");
        }
    }
}
