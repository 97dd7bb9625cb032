//! Limits of the device for packets that it sends.

use crate::packet::{MAX_PAYLOAD, Packet};
use ringside_spec::lan::receive::MAX_FRAME_BYTES;
use ringside_spec::lan::transmit::{FRAME_BYTES_MIN, MAX_BUFFER_BYTES, MAX_DESCRIPTORS_PER_PACKET};

/// Bytes of the frame check sequence.
const CHECK_BYTES: u32 = ringside_spec::lan::limits::CHECK_BYTES as u32;
const TAG_BYTES: u32 = 4;

/// Longest packet whose length needs no further check: one tag may be added to it.
pub(super) const MAX_PLAIN_BYTES: u32 = MAX_FRAME_BYTES as u32 - CHECK_BYTES - TAG_BYTES;

/// The reason why a packet is not sent.
#[derive(Clone, Copy)]
pub(super) enum Refused {
    TooShort,
    TooLong,
    TooManySegments,
    OuterTagAlone,
    NoBuffers,
    /// it stays in the burst
    RingFull,
}

/// The packets that a call of [`TransmitQueue::send`](super::TransmitQueue::send) dropped. The
/// calls are told apart by the packets that they begin with, so that calls which drop none cost
/// nothing.
#[derive(Default)]
pub(super) struct Dropped {
    /// packets that the queue had taken before the call
    before: u64,
    /// bits of the dropped ones, by their places in the burst
    places: u64,
}

impl Dropped {
    /// Notes the packet at a place below 64; `taken` packets were taken before it.
    pub(super) const fn note(&mut self, taken: u64, place: usize) {
        let before = taken.wrapping_sub(place as u64);
        if self.before != before {
            *self = Self { before, places: 0 };
        }
        self.places |= 1u64.wrapping_shl(place as u32);
    }

    /// Those of the call that began when `before` packets were taken.
    pub(super) const fn of(&self, before: u64) -> u64 {
        if self.before == before {
            self.places
        } else {
            0
        }
    }
}

/// Limits of the device.
pub(super) fn check(packet: &Packet) -> Result<(), Refused> {
    let flags = packet.own;
    let tags = u32::from(flags.vlan()) + u32::from(flags.outer_vlan());
    let overhead = tags * TAG_BYTES + CHECK_BYTES;
    if u64::from(packet.total()) < FRAME_BYTES_MIN || packet.segments().any(|one| one.length == 0) {
        return Err(Refused::TooShort);
    }
    if !has_headers(packet) {
        return Err(Refused::TooShort);
    }
    if flags.segmentation() {
        check_cut(packet)?;
    }
    let frame = if flags.segmentation() {
        u32::from(packet.header_bytes()) + u32::from(packet.cut_bytes())
    } else {
        packet.total()
    };
    let longest = packet.segments().map(|one| u64::from(one.length)).max();
    if frame + overhead > u32::from(MAX_FRAME_BYTES) || longest > Some(MAX_BUFFER_BYTES) {
        return Err(Refused::TooLong);
    }
    if packet.segment_count() > usize::from(MAX_DESCRIPTORS_PER_PACKET)
        && !(flags.segmentation() && segments_fit(packet))
    {
        return Err(Refused::TooManySegments);
    }
    Ok(())
}

/// True unless the packet was shortened after [`Packet::offload`] had found its headers.
#[inline(always)]
pub(super) const fn has_headers(packet: &Packet) -> bool {
    packet.command == 0 || packet.header_bytes() <= packet.first_bytes()
}

/// Refuses a packet to be cut whose payload is no longer one that [`Packet::offload`] takes.
const fn check_cut(packet: &Packet) -> Result<(), Refused> {
    // It has its headers.
    let payload = packet.total() - packet.header_bytes() as u32;
    match payload {
        0 => Err(Refused::TooShort),
        1..=MAX_PAYLOAD => Ok(()),
        _ => Err(Refused::TooLong),
    }
}

/// Returns true if each frame that the device cuts is gathered from at most eight buffers, that of
/// the headers counted with each. Source: reference e810-lan-data, section 2.
///
/// Goes along the buffers and counts those of the frame that it is in.
fn segments_fit(packet: &Packet) -> bool {
    let cut = u32::from(packet.cut_bytes());
    if cut == 0 {
        return false;
    }
    // Bytes that the frame still lacks, and the buffers that it is gathered from.
    let (mut lacks, mut buffers) = (cut, 1);
    for (index, segment) in packet.segments().enumerate() {
        let mut bytes = u32::from(segment.length);
        // The buffer of the headers is counted already.
        let own = match index {
            0 => {
                bytes -= u32::from(packet.header_bytes());
                0
            }
            _ => 1,
        };
        buffers += own;
        if buffers > MAX_DESCRIPTORS_PER_PACKET {
            return false;
        }
        if bytes < lacks {
            lacks -= bytes;
            continue;
        }
        // Frames that end in this buffer; the next one may begin in it.
        bytes -= lacks;
        while bytes >= cut {
            bytes -= cut;
        }
        lacks = cut - bytes;
        buffers = 1 + if bytes > 0 { own } else { 0 };
    }
    true
}
