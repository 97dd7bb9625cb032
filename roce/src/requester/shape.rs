//! The packets of a request: opcodes, lengths, headers.

use crate::packet::{Extension, Opcode};
use crate::work::Operation;

/// Opcode and extension of a packet at its place in a message.
#[inline]
pub(super) fn shape(
    operation: Operation,
    length_bytes: u32,
    is_first: bool,
    is_last: bool,
) -> (Opcode, Extension) {
    use Opcode as O;
    match operation {
        Operation::Write { .. } => {
            let remote = Extension::Remote(operation.remote(length_bytes));
            match (is_first, is_last) {
                (true, true) => (O::WRITE_ONLY, remote),
                (true, false) => (O::WRITE_FIRST, remote),
                (false, false) => (O::WRITE_MIDDLE, Extension::None),
                (false, true) => (O::WRITE_LAST, Extension::None),
            }
        }
        Operation::WriteWithImmediate { immediate, .. } => {
            let remote = operation.remote(length_bytes);
            let announced = Extension::RemoteImmediate(remote, immediate);
            match (is_first, is_last) {
                (true, true) => (O::WRITE_ONLY_WITH_IMMEDIATE, announced),
                (true, false) => (O::WRITE_FIRST, Extension::Remote(remote)),
                (false, false) => (O::WRITE_MIDDLE, Extension::None),
                (false, true) => (
                    O::WRITE_LAST_WITH_IMMEDIATE,
                    Extension::Immediate(immediate),
                ),
            }
        }
        _ if !is_last => (
            if is_first {
                O::SEND_FIRST
            } else {
                O::SEND_MIDDLE
            },
            Extension::None,
        ),
        Operation::SendWithImmediate(value) => {
            let opcode = if is_first {
                O::SEND_ONLY_WITH_IMMEDIATE
            } else {
                O::SEND_LAST_WITH_IMMEDIATE
            };
            (opcode, Extension::Immediate(value))
        }
        Operation::SendWithInvalidate(key) => {
            let opcode = if is_first {
                O::SEND_ONLY_WITH_INVALIDATE
            } else {
                O::SEND_LAST_WITH_INVALIDATE
            };
            (opcode, Extension::Invalidate(key))
        }
        // reads and local work have no packets of this shape and never come here
        Operation::Send | Operation::Read { .. } | Operation::Local => (
            if is_first { O::SEND_ONLY } else { O::SEND_LAST },
            Extension::None,
        ),
    }
}
