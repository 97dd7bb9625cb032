//! 512-bit vectors. Safety: see the module above.

use super::avx2::{lengths_of, once, sum_of, wrong_lengths};
use super::{GROUP, Handled, Outgoing, Posted, Template, plain};
use crate::packet::Packet;
use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// `a | (b ^ c)`.
const OR_OF_DIFFERENCE: i32 = 0xF6;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn words(low: [u64; 4], high: [u64; 4]) -> __m512i {
    let [a, b, c, d] = low.map(|word| word as i64);
    let [e, f, g, h] = high.map(|word| word as i64);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

/// # Safety
/// AVX-512 F, BW, DQ, VL; `groups` groups of descriptors, slots with a margin around, and places
/// for packets exist.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn receive(
    descriptors: *const AtomicU64,
    slots: *const u32,
    into: *mut Packet,
    groups: usize,
    template: &Template,
    buffer_bytes: u16,
) -> Handled {
    // A packet is its first half and the descriptor.
    let counts = words([0; 4], plain::WRITTEN_COUNTS);
    let wanted = words([0; 4], plain::WRITTEN);
    let template = words(template.0, [0; 4]);
    let (limit, ones) = (_mm_set1_epi16(buffer_bytes as i16), _mm_set1_epi16(1));
    let mut sums = _mm_setzero_si128();
    let mut done = 0;
    for group in 0..groups {
        // SAFETY: in bounds: point 1; unaligned accesses.
        let (first, slots, packets) = unsafe {
            (
                descriptors.add(group * GROUP * 4),
                slots.add(group * GROUP),
                into.add(group * GROUP).cast::<__m512i>(),
            )
        };
        // SAFETY: the status of the group's last descriptor: point 3.
        let last = unsafe { &*first.add((GROUP - 1) * 4 + 1) };
        if last.load(Ordering::Acquire) & plain::DONE == 0 {
            break;
        }
        let mut differs = _mm512_setzero_si512();
        let mut first_words = [_mm_setzero_si128(); GROUP];
        for (at, word) in first_words.iter_mut().enumerate() {
            // SAFETY: points 1, 3 and 5; packets behind the burst's length have no owner yet.
            unsafe {
                let written = once(_mm256_loadu_si256(first.add(at * 4).cast()));
                let packet = _mm512_inserti64x4::<1>(template, written);
                let buffer = _mm_loadu_si32(slots.add(at).cast());
                let packet = _mm512_mask_broadcastd_epi32(packet, 1 << 6, buffer);
                differs = _mm512_ternarylogic_epi64::<OR_OF_DIFFERENCE>(differs, packet, wanted);
                *word = _mm256_castsi256_si128(written);
                _mm512_storeu_si512(packets.add(at), packet);
            }
        }
        let lengths = lengths_of(first_words);
        let wrong_length = wrong_lengths(lengths, limit);
        let wrong = _mm512_test_epi64_mask(differs, counts);
        if wrong != 0 || _mm_testz_si128(wrong_length, wrong_length) == 0 {
            break;
        }
        // Lengths are at most 16256: no sign bit, and 64 of them fit 32 bits.
        sums = _mm_add_epi32(sums, _mm_madd_epi16(lengths, ones));
        done += GROUP;
    }
    Handled {
        packets: done,
        bytes: sum_of(sums),
    }
}

/// # Safety
/// AVX-512 F, BW, DQ, VL; `groups` groups of descriptors and slots exist.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn post(
    buffers: &Posted,
    words: *const AtomicU64,
    slots: *const u32,
    groups: usize,
) {
    let base = _mm512_set1_epi64(buffers.base as i64);
    let stride = _mm512_set1_epi64(buffers.stride.into());
    let pairs = [0, 2, 4, 6].map(|low| _mm512_setr_epi64(low, 0, 0, 0, low + 1, 0, 0, 0));
    for group in 0..groups {
        // SAFETY: points 1 and 4; unaligned accesses, of two descriptors each, and only of their
        //         first halves. Atomics may be written through a shared reference.
        unsafe {
            let indices = _mm256_loadu_si256(slots.add(group * GROUP).cast());
            let offsets = _mm512_mul_epu32(_mm512_cvtepu32_epi64(indices), stride);
            let addresses = _mm512_add_epi64(offsets, base);
            let to = words.cast_mut().add(group * GROUP * 4).cast::<i64>();
            for (pair, order) in pairs.into_iter().enumerate() {
                let two = _mm512_maskz_permutexvar_epi64(0b0001_0001, order, addresses);
                _mm512_mask_storeu_epi64(to.add(pair * 8), 0b0011_0011, two);
            }
        }
    }
}

