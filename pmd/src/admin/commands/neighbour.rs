//! Registers of the external PHY, which the firmware passes messages to.

use super::read_at;
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::generic::NeighbourDeviceRequest;
use ringside_spec::lan::admin::neighbour::{
    NeighbourAnswer, NeighbourRequest, READ_BYTES, operation,
};
use zerocopy::IntoBytes;

impl AdminQueue {
    /// Reads a register of the external PHY (0x0C00).
    pub fn read_phy(&self, register: u32) -> Result<u32, AdminError> {
        let message = NeighbourRequest::to_phy(operation::READ, register, 0);
        let bytes = message.as_bytes();
        self.ask_phy(bytes.get(..READ_BYTES).unwrap_or(bytes))
    }

    /// Writes a register of the external PHY (0x0C00).
    pub fn write_phy(&self, register: u32, value: u32) -> Result<(), AdminError> {
        let message = NeighbourRequest::to_phy(operation::WRITE, register, value);
        self.ask_phy(message.as_bytes())?;
        Ok(())
    }

    fn ask_phy(&self, message: &[u8]) -> Result<u32, AdminError> {
        let opcode = Opcode::NeighbourDeviceRequest;
        let parameters = NeighbourDeviceRequest {
            length_bytes: (message.len() as u16).into(),
            ..NeighbourDeviceRequest::zeroed()
        };
        let answer = self.execute(opcode, &parameters, Data::Send(message))?;
        let answer: NeighbourAnswer = read_at(opcode, &answer.data, 0)?;
        Ok(answer.value.get())
    }
}
