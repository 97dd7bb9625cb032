//! 256-bit vectors. Safety: see the module above.

use super::{Arrivals, Departures, GROUP, Handled, Posted, plain};
use crate::packet::Packet;
use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Four words as a vector.
#[inline]
#[target_feature(enable = "avx2")]
fn words(of: [u64; 4]) -> __m256i {
    let [a, b, c, d] = of.map(|word| word as i64);
    _mm256_set_epi64x(d, c, b, a)
}

/// # Safety
/// AVX2; `groups` groups of descriptors, slots and places for packets exist.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn receive(from: &Arrivals<'_>, into: *mut Packet, groups: usize) -> Handled {
    let (counts, wanted) = (words(plain::WRITTEN_COUNTS), words(plain::WRITTEN));
    let template = words(from.template.0);
    let (limit, zero) = (
        _mm256_set1_epi16(from.buffer_bytes as i16),
        _mm256_setzero_si256(),
    );
    let length = words([plain::LENGTH, 0, 0, 0]);
    let mut handled = Handled::default();
    for group in 0..groups {
        // SAFETY: in bounds: point 1; aligned to 32, or at least 8, which unaligned loads take.
        let (first, slots, packets) = unsafe {
            (
                from.words.as_ptr().add(group * GROUP * 4),
                from.slots.as_ptr().add(group * GROUP),
                into.add(group * GROUP).cast::<__m256i>(),
            )
        };
        // SAFETY: the status of the group's last descriptor: point 3.
        let last = unsafe { &*first.add((GROUP - 1) * 4 + 1) };
        if last.load(Ordering::Acquire) & plain::DONE == 0 {
            break;
        }
        let (mut differs, mut longest, mut shortest) = (zero, zero, _mm256_set1_epi8(-1));
        let mut sums = [zero; 2];
        for at in 0..GROUP {
            // SAFETY: points 1, 3 and 5; packets behind the burst's length are nobody's yet.
            unsafe {
                let written = _mm256_loadu_si256(first.add(at * 4).cast());
                differs = _mm256_or_si256(differs, _mm256_xor_si256(written, wanted));
                longest = _mm256_max_epu16(longest, written);
                shortest = _mm256_min_epu16(shortest, written);
                sums[at / 4] = _mm256_add_epi16(sums[at / 4], written);
                let buffer = _mm256_set1_epi32(*slots.add(at) as i32);
                let start = _mm256_blend_epi32::<0b100>(template, buffer);
                _mm256_storeu_si256(packets.add(at * 2), start);
                _mm256_storeu_si256(packets.add(at * 2 + 1), written);
            }
        }
        let wrong_length = _mm256_or_si256(
            _mm256_subs_epu16(longest, limit),
            _mm256_cmpeq_epi16(shortest, zero),
        );
        let wrong = _mm256_or_si256(
            _mm256_and_si256(differs, counts),
            _mm256_and_si256(wrong_length, length),
        );
        if _mm256_testz_si256(wrong, wrong) == 0 {
            break;
        }
        // Four lengths of at most 16256 bytes fit 16 bits.
        for sum in sums {
            handled.bytes += _mm256_extract_epi16::<2>(sum) as u16 as u64;
        }
        handled.packets += GROUP;
    }
    handled
}

/// # Safety
/// AVX2; `groups` groups of descriptors and slots exist.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn post(buffers: &Posted, words: &[AtomicU64], slots: &[u32], groups: usize) {
    let base = _mm256_set1_epi64x(buffers.base as i64);
    let stride = _mm256_set1_epi64x(buffers.stride.into());
    let zero = _mm256_setzero_si256();
    for four in 0..groups * 2 {
        // SAFETY: points 1 and 4; unaligned accesses. Atomics may be written through a shared
        //         reference.
        unsafe {
            let indices = _mm_loadu_si128(slots.as_ptr().add(four * 4).cast());
            let offsets = _mm256_mul_epu32(_mm256_cvtepu32_epi64(indices), stride);
            let addresses = _mm256_add_epi64(offsets, base);
            let even = _mm256_unpacklo_epi64(addresses, zero);
            let odd = _mm256_unpackhi_epi64(addresses, zero);
            let to = words.as_ptr().cast_mut().add(four * 16).cast::<__m128i>();
            _mm_storeu_si128(to, _mm256_castsi256_si128(even));
            _mm_storeu_si128(to.add(2), _mm256_castsi256_si128(odd));
            _mm_storeu_si128(to.add(4), _mm256_extracti128_si256::<1>(even));
            _mm_storeu_si128(to.add(6), _mm256_extracti128_si256::<1>(odd));
        }
    }
}

