//! Sizes of elements and rings in quanta.
//!
//! Source: irdma `uk.c`, irdma_fragcnt_to_quanta_sq, irdma_fragcnt_to_wqesize_rq,
//! irdma_get_wqe_shift, irdma_get_rqdepth; limits: irdma `icrdma_hw.c`.

use super::{MAX_QUANTA, QUANTUM_BYTES};
use crate::rdma::limits::{self, MAX_WORK_QUEUE_QUANTA};

/// Fragments of one work request. Source: `icrdma_hw.c`, ICRDMA_MAX_WQ_FRAGMENT_COUNT = 13.
pub const MAX_FRAGMENTS: usize = limits::MAX_FRAGMENTS as usize;

/// Bytes of inline data of one work request. Source: `icrdma_hw.c`,
/// ICRDMA_MAX_INLINE_DATA_SIZE = 101.
pub const MAX_INLINE_BYTES: usize = limits::MAX_INLINE_BYTES as usize;

/// Quanta of the largest send or receive ring. Source: `user.h`, IRDMA_QP_WQE_MAX_QUANTA...,
/// `hw_attrs.max_hw_wq_quanta` = 2^15.
pub const MAX_RING_QUANTA: u32 = MAX_WORK_QUEUE_QUANTA;

/// Quanta of the smallest send ring that this project makes: eight blocks, so that the largest
/// element always finds a place, with any padding.
pub const MIN_SEND_RING_QUANTA: u32 = 64;

/// Inline data in word 1 of the first quantum, bytes.
pub const INLINE_FIRST_BYTES: usize = 8;

/// Inline data in each further quantum, bytes: its last byte holds the valid bit.
pub const INLINE_FURTHER_BYTES: usize = QUANTUM_BYTES - 1;

/// Quanta of a send element with so many fragment slots; immediate data takes one slot.
///
/// Range: 0..=15 slots fit the eight quanta of an element.
#[inline(always)]
#[must_use]
pub const fn send_quanta(slots: usize) -> usize {
    if slots < 2 { 1 } else { slots / 2 + 1 }
}

/// Quanta of a send element with `length_bytes` bytes inline.
///
/// Range: 0..=101 bytes on the E810; the layout itself supports up to 225.
#[inline(always)]
#[must_use]
pub const fn inline_quanta(length_bytes: usize) -> usize {
    if length_bytes <= INLINE_FIRST_BYTES {
        1
    } else {
        1 + (length_bytes - INLINE_FIRST_BYTES).div_ceil(INLINE_FURTHER_BYTES)
    }
}

/// Power of two of quanta that a request of at most so many fragments and inline bytes takes.
///
/// The answer is also the size code of receive elements in the queue pair's context.
#[must_use]
pub const fn element_shift(fragments: usize, inline_bytes: usize) -> u32 {
    if fragments <= 1 && inline_bytes <= 8 {
        0
    } else if fragments < 4 && inline_bytes <= 39 {
        1
    } else if fragments < 8 && inline_bytes <= 101 {
        2
    } else {
        3
    }
}

/// Bytes of a receive element for so many fragments: a fixed size for all of a ring.
#[must_use]
pub const fn receive_element_bytes(fragments: usize) -> usize {
    QUANTUM_BYTES << element_shift(fragments, 0)
}

/// Quanta of a receive ring for so many requests of `1 << shift` quanta, or nothing if that is
/// more than the device has. One element always stays free.
#[must_use]
pub fn receive_ring_quanta(work_requests: u32, shift: u32) -> Option<u32> {
    let used = u64::from(work_requests) << shift.min(3);
    let wanted = u32::try_from(used).ok()?.checked_add(1)?;
    let quanta = wanted.checked_next_power_of_two()?.max(8 << shift.min(3));
    (quanta <= MAX_RING_QUANTA).then_some(quanta)
}

/// The most receives of `1 << shift` quanta for which [`receive_ring_quanta`] gives a ring.
#[must_use]
pub const fn most_receives(shift: u32) -> u32 {
    (MAX_RING_QUANTA - 1) >> if shift < 3 { shift } else { 3 }
}

/// The most sends of up to `1 << shift` quanta for which [`send_ring_quanta`] gives a ring.
#[must_use]
pub const fn most_sends(shift: u32) -> u32 {
    (MAX_RING_QUANTA - 2 * MAX_QUANTA as u32) >> if shift < 3 { shift } else { 3 }
}

/// Quanta of a send ring that always takes so many requests of up to `1 << shift` quanta, or
/// nothing if that is more than the device has.
///
/// Our own rule, not the Linux driver's (which adds 258 for the 128 quanta that it clears ahead
/// of its head). Elements of at most `1 << shift` quanta never take more than that on average,
/// padding included: a block of eight is left early only if it holds more than
/// `8 - (1 << shift)` quanta, hence at least `8 >> shift` elements. The two blocks at the ends of
/// the used part may be broken: 16 quanta for them.
#[must_use]
pub fn send_ring_quanta(work_requests: u32, shift: u32) -> Option<u32> {
    let ends = 2 * MAX_QUANTA as u32;
    let used = u64::from(work_requests) << shift.min(3);
    let wanted = u32::try_from(used).ok()?.checked_add(ends)?;
    let quanta = wanted
        .checked_next_power_of_two()?
        .max(MIN_SEND_RING_QUANTA);
    (quanta <= MAX_RING_QUANTA).then_some(quanta)
}
