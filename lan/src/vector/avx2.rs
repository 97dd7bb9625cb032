//! 256-bit vectors. Safety: see the module above.

use super::{GROUP, Handled, Outgoing, Posted, Template, plain};
use crate::packet::Packet;
use crate::shared::RUN;
use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Four words as a vector.
#[inline]
#[target_feature(enable = "avx2")]
fn words(of: [u64; 4]) -> __m256i {
    let [a, b, c, d] = of.map(|word| word as i64);
    _mm256_set_epi64x(d, c, b, a)
}

/// The same value, of which the compiler knows nothing: it cannot load it again from its place, and
/// what it knows of some bits does not lead it to other instructions.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn once(mut value: __m256i) -> __m256i {
    // SAFETY: no instruction at all.
    unsafe {
        asm!("/* {} */", inout(ymm_reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value
}

/// The 16-bit words number 2 of eight vectors: the lengths of eight descriptors.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn lengths_of(first_words: [__m128i; GROUP]) -> __m128i {
    let [a, b, c, d, e, f, g, h] = first_words;
    let four = |a, b, c, d| {
        // Words 2 and 3 of each are the upper half: a, b, a, b and c, d, c, d.
        let (ab, cd) = (_mm_unpacklo_epi16(a, b), _mm_unpacklo_epi16(c, d));
        _mm_unpackhi_epi32(ab, cd)
    };
    _mm_unpacklo_epi64(four(a, b, c, d), four(e, f, g, h))
}

/// All bits of each length that is zero, and some bits of each above `limit`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn wrong_lengths(lengths: __m128i, limit: __m128i) -> __m128i {
    let none = _mm_cmpeq_epi16(lengths, _mm_setzero_si128());
    _mm_or_si128(_mm_subs_epu16(lengths, limit), none)
}

/// The sum of four counts of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum_of(counts: __m128i) -> u64 {
    let two = _mm_add_epi32(counts, _mm_shuffle_epi32::<0b1110>(counts));
    let one = _mm_add_epi32(two, _mm_shuffle_epi32::<1>(two));
    u64::from(_mm_cvtsi128_si32(one) as u32)
}

/// Lower halves of the first two words of two descriptors, and of their third and fourth words: all
/// bits that tell a plain descriptor.
#[inline]
#[target_feature(enable = "avx2")]
fn of_two(even: __m256i, odd: __m256i) -> __m256i {
    let (even, odd) = (_mm256_castsi256_ps(even), _mm256_castsi256_ps(odd));
    _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(even, odd))
}

const LOWER: u64 = 0xFFFF_FFFF;
const _: () = assert!(
    (plain::WRITTEN_COUNTS[0]
        | plain::WRITTEN_COUNTS[1]
        | plain::WRITTEN_COUNTS[2]
        | plain::WRITTEN_COUNTS[3])
        <= LOWER
);