/// The words at `offset` of four packets, one to a lane.
///
/// # Safety
/// AVX2; four packets exist.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn of_four(packets: *const Packet, offset: usize) -> __m256i {
    // SAFETY: inside packets that exist: eight bytes at a multiple of eight.
    unsafe {
        let at = |number: usize| packets.add(number).cast::<f64>().byte_add(offset);
        let pair =
            |number: usize| _mm_castpd_si128(_mm_loadh_pd(_mm_load_sd(at(number)), at(number + 1)));
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(pair(0)), pair(2))
    }
}

/// Writes four descriptors and slots from `at` on.
///
/// # Safety
/// AVX2; so many descriptors and slots exist.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn write_four(
    to: &mut Departures<'_>,
    at: usize,
    address: __m256i,
    length: __m256i,
    place: __m256i,
) {
    let command = _mm256_set1_epi64x(plain::COMMAND as i64);
    let shifted = _mm256_slli_epi64::<{ plain::LENGTH_SHIFT as i32 }>(length);
    let word = _mm256_or_si256(shifted, command);
    let low = _mm256_unpacklo_epi64(address, word);
    let high = _mm256_unpackhi_epi64(address, word);
    let even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    let buffers = _mm256_permutevar8x32_epi32(place, even);
    // SAFETY: points 1 and 4; unaligned stores. Atomics may be written through a shared reference.
    unsafe {
        let ring = to.words.as_ptr().cast_mut().add(at * 2).cast::<__m256i>();
        _mm256_storeu_si256(ring, _mm256_permute2x128_si256::<0x20>(low, high));
        _mm256_storeu_si256(ring.add(1), _mm256_permute2x128_si256::<0x31>(low, high));
        let slots = to.slots.as_mut_ptr().add(at).cast();
        _mm_storeu_si128(slots, _mm256_castsi256_si128(buffers));
    }
}

/// # Safety
/// AVX2; `groups` groups of packets, descriptors and slots exist.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn send(packets: &[Packet], to: &mut Departures<'_>, groups: usize) -> Handled {
    let (counts, wanted) = (words(plain::PACKET_COUNTS), words(to.template.0));
    let base = _mm256_set1_epi64x(to.base as i64);
    let stride = _mm256_set1_epi64x(to.stride.into());
    let length = _mm256_set1_epi64x(plain::LENGTH as i64);
    // The length is in the upper half of its word; the lower half is zero.
    let limit = _mm256_set1_epi64x(i64::from(to.bytes_max) << 32);
    let least = _mm256_set1_epi64x(i64::from(plain::SHORTEST) << 32);
    let mut sum = _mm256_setzero_si256();
    let mut done = 0;
    for group in 0..groups {
        // SAFETY: in bounds: point 1.
        let first = unsafe { packets.as_ptr().add(group * GROUP) };
        let mut differs = _mm256_setzero_si256();
        for at in 0..GROUP {
            // SAFETY: the first half of a packet: points 1 and 5.
            let start = unsafe { _mm256_loadu_si256(first.add(at).cast()) };
            differs = _mm256_or_si256(differs, _mm256_xor_si256(start, wanted));
        }
        // SAFETY: four packets each: point 1. Offsets of `buffer`, and of the descriptor.
        let (places, lengths) = unsafe {
            (
                [of_four(first, 8), of_four(first.add(4), 8)],
                [of_four(first, 32), of_four(first.add(4), 32)]
                    .map(|four| _mm256_and_si256(four, length)),
            )
        };
        let longest = _mm256_max_epu32(lengths[0], lengths[1]);
        let shortest = _mm256_min_epu32(lengths[0], lengths[1]);
        let wrong_length = _mm256_or_si256(
            _mm256_xor_si256(_mm256_max_epu32(longest, limit), limit),
            _mm256_xor_si256(_mm256_min_epu32(shortest, least), least),
        );
        let wrong = _mm256_or_si256(_mm256_and_si256(differs, counts), wrong_length);
        if _mm256_testz_si256(wrong, wrong) == 0 {
            break;
        }
        for half in 0..2 {
            let (place, bytes) = (places[half], lengths[half]);
            sum = _mm256_add_epi64(sum, bytes);
            let offsets = _mm256_mul_epu32(place, stride);
            let inside = _mm256_srli_epi64::<32>(place);
            let address = _mm256_add_epi64(_mm256_add_epi64(offsets, inside), base);
            // SAFETY: four descriptors and slots: point 1.
            unsafe { write_four(to, group * GROUP + half * 4, address, bytes, place) };
        }
        done += GROUP;
    }
    let halves = _mm_add_epi64(
        _mm256_castsi256_si128(sum),
        _mm256_extracti128_si256::<1>(sum),
    );
    let bytes = _mm_extract_epi64::<0>(halves) as u64 + _mm_extract_epi64::<1>(halves) as u64;
    Handled {
        packets: done,
        bytes: bytes >> 32,
    }
}
