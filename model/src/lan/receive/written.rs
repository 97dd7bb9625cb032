//! Descriptors as they are written back, in every layout.

use crate::frame::Cast;
use crate::lan::ring::Descriptor;
use crate::packet::MacAddress;
use ringside_spec::lan::receive::{DESCRIPTOR_BYTES, SHORT_DESCRIPTOR_BYTES};

/// Words of a descriptor.
pub(super) const DESCRIPTOR_WORDS: usize = DESCRIPTOR_BYTES / 8;

/// Words of a short descriptor.
pub(super) const SHORT_WORDS: usize = SHORT_DESCRIPTOR_BYTES / 8;

/// The code of the kind of a destination.
#[inline]
pub(super) fn cast_of(destination: MacAddress) -> u8 {
    match Cast::of(destination) {
        Cast::Unicast => 0,
        Cast::Multicast => 1,
        Cast::Broadcast => 2,
    }
}

/// Writes a descriptor over the driver's: the word with the done bit after all others. Over a short
/// one, the words that it has.
#[inline]
pub(super) fn write_back<const WORDS: usize>(
    written: [u64; DESCRIPTOR_WORDS],
    descriptor: &Descriptor<'_, WORDS>,
) {
    let [a, b, c, d] = written;
    descriptor.store(0, a);
    descriptor.store(2, c);
    descriptor.store(3, d);
    descriptor.store_release(1, b);
}
