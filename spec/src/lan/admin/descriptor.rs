//! The descriptor of a control queue.

use super::{LARGE_BUFFER_BYTES, Opcode, ReturnCode};
use crate::lan::wire::{Parameters, parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

wire! {
    /// A command, its answer, or an event.
    pub struct Descriptor "ice_aq_desc": 32 {
        /// see [`DescriptorFlags`]
        flags "flags": U16,
        /// see [`Opcode`]
        opcode "opcode": U16,
        /// bytes of the buffer; in an answer the valid bytes, never more than requested
        data_length "datalen": U16,
        /// see [`ReturnCode`]; only the low eight bits count
        return_code "retval": U16,
        /// the driver's own; in the mailbox the opcode of the message
        cookie_high "cookie_high": U32,
        /// the driver's own; in the mailbox the status of the message
        cookie_low "cookie_low": U32,
        /// parameters of the command; see [`Parameters`]
        parameters "params.raw": [u8; 16],
    }
}

crate::words! {
    /// Flags of a descriptor. Source: ice `ice_adminq_cmd.h`, `ICE_AQ_FLAG_*`.
    pub struct DescriptorFlags: u16 {
        /// the device is done with the descriptor (`DD`)
        done: [0],
        /// the command is complete (`CMP`)
        complete: [1],
        /// the command failed (`ERR`)
        error: [2],
        /// the buffer has more than 512 bytes (`LB`)
        large_buffer: [9],
        /// the device must read the buffer (`RD`)
        read_buffer: [10],
        /// there is a buffer (`BUF`)
        buffer: [12],
        /// no interrupt on completion (`SI`)
        no_interrupt: [13],
    }
}

parameters! {
    /// Parameters that all indirect commands have.
    pub struct Generic "ice_aqc_generic" {
        /// the command's own
        parameter_0 "param0": U32,
        /// the command's own
        parameter_1 "param1": U32,
        /// high half of the buffer's I/O virtual address
        address_high "addr_high": U32,
        /// low half of the buffer's I/O virtual address
        address_low "addr_low": U32,
    }
}

/// The device's use of the buffer of an indirect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The device reads the buffer and writes it back.
    DeviceReads,
    /// The device only writes the buffer.
    DeviceWrites,
}

impl Descriptor {
    /// A command without a buffer.
    #[must_use]
    pub fn direct<P: Parameters>(opcode: Opcode, parameters: &P) -> Self {
        Self {
            flags: DescriptorFlags::ZERO.with_no_interrupt(true).0.into(),
            opcode: opcode.code().into(),
            parameters: parameters.to_raw(),
            ..Self::zeroed()
        }
    }

    /// A command with a buffer of `length_bytes` at I/O virtual address `address`.
    #[must_use]
    pub fn indirect<P: Parameters>(
        opcode: Opcode,
        parameters: &P,
        address: u64,
        length_bytes: u16,
        direction: Direction,
    ) -> Self {
        let mut descriptor = Self::direct(opcode, parameters);
        let flags = DescriptorFlags(descriptor.flags.get())
            .with_buffer(true)
            .with_read_buffer(direction == Direction::DeviceReads)
            .with_large_buffer(usize::from(length_bytes) > LARGE_BUFFER_BYTES);
        descriptor.flags = flags.0.into();
        descriptor.data_length = length_bytes.into();
        descriptor.with_buffer_address(address)
    }

    /// A free descriptor of the receive ring, for one event.
    #[must_use]
    pub fn free_for_event(address: u64, length_bytes: u16) -> Self {
        let flags = DescriptorFlags::ZERO
            .with_buffer(true)
            .with_large_buffer(usize::from(length_bytes) > LARGE_BUFFER_BYTES);
        Self {
            flags: flags.0.into(),
            data_length: length_bytes.into(),
            ..Self::zeroed()
        }
        .with_buffer_address(address)
    }

    /// The flags as a word.
    #[must_use]
    pub fn flags(&self) -> DescriptorFlags {
        DescriptorFlags(self.flags.get())
    }

    /// The opcode, unknown ones kept.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        Opcode::from_code(self.opcode.get())
    }

    /// The return code of an answer, unknown ones kept.
    #[must_use]
    pub fn return_code(&self) -> ReturnCode {
        let [low, _] = self.return_code.get().to_le_bytes();
        ReturnCode::from_code(low)
    }

    /// The parameters, read as those of a certain command.
    #[must_use]
    pub fn parameters<P: Parameters>(&self) -> P {
        P::from_raw(self.parameters)
    }

    /// The same descriptor with other parameters.
    #[must_use]
    pub fn with_parameters<P: Parameters>(mut self, parameters: &P) -> Self {
        self.parameters = parameters.to_raw();
        self
    }

    /// I/O virtual address of the buffer of an indirect command.
    #[must_use]
    pub fn buffer_address(&self) -> u64 {
        let generic: Generic = self.parameters();
        u64::from(generic.address_high.get()) << 32 | u64::from(generic.address_low.get())
    }

    /// The same descriptor with another buffer.
    #[must_use]
    pub fn with_buffer_address(self, address: u64) -> Self {
        let mut generic: Generic = self.parameters();
        generic.address_high = ((address >> 32) as u32).into();
        generic.address_low = (address as u32).into();
        self.with_parameters(&generic)
    }

    /// The firmware's write-back: done, complete, error if `code` is not success, the buffer
    /// flags and address as they came, `length_bytes` of the buffer meant.
    #[must_use]
    pub fn answered<P: Parameters>(
        self,
        code: ReturnCode,
        parameters: &P,
        length_bytes: u16,
    ) -> Self {
        let flags = self
            .flags()
            .with_done(true)
            .with_complete(true)
            .with_error(code != ReturnCode::Ok);
        let address = self.buffer_address();
        let mut answer = self.with_parameters(parameters);
        if flags.buffer() {
            answer = answer.with_buffer_address(address);
        }
        answer.flags = flags.0.into();
        answer.return_code = u16::from(code.code()).into();
        answer.data_length = length_bytes.into();
        answer
    }
}
