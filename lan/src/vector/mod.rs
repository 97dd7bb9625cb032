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
mod scalar;

use crate::burst::MAX_BURST;
use crate::packet::Packet;
use crate::shared::RUN;
use arrayvec::ArrayVec;
use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;

/// Descriptors of a group.
pub(crate) const GROUP: usize = 8;
/// Values that slots of a receive ring have in front of the first and behind the last: a path reads
/// a whole vector around each.
pub(crate) const MARGIN: usize = 8;

/// Environment variable that names the path of queues that were not given one.
pub const PATH_VARIABLE: &str = "RINGSIDE_PACKET_PATH";

/// The instructions with which a queue handles plain packets. All paths give the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketPath {
    /// Words of 64 bits: runs everywhere.
    Scalar,
    /// 256-bit vectors: needs the instructions AVX2.
    Avx2,
    /// 512-bit vectors: needs AVX-512 F, BW, DQ and VL.
    Avx512,
}

/// A path that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The processor lacks its instructions.
    #[error("packet path {0}: this processor lacks the instructions; choose scalar, or name none")]
    Missing(PacketPath),
    /// The environment names none of the paths.
    #[error("RINGSIDE_PACKET_PATH names no packet path: set it to scalar, avx2 or avx512")]
    Unknown,
}

impl PacketPath {
    /// All paths, the plainest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The name: scalar, avx2 or avx512.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The path of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.name() == name)
    }

    /// True if this processor has the instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The path itself if the processor has it.
    ///
    /// Errors: [`PathError::Missing`].
    pub fn check(self) -> Result<Self, PathError> {
        if self.is_available() {
            Ok(self)
        } else {
            Err(PathError::Missing(self))
        }
    }

    /// The path of a queue: `wanted`, else that of the environment variable [`PATH_VARIABLE`],
    /// else AVX2, or words on a processor without it.
    ///
    /// AVX-512 is taken by name only: on the processor where both were timed, AVX2 was faster
    /// (`docs/performance.md`).
    ///
    /// Errors: [`PathError`], a path that was named and cannot be used.
    pub fn choose(wanted: Option<Self>) -> Result<Self, PathError> {
        Self::choose_from(wanted, std::env::var_os(PATH_VARIABLE).as_deref())
    }

    fn choose_from(wanted: Option<Self>, named: Option<&OsStr>) -> Result<Self, PathError> {
        match (wanted, named) {
            (Some(path), _) => path.check(),
            (None, Some(name)) => {
                let path = name.to_str().and_then(Self::from_name);
                path.ok_or(PathError::Unknown)?.check()
            }
            (None, None) => Ok(Self::usual()),
        }
    }

    fn usual() -> Self {
        Self::Avx2.check().unwrap_or(Self::Scalar)
    }
}

impl PacketPath {
    /// Packets that a queue handles one by one before it tries the path again.
    #[inline(always)]
    pub(crate) const fn stride(self) -> usize {
        match self {
            Self::Scalar => 1,
            _ => GROUP,
        }
    }
}

impl std::fmt::Display for PacketPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// First half of a packet of one buffer and no requests, apart from the buffer.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Template([u64; 4]);

impl Template {
    /// `packet` names no buffer: its drop would give back nothing, and does not happen.
    pub(crate) fn of(packet: Packet) -> Self {
        let packet = ManuallyDrop::new(packet);
        // SAFETY: point 5: 32 bytes without padding, all initialised, 8-aligned.
        Self(unsafe { std::ptr::from_ref(&*packet).cast::<[u64; 4]>().read() })
    }
}

/// Plain packets that a path has handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Handled {
    /// packets
    pub(crate) packets: usize,
    /// their bytes
    pub(crate) bytes: u64,
}

/// A contiguous part of a receive ring.
pub(crate) struct Arrivals<'a> {
    /// four words to a descriptor
    pub(crate) words: &'a [AtomicU64],
    /// [`MARGIN`] values, the buffers of the descriptors, and as many values again
    pub(crate) slots: &'a [u32],
    pub(crate) template: &'a Template,
    /// longest packet of one buffer
    pub(crate) buffer_bytes: u16,
}

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

/// Buffers on their way into a receive ring.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    /// device address of the first byte that the device may fill in buffer 0
    pub(crate) base: u64,
    /// bytes from buffer to buffer
    pub(crate) stride: u32,
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

/// A contiguous part of a transmit ring.
pub(crate) struct Departures<'a> {
    /// two words to a descriptor
    pub(crate) words: &'a [AtomicU64],
    /// place of the buffers of the descriptors
    pub(crate) slots: &'a mut [u32],
    pub(crate) plain: &'a Outgoing,
}

/// Plain packets of a transmit queue.
pub(crate) struct Outgoing {
    pub(crate) template: Template,
    /// device address of buffer 0
    pub(crate) base: u64,
    /// bytes from buffer to buffer
    pub(crate) stride: u32,
    /// longest packet
    pub(crate) bytes_max: u32,
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

/// Bits of a receive descriptor that decide about the plain case, as its four words: those that
/// count, and their values in a plain descriptor.
mod plain {
    use ringside_spec::lan::receive::{WriteBack0, WriteBack1, WriteBack2, profile};
    use ringside_spec::lan::transmit::{DataCommand, FRAME_BYTES_MIN};

    pub(super) const WRITTEN_COUNTS: [u64; 4] = [
        WriteBack0::ZERO.with_profile(0xFF).0,
        WriteBack1::ZERO
            .with_done(true)
            .with_end_of_packet(true)
            .with_l2tag1_present(true)
            .0,
        WriteBack2::ZERO.with_l2tag2_present(true).0,
        0,
    ];
    pub(super) const WRITTEN: [u64; 4] = [
        WriteBack0::ZERO.with_profile(profile::NIC as u64).0,
        WriteBack1::ZERO.with_done(true).with_end_of_packet(true).0,
        0,
        0,
    ];
    #[cfg(target_arch = "x86_64")]
    pub(super) const DONE: u64 = WriteBack1::ZERO.with_done(true).0;
    /// The length in the first word of a descriptor: 16 bits, of which the field uses 14.
    pub(super) const LENGTH: u64 = 0xFFFF << 32;
    const _: () = assert!(WriteBack0(LENGTH).bytes() == 0x3FFF);

    /// Bits of a packet's first half that are the template's: all but buffer and offset.
    pub(super) const PACKET_COUNTS: [u64; 4] = [u64::MAX, u64::MAX, u64::MAX, 0xFFFF << 48];
    /// Bits from a packet's length to that of the descriptor.
    pub(super) const LENGTH_SHIFT: u32 = 2;
    const _: () = assert!(DataCommand(1 << (32 + LENGTH_SHIFT)).buffer_bytes() == 1);
    pub(super) const COMMAND: u64 = DataCommand::ZERO.with_end_of_packet(true).0;
    pub(super) const SHORTEST: u32 = FRAME_BYTES_MIN as u32;
}

#[cfg(test)]
mod tests;
