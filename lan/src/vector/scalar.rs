//! Words of 64 bits: runs everywhere. Safety: see the module above.

use super::{Arrivals, Departures, Handled, MARGIN, Posted, plain};
use crate::packet::Packet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lower half of a packet's fourth word: the buffer.
const BUFFER: u64 = 0xFFFF_FFFF;

/// # Safety
/// Places for `count` packets exist.
#[inline(always)]
pub(super) unsafe fn receive(from: &Arrivals<'_>, into: *mut Packet, count: usize) -> Handled {
    let [pool, next, requests, place] = from.template.0;
    let place = place & !BUFFER;
    let limit = u64::from(from.buffer_bytes);
    let (descriptors, _) = from.words.as_chunks::<4>();
    let mut handled = Handled::default();
    let mut packet = into.cast::<[u64; 8]>();
    for (descriptor, buffer) in descriptors.iter().zip(&from.slots[MARGIN..]).take(count) {
        // The status first: see point 3.
        let status = u64::from_le(descriptor[1].load(Ordering::Acquire));
        let load = |word: usize| u64::from_le(descriptor[word].load(Ordering::Relaxed));
        let (first, tags, flow) = (load(0), load(2), load(3));
        let differs = (first ^ plain::WRITTEN[0]) & plain::WRITTEN_COUNTS[0]
            | (status ^ plain::WRITTEN[1]) & plain::WRITTEN_COUNTS[1]
            | tags & plain::WRITTEN_COUNTS[2];
        let bytes = first >> 32 & 0xFFFF;
        if differs != 0 || bytes.wrapping_sub(1) >= limit {
            break;
        }
        let place = place | u64::from(*buffer);
        let words = [pool, next, requests, place, first, status, tags, flow];
        // SAFETY: one of `count` places: point 1; a packet's 64 bytes: point 5.
        unsafe {
            packet.write(words);
            packet = packet.add(1);
        }
        handled.packets += 1;
        handled.bytes += bytes;
    }
    handled
}

/// Any number of buffers.
#[inline]
pub(super) fn post(buffers: &Posted, words: &[AtomicU64], slots: &[u32]) {
    let (descriptors, _) = words.as_chunks::<4>();
    for (descriptor, buffer) in descriptors.iter().zip(slots) {
        let address = buffers.base + u64::from(*buffer) * u64::from(buffers.stride);
        descriptor[0].store(address.to_le(), Ordering::Relaxed);
        // Clears the word with the done bit; the device overwrites the other two.
        descriptor[1].store(0, Ordering::Relaxed);
    }
}

#[inline(always)]
pub(super) fn send(packets: &[Packet], to: &mut Departures<'_>, count: usize) -> Handled {
    let [pool, next, requests, place] = to.plain.template.0;
    let span = u64::from(to.plain.bytes_max) - u64::from(plain::SHORTEST);
    let stride = u64::from(to.plain.stride);
    let (descriptors, _) = to.words.as_chunks::<2>();
    let places = descriptors.iter().zip(to.slots.iter_mut()).take(count);
    let mut handled = Handled::default();
    for ((descriptor, slot), packet) in places.zip(packets) {
        // SAFETY: a packet's 64 bytes, 8-aligned, any bits of which are valid words: point 5.
        let words = unsafe { &*std::ptr::from_ref(packet).cast::<[u64; 8]>() };
        let differs = (words[0] ^ pool)
            | (words[1] ^ next)
            | (words[2] ^ requests)
            | (words[3] ^ place) & plain::PACKET_COUNTS[3];
        let length = u64::from_le(words[4]) & plain::LENGTH;
        let bytes = length >> 32;
        if differs != 0 || bytes.wrapping_sub(plain::SHORTEST.into()) > span {
            break;
        }
        let buffer = words[3] & BUFFER;
        let address = to.plain.base + buffer * stride + (words[3] >> 32);
        let command = length << plain::LENGTH_SHIFT | plain::COMMAND;
        descriptor[0].store(address.to_le(), Ordering::Relaxed);
        descriptor[1].store(command.to_le(), Ordering::Relaxed);
        *slot = buffer as u32;
        handled.packets += 1;
        handled.bytes += bytes;
    }
    handled
}
