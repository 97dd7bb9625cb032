//! Receive and transmit of plain packets in runs, with words or vectors. Unsafe code.
//!
//! The queues handle any packet one by one. A path here takes over the plain case only: packets of
//! one buffer, without tags or offloads. It stops in front of anything else (a vector path: of the
//! group of eight that holds it), and the queue goes on one by one. So the paths agree in packets,
//! counts and ring contents.
//!
//! # Why the accesses are sound
//! 1. In bounds: the safe functions below assert that the slices hold as many descriptors, slots
//!    and packets as the groups take. The paths access nothing else.
//! 2. CPU: a [`PacketPath`] other than `Scalar` reaches a queue only through
//!    [`PacketPath::check`], which asks the processor.
//! 3. Descriptors to read: the device writes descriptors back in order, and the status word of each
//!    last. The status of a group's last descriptor is read first, with acquire order, so plain
//!    loads of all eight see finished words. The status of each is checked again. A device that
//!    breaks the order can produce a packet with wrong fields, as with the scalar path; every
//!    length is checked in the value that is used. So each descriptor is loaded once: `once` hides
//!    the value's origin from the compiler, which could load it a second time otherwise.
//! 4. Descriptors to write: the device reads none of them before the doorbell that follows.
//! 5. Packets: [`Packet`] is `repr(C)`, 64 bytes without padding, 8-aligned, any bits of its last
//!    32 are valid, and the first 32 are those of a packet that the safe code made, but for the
//!    buffer. Its pool is an address whose provenance was exposed (`raw`), so it may travel through
//!    an integer register.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod path;
mod plain;
mod run;
mod scalar;

pub use path::{PATH_VARIABLE, PacketPath, PathError};
pub(crate) use run::{Arrivals, Departures, GROUP, Handled, MARGIN, Outgoing, Posted, Template};

use crate::burst::MAX_BURST;
use crate::packet::Packet;
use crate::shared::RUN;
use arrayvec::ArrayVec;
use std::sync::atomic::AtomicU64;

/// Appends plain packets to `packets`: those of the descriptors from the first on that are done. At
/// most `limit`.
#[inline(always)]
pub(crate) fn receive(
    path: PacketPath,
    from: &Arrivals<'_>,
    packets: &mut ArrayVec<Packet, MAX_BURST>,
    limit: usize,
) -> Handled {
    let before = packets.len();
    assert!(from.words.len() >= limit * 4, "descriptors beyond the ring");
    assert!(
        from.slots.len() >= limit + 2 * MARGIN,
        "buffers beyond the ring"
    );
    assert!(MAX_BURST - before >= limit, "packets beyond the burst");
    // SAFETY: within the capacity and the slots, by the assertions.
    let (into, slots) = unsafe {
        (
            packets.as_mut_ptr().add(before),
            from.slots.as_ptr().add(MARGIN),
        )
    };
    let words = from.words.as_ptr();
    let handled = match path {
        // The first half of a packet is treated as little-endian words.
        _ if cfg!(target_endian = "big") => Handled::default(),
        // SAFETY: point 1 by the assertion.
        PacketPath::Scalar => unsafe { scalar::receive(from, into, limit) },
        // SAFETY: point 1 by the assertion, point 2 by the path.
        #[cfg(target_arch = "x86_64")]
        PacketPath::Avx2 => unsafe {
            let (groups, longest) = (limit / GROUP, from.buffer_bytes);
            avx2::receive(words, slots, into, groups, from.template, longest)
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        PacketPath::Avx512 => unsafe {
            let (groups, longest) = (limit / GROUP, from.buffer_bytes);
            avx512::receive(words, slots, into, groups, from.template, longest)
        },
        #[cfg(not(target_arch = "x86_64"))]
        _ => Handled::default(),
    };
    // SAFETY: so many packets were written behind the first `before`: point 5.
    unsafe { packets.set_len(before + handled.packets) };
    handled
}

/// Writes the addresses of the buffers `slots` into free descriptors, and clears their status.
#[inline]
pub(crate) fn post(path: PacketPath, buffers: &Posted, words: &[AtomicU64], slots: &[u32]) {
    assert!(words.len() >= slots.len() * 4, "buffers beyond the ring");
    let groups = match path {
        PacketPath::Scalar => 0,
        _ => slots.len() / GROUP,
    };
    match path {
        // SAFETY: points 1, 2 and 4.
        #[cfg(target_arch = "x86_64")]
        PacketPath::Avx2 => unsafe {
            let (words, slots) = (words.as_ptr(), slots.as_ptr());
            avx2::post(buffers, words, slots, groups);
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        PacketPath::Avx512 => unsafe {
            let (words, slots) = (words.as_ptr(), slots.as_ptr());
            avx512::post(buffers, words, slots, groups);
        },
        _ => {}
    }
    let done = groups * GROUP;
    if done < slots.len() {
        scalar::post(buffers, &words[done * 4..], &slots[done..]);
    }
}

/// The same for a run of descriptors.
#[inline(always)]
pub(crate) fn post_run(
    path: PacketPath,
    buffers: &Posted,
    words: &[AtomicU64; RUN * 4],
    slots: &[u32; RUN],
) {
    match path {
        // SAFETY: point 1 by the types, points 2 and 4.
        #[cfg(target_arch = "x86_64")]
        PacketPath::Avx2 => unsafe { avx2::post_run(buffers, words.as_ptr(), slots.as_ptr()) },
        _ => post(path, buffers, words, slots),
    }
}

/// Writes the descriptors of plain packets from the first on, at most `limit`. The ring then owns
/// their buffers: the caller must not drop the packets.
#[inline(always)]
pub(crate) fn send(
    path: PacketPath,
    packets: &[Packet],
    to: &mut Departures<'_>,
    limit: usize,
) -> Handled {
    assert!(to.words.len() >= limit * 2, "descriptors beyond the ring");
    assert!(to.slots.len() >= limit, "buffers beyond the ring");
    assert!(packets.len() >= limit, "packets beyond the burst");
    let (words, slots) = (to.words.as_ptr(), to.slots.as_mut_ptr());
    match path {
        _ if cfg!(target_endian = "big") => Handled::default(),
        PacketPath::Scalar => scalar::send(packets, to, limit),
        // SAFETY: points 1, 2 and 4.
        #[cfg(target_arch = "x86_64")]
        PacketPath::Avx2 => unsafe {
            let (packets, groups) = (packets.as_ptr(), limit / GROUP);
            avx2::send(packets, words, slots, groups, to.plain)
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        PacketPath::Avx512 => unsafe {
            let (packets, groups) = (packets.as_ptr(), limit / GROUP);
            avx512::send(packets, words, slots, groups, to.plain)
        },
        #[cfg(not(target_arch = "x86_64"))]
        _ => Handled::default(),
    }
}

/// Removes the first packets of a burst without dropping them: others own their buffers. The rest
/// moves to the front.
#[inline]
pub(crate) fn forget_front(packets: &mut ArrayVec<Packet, MAX_BURST>, count: usize) {
    let rest = packets.len().checked_sub(count);
    let rest = rest.expect("no more packets than there are");
    // SAFETY: the last `rest` of the packets move to the front, and are kept; the others are
    //         forgotten, which is safe.
    unsafe {
        if rest > 0 {
            let first = packets.as_mut_ptr();
            std::ptr::copy(first.add(count), first, rest);
        }
        packets.set_len(rest);
    }
}

#[cfg(test)]
mod tests;
