//! The packets of a request: opcodes, lengths, headers.

use crate::packet::{Extension, Opcode};
use crate::work::Operation;

/// The place of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Only,
    First,
    Middle,
    Last,
}

impl Place {
    /// True if no packet of the message follows.
    #[inline]
    pub(super) const fn is_last(self) -> bool {
        matches!(self, Self::Only | Self::Last)
    }
}

/// Opcode and extension of a packet of a message of `length_bytes`.
#[inline]
pub(super) fn shape(operation: Operation, length_bytes: u32, place: Place) -> (Opcode, Extension) {
    use Opcode as O;
    use Place::{First, Last, Middle, Only};
    let remote = || operation.remote(length_bytes);
    match (operation, place) {
        (Operation::Write { .. }, Only) => (O::WRITE_ONLY, Extension::Remote(remote())),
        (Operation::WriteWithImmediate { immediate, .. }, Only) => (
            O::WRITE_ONLY_WITH_IMMEDIATE,
            Extension::RemoteImmediate(remote(), immediate),
        ),
        (Operation::Write { .. } | Operation::WriteWithImmediate { .. }, First) => {
            (O::WRITE_FIRST, Extension::Remote(remote()))
        }
        (Operation::Write { .. } | Operation::WriteWithImmediate { .. }, Middle) => {
            (O::WRITE_MIDDLE, Extension::None)
        }
        (Operation::Write { .. }, Last) => (O::WRITE_LAST, Extension::None),
        (Operation::WriteWithImmediate { immediate, .. }, Last) => (
            O::WRITE_LAST_WITH_IMMEDIATE,
            Extension::Immediate(immediate),
        ),
        (_, First) => (O::SEND_FIRST, Extension::None),
        (_, Middle) => (O::SEND_MIDDLE, Extension::None),
        (Operation::SendWithImmediate(value), Only) => {
            (O::SEND_ONLY_WITH_IMMEDIATE, Extension::Immediate(value))
        }
        (Operation::SendWithImmediate(value), Last) => {
            (O::SEND_LAST_WITH_IMMEDIATE, Extension::Immediate(value))
        }
        (Operation::SendWithInvalidate(key), Only) => {
            (O::SEND_ONLY_WITH_INVALIDATE, Extension::Invalidate(key))
        }
        (Operation::SendWithInvalidate(key), Last) => {
            (O::SEND_LAST_WITH_INVALIDATE, Extension::Invalidate(key))
        }
        // Reads and local work have no packets of this shape and never come here.
        (Operation::Send | Operation::Read { .. } | Operation::Local, Only) => {
            (O::SEND_ONLY, Extension::None)
        }
        (Operation::Send | Operation::Read { .. } | Operation::Local, Last) => {
            (O::SEND_LAST, Extension::None)
        }
    }
}