/// Differences of eight packets from `wanted`, their places, and the words that hold their lengths.
///
/// # Safety
/// AVX-512 F, BW, DQ, VL; eight packets exist.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn gather(first: *const __m512i, wanted: __m512i) -> (__m512i, __m512i, __m512i) {
    // Words 3 (buffer, offset) and 4 (length) of two packets; then those of four.
    let of_two = _mm512_setr_epi64(3, 11, 4, 12, 3, 11, 4, 12);
    let of_four = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let mut differs = _mm512_setzero_si512();
    let mut twos = [differs; 4];
    for (pair, two) in twos.iter_mut().enumerate() {
        // SAFETY: whole packets: points 1 and 5.
        let (even, odd) = unsafe {
            (
                _mm512_loadu_si512(first.add(pair * 2)),
                _mm512_loadu_si512(first.add(pair * 2 + 1)),
            )
        };
        differs = _mm512_ternarylogic_epi64::<OR_OF_DIFFERENCE>(differs, even, wanted);
        differs = _mm512_ternarylogic_epi64::<OR_OF_DIFFERENCE>(differs, odd, wanted);
        *two = _mm512_permutex2var_epi64(even, of_two, odd);
    }
    let low = _mm512_permutex2var_epi64(twos[0], of_four, twos[1]);
    let high = _mm512_permutex2var_epi64(twos[2], of_four, twos[3]);
    let places = _mm512_shuffle_i64x2::<0b0100_0100>(low, high);
    let lengths = _mm512_shuffle_i64x2::<0b1110_1110>(low, high);
    (differs, places, lengths)
}

/// # Safety
/// AVX-512 F, BW, DQ, VL; `groups` groups of packets, descriptors and slots exist.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn send(
    packets: *const Packet,
    ring: *const AtomicU64,
    slots: *mut u32,
    groups: usize,
    outgoing: &Outgoing,
) -> Handled {
    let counts = words(plain::PACKET_COUNTS, [0; 4]);
    let wanted = words(outgoing.template.0, [0; 4]);
    let base = _mm512_set1_epi64(outgoing.base as i64);
    let stride = _mm512_set1_epi64(outgoing.stride.into());
    let length = _mm512_set1_epi64(plain::LENGTH as i64);
    let limit = _mm512_set1_epi64(i64::from(outgoing.bytes_max) << 32);
    let least = _mm512_set1_epi64(i64::from(plain::SHORTEST) << 32);
    let command = _mm512_set1_epi64(plain::COMMAND as i64);
    let first_four = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    let second_four = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    let mut sum = _mm512_setzero_si512();
    let mut done = 0;
    for group in 0..groups {
        // SAFETY: in bounds: point 1.
        let first = unsafe { packets.add(group * GROUP).cast::<__m512i>() };
        // SAFETY: eight packets.
        let (differs, places, lengths) = unsafe { gather(first, wanted) };
        let bytes = _mm512_and_si512(lengths, length);
        let wrong = _mm512_test_epi64_mask(differs, counts)
            | _mm512_cmpgt_epu64_mask(bytes, limit)
            | _mm512_cmplt_epu64_mask(bytes, least);
        if wrong != 0 {
            break;
        }
        let offsets = _mm512_mul_epu32(places, stride);
        let inside = _mm512_srli_epi64::<32>(places);
        let address = _mm512_add_epi64(_mm512_add_epi64(offsets, inside), base);
        let shifted = _mm512_slli_epi64::<{ plain::LENGTH_SHIFT }>(bytes);
        let word = _mm512_or_si512(shifted, command);
        sum = _mm512_add_epi64(sum, bytes);
        // SAFETY: points 1 and 4; unaligned stores. Atomics may be written through a shared
        //         reference.
        unsafe {
            let ring = ring.cast_mut().add(group * GROUP * 2);
            let ring = ring.cast::<__m512i>();
            let early = _mm512_permutex2var_epi64(address, first_four, word);
            let late = _mm512_permutex2var_epi64(address, second_four, word);
            _mm512_storeu_si512(ring, early);
            _mm512_storeu_si512(ring.add(1), late);
            let slots = slots.add(group * GROUP).cast();
            _mm256_storeu_si256(slots, _mm512_cvtepi64_epi32(places));
        }
        done += GROUP;
    }
    Handled {
        packets: done,
        bytes: (_mm512_reduce_add_epi64(sum) as u64) >> 32,
    }
}