/// # Safety
/// AVX2; `groups` groups of descriptors, slots with a margin around, and places for packets exist.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn receive(
    descriptors: *const AtomicU64,
    slots: *const u32,
    into: *mut Packet,
    groups: usize,
    template: &Template,
    buffer_bytes: u16,
) -> Handled {
    let (counts, wanted) = (words(plain::WRITTEN_COUNTS), words(plain::WRITTEN));
    let (counts, wanted) = (of_two(counts, counts), of_two(wanted, wanted));
    let template = words(template.0);
    let (limit, ones) = (_mm_set1_epi16(buffer_bytes as i16), _mm_set1_epi16(1));
    let mut sums = _mm_setzero_si128();
    let mut packets = 0;
    for group in 0..groups {
        // SAFETY: in bounds: point 1; aligned to 32, or at least 8, which unaligned loads take.
        let (first, slots, into) = unsafe {
            (
                descriptors.add(group * GROUP * 4),
                slots.add(group * GROUP),
                into.add(group * GROUP).cast::<__m256i>(),
            )
        };
        // SAFETY: the status of the group's last descriptor: point 3.
        let last = unsafe { &*first.add((GROUP - 1) * 4 + 1) };
        if last.load(Ordering::Acquire) & plain::DONE == 0 {
            break;
        }
        let mut written = [_mm256_setzero_si256(); GROUP];
        for (at, written) in written.iter_mut().enumerate() {
            // SAFETY: points 1, 3 and 5; packets behind the burst's length have no owner yet.
            unsafe {
                *written = once(_mm256_loadu_si256(first.add(at * 4).cast()));
                // The buffer becomes the sixth value: the margin makes that possible.
                let buffer = _mm256_loadu_si256(slots.add(at).sub(6).cast());
                let start = _mm256_blend_epi32::<0b100_0000>(template, buffer);
                _mm256_storeu_si256(into.add(at * 2), start);
                _mm256_storeu_si256(into.add(at * 2 + 1), *written);
            }
        }
        let mut differs = _mm256_setzero_si256();
        for two in written.as_chunks::<2>().0 {
            let two = _mm256_xor_si256(of_two(two[0], two[1]), wanted);
            differs = _mm256_or_si256(differs, two);
        }
        let lengths = lengths_of(written.map(|all| _mm256_castsi256_si128(all)));
        let wrong_length = _mm256_zextsi128_si256(wrong_lengths(lengths, limit));
        let wrong = _mm256_or_si256(_mm256_and_si256(differs, counts), wrong_length);
        if _mm256_testz_si256(wrong, wrong) == 0 {
            break;
        }
        // Lengths are at most 16256: no sign bit, and 64 of them fit 32 bits.
        sums = _mm_add_epi32(sums, _mm_madd_epi16(lengths, ones));
        packets += GROUP;
    }
    Handled {
        packets,
        bytes: sum_of(sums),
    }
}

/// # Safety
/// AVX2; `groups` groups of descriptors and slots exist.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn post(
    buffers: &Posted,
    words: *const AtomicU64,
    slots: *const u32,
    groups: usize,
) {
    let base = _mm256_set1_epi64x(buffers.base as i64);
    let stride = _mm256_set1_epi64x(buffers.stride.into());
    let zero = _mm256_setzero_si256();
    for group in 0..groups {
        for half in 0..2 {
            let four = group * 2 + half;
            // SAFETY: points 1 and 4; unaligned accesses. Atomics may be written through a shared
            //         reference.
            unsafe {
                let indices = _mm_loadu_si128(slots.add(four * 4).cast());
                let offsets = _mm256_mul_epu32(_mm256_cvtepu32_epi64(indices), stride);
                let addresses = _mm256_add_epi64(offsets, base);
                let even = _mm256_unpacklo_epi64(addresses, zero);
                let odd = _mm256_unpackhi_epi64(addresses, zero);
                let to = words.cast_mut().add(four * 16).cast::<__m128i>();
                _mm_storeu_si128(to, _mm256_castsi256_si128(even));
                _mm_storeu_si128(to.add(2), _mm256_castsi256_si128(odd));
                _mm_storeu_si128(to.add(4), _mm256_extracti128_si256::<1>(even));
                _mm_storeu_si128(to.add(6), _mm256_extracti128_si256::<1>(odd));
            }
        }
    }
}

/// The same for a run.
///
/// # Safety
/// AVX2; [`RUN`] descriptors and slots exist.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn post_run(buffers: &Posted, words: *const AtomicU64, slots: *const u32) {
    // SAFETY: the caller's.
    unsafe { post(buffers, words, slots, RUN / GROUP) }
}

/// Places and lengths of two packets: their words 3 and 4.
///
/// # Safety
/// AVX2; two packets exist.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn places_and_lengths(packets: *const Packet) -> __m256i {
    // SAFETY: inside packets that exist: words 3 and 4 of each; unaligned loads.
    unsafe {
        let at = |number: usize| _mm_loadu_si128(packets.add(number).byte_add(24).cast());
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(at(0)), at(1))
    }
}

/// Values of each second word, alike in all descriptors.
struct Fixed {
    /// base address, command
    base: __m256i,
    /// bytes from buffer to buffer, zero
    stride: __m256i,
    /// the places that the bytes of offset and length move to
    moves: __m256i,
    /// the shift of the offset (none), and that of the length
    shifts: __m256i,
}

