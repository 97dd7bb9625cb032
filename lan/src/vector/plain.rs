//! Bits of a descriptor that decide about the plain case, as its words: those that count, and their
//! values in a plain descriptor.

use ringside_spec::lan::receive::{WriteBack0, WriteBack1, WriteBack2, profile};
use ringside_spec::lan::transmit::{DataCommand, FRAME_BYTES_MIN};

pub(super) const WRITTEN_COUNTS: [u64; 4] = [
    WriteBack0::ZERO.with_profile(0xFF).0,
    WriteBack1::ZERO
        .with_done(true)
        .with_end_of_packet(true)
        .with_l2tag1_present(true)
        .0,
    WriteBack2::ZERO.with_l2tag2_present(true).0,
    0,
];
pub(super) const WRITTEN: [u64; 4] = [
    WriteBack0::ZERO.with_profile(profile::NIC as u64).0,
    WriteBack1::ZERO.with_done(true).with_end_of_packet(true).0,
    0,
    0,
];
#[cfg(target_arch = "x86_64")]
pub(super) const DONE: u64 = WriteBack1::ZERO.with_done(true).0;
/// The length in the first word of a descriptor: 16 bits, of which the field uses 14.
pub(super) const LENGTH: u64 = 0xFFFF << 32;
const _: () = assert!(WriteBack0(LENGTH).bytes() == 0x3FFF);

/// Bits of a packet's first half that are the template's: all but buffer and offset.
pub(super) const PACKET_COUNTS: [u64; 4] = [u64::MAX, u64::MAX, u64::MAX, 0xFFFF << 48];
/// Bits from a packet's length to that of the descriptor.
pub(super) const LENGTH_SHIFT: u32 = 2;
const _: () = assert!(DataCommand(1 << (32 + LENGTH_SHIFT)).buffer_bytes() == 1);
pub(super) const COMMAND: u64 = DataCommand::ZERO.with_end_of_packet(true).0;
pub(super) const SHORTEST: u32 = FRAME_BYTES_MIN as u32;
