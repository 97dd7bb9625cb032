//! The header of a frame in a buffer of its own.

use super::written::DESCRIPTOR_WORDS;
use ringside_spec::lan::receive::{LegacyStatus, WriteBack0, WriteBack1, profile};

/// The part of a frame that goes to the header buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub(super) bytes: usize,
    /// The header is longer than the buffer.
    pub(super) overflows: bool,
}

impl Header {
    /// Adds `bytes` of the header to a descriptor that is written back.
    pub(super) fn describe(self, bytes: usize, layout: u8, written: &mut [u64; DESCRIPTOR_WORDS]) {
        let is_split = bytes > 0;
        let [first, second, ..] = written;
        if layout <= profile::LEGACY_32 {
            let status = LegacyStatus(*second)
                .with_header_bytes(bytes as u64)
                .with_header_split(is_split);
            *second = status.0;
            return;
        }
        let lengths = WriteBack0(*first)
            .with_header_bytes(bytes as u64)
            .with_header_split(is_split);
        let status = WriteBack1(*second).with_header_overflow(self.overflows);
        (*first, *second) = (lengths.0, status.0);
    }
}