impl Fixed {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(outgoing: &Outgoing) -> Self {
        const NONE: u64 = 0x8080_8080_8080_8080;
        // The length stays in bytes 4 and 5 of its word, and the offset goes to bytes 0 and 1.
        const OFFSET: u64 = NONE & !0xFFFF | 0x0504;
        const LENGTH: u64 = NONE & !(0xFFFF << 32) | 0x0D0C << 32;
        let twice = |low: u64, high: u64| words([low, high, low, high]);
        Self {
            base: twice(outgoing.base, plain::COMMAND),
            stride: once(twice(outgoing.stride.into(), 0)),
            moves: twice(OFFSET, LENGTH),
            shifts: twice(0, plain::LENGTH_SHIFT.into()),
        }
    }

    /// The descriptors of two packets.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn descriptors(&self, two: __m256i) -> __m256i {
        let moved = _mm256_sllv_epi64(_mm256_shuffle_epi8(two, self.moves), self.shifts);
        let fixed = _mm256_add_epi64(_mm256_mul_epu32(two, self.stride), self.base);
        _mm256_add_epi64(fixed, moved)
    }
}

/// The buffers of eight packets, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn buffers_of(twos: [__m256i; 4]) -> __m256i {
    let early = _mm256_unpacklo_epi32(twos[0], twos[1]);
    let late = _mm256_unpacklo_epi32(twos[2], twos[3]);
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(early, late), order)
}

/// The lengths of eight packets, 32 bits each, in any order.
#[inline]
#[target_feature(enable = "avx2")]
fn sent_lengths(twos: [__m256i; 4]) -> __m256i {
    let early = _mm256_unpackhi_epi32(twos[0], twos[1]);
    let late = _mm256_unpackhi_epi32(twos[2], twos[3]);
    let lengths = _mm256_unpackhi_epi64(early, late);
    _mm256_blend_epi16::<0b0101_0101>(_mm256_setzero_si256(), lengths)
}

/// # Safety
/// AVX2; `groups` groups of packets, descriptors and slots exist.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn send(
    packets: *const Packet,
    ring: *const AtomicU64,
    slots: *mut u32,
    groups: usize,
    outgoing: &Outgoing,
) -> Handled {
    let (counts, wanted) = (words(plain::PACKET_COUNTS), words(outgoing.template.0));
    let fixed = Fixed::new(outgoing);
    let least = _mm256_set1_epi32(plain::SHORTEST as i32);
    let span = _mm256_set1_epi32((outgoing.bytes_max - plain::SHORTEST) as i32);
    let mut sums = _mm256_setzero_si256();
    let mut done = 0;
    for group in 0..groups {
        // SAFETY: in bounds: point 1.
        let first = unsafe { packets.add(group * GROUP) };
        let mut differs = _mm256_setzero_si256();
        for at in 0..GROUP {
            // SAFETY: the first half of a packet: points 1 and 5.
            let start = unsafe { _mm256_loadu_si256(first.add(at).cast()) };
            differs = _mm256_or_si256(differs, _mm256_xor_si256(start, wanted));
        }
        let mut twos = [_mm256_setzero_si256(); GROUP / 2];
        for (number, two) in twos.iter_mut().enumerate() {
            // SAFETY: two packets: point 1.
            *two = unsafe { places_and_lengths(first.add(number * 2)) };
        }
        let lengths = sent_lengths(twos);
        let beyond = _mm256_sub_epi32(lengths, least);
        let wrong_length = _mm256_xor_si256(_mm256_min_epu32(beyond, span), beyond);
        let wrong = _mm256_or_si256(_mm256_and_si256(differs, counts), wrong_length);
        if _mm256_testz_si256(wrong, wrong) == 0 {
            break;
        }
        // SAFETY: so many descriptors and slots exist: points 1 and 4; unaligned stores. Atomics
        //         may be written through a shared reference.
        unsafe {
            let ring = ring.cast_mut().add(group * GROUP * 2);
            for (number, two) in twos.into_iter().enumerate() {
                let ring = ring.cast::<__m256i>().add(number);
                _mm256_storeu_si256(ring, fixed.descriptors(two));
            }
            let slots = slots.add(group * GROUP).cast();
            _mm256_storeu_si256(slots, buffers_of(twos));
        }
        sums = _mm256_add_epi32(sums, lengths);
        done += GROUP;
    }
    let halves = _mm_add_epi32(
        _mm256_castsi256_si128(sums),
        _mm256_extracti128_si256::<1>(sums),
    );
    Handled {
        packets: done,
        bytes: sum_of(halves),
    }
}
