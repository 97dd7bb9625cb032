//! Messages to other parts of the card, in the buffer of
//! [`NeighbourDeviceRequest`](super::Opcode::NeighbourDeviceRequest).
//!
//! The E810's drivers reach the registers of the external PHY this way. Source: ice
//! `ice_sbq_cmd.h`; `ice_common.c`, `ice_sbq_rw_reg`.

use crate::lan::wire::wire;
use zerocopy::byteorder::little_endian::{U16, U32};

wire! {
    /// A request to read or write a register.
    pub struct NeighbourRequest "ice_sbq_msg_req": 16 {
        /// see [`PHY`]
        destination "dest_dev": u8,
        /// zero
        source "src_dev": u8,
        /// see [`operation`]
        operation "opcode": u8,
        /// [`FLAGS`]
        flags "flags": u8,
        /// [`BYTE_ENABLES`]
        byte_enables "sbe_fbe": u8,
        /// zero
        function "func_id": u8,
        /// low half of the register's address
        register_low "msg_addr_low": U16,
        /// high half of the register's address
        register_high "msg_addr_high": U32,
        /// value to write; a read leaves it out
        value "data": U32,
    }
    /// The answer.
    pub struct NeighbourAnswer "ice_sbq_msg_cmpl": 8 {
        /// the request's source
        destination "dest_dev": u8,
        /// the request's destination
        source "src_dev": u8,
        /// as requested
        operation "opcode": u8,
        /// as requested
        flags "flags": u8,
        /// value that was read
        value "data": U32,
    }
}

/// The external PHY, as a destination (`rmn_0`).
pub const PHY: u8 = 0x02;
/// Value of [`NeighbourRequest::flags`] (`ICE_SBQ_MSG_FLAGS`).
pub const FLAGS: u8 = 0x40;
/// All bytes of the register (`ICE_SBQ_MSG_SBE_FBE`).
pub const BYTE_ENABLES: u8 = 0x0F;
/// Bytes of a request to read, which has no value.
pub const READ_BYTES: usize = NeighbourRequest::SIZE - 4;

/// Values of [`NeighbourRequest::operation`].
pub mod operation {
    /// reads a register
    pub const READ: u8 = 0;
    /// writes a register
    pub const WRITE: u8 = 1;
}

impl NeighbourRequest {
    /// A request to the PHY for the register at `register`.
    #[must_use]
    pub fn to_phy(operation: u8, register: u32, value: u32) -> Self {
        Self {
            destination: PHY,
            operation,
            flags: FLAGS,
            byte_enables: BYTE_ENABLES,
            register_low: (register as u16).into(),
            register_high: (register >> 16).into(),
            value: value.into(),
            ..Self::zeroed()
        }
    }

    /// Address of the register; `None` if it is beyond 32 bits.
    #[must_use]
    pub fn register(&self) -> Option<u32> {
        let high = self.register_high.get();
        (high >> 16 == 0).then(|| high << 16 | u32::from(self.register_low.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_bytes_that_linux_sends() {
        // ice_write_phy_reg_e810(hw, 0x03000378, 0x3B13B13B): address low 0x0378, high 0x0300.
        let request = NeighbourRequest::to_phy(operation::WRITE, 0x0300_0378, 0x3B13_B13B);
        let bytes = [
            0x02, 0, 1, 0x40, 0x0F, 0, 0x78, 0x03, 0x00, 0x03, 0, 0, 0x3B, 0xB1, 0x13, 0x3B,
        ];
        assert_eq!(request.to_bytes(), bytes);
        assert_eq!(request.register(), Some(0x0300_0378));
        assert_eq!(READ_BYTES, 12);
    }

    #[test]
    fn an_address_beyond_32_bits_is_none() {
        let request = NeighbourRequest {
            register_high: 0x1_0000.into(),
            ..NeighbourRequest::zeroed()
        };
        assert_eq!(request.register(), None);
    }
}
