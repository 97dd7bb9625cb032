//! Offloads of sent packets: segmentation, checksums, tags, padding.
//!
//! Layer 4 checksums are finished, not made: the driver puts the sum of the pseudo header into the
//! field, without the length where the packet is segmented, and the device adds up everything from
//! there on. A driver that does not do its part sends packets with wrong checksums. Source: ice
//! `ice_txrx.c`, `ice_tso` and `ice_tx_csum`; reference sections 5.1.

use super::bytes::{Sum, be16, be32, crc32c, put};
use super::headers::TAG_AT;

/// Shortest frame without frame check sequence.
pub(super) const FRAME_BYTES_MIN: usize = 60;

/// The header of an IP packet, as descriptors describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ip {
    /// None, or nothing is to be done for it.
    #[default]
    None,
    /// IPv6.
    V6,
    /// IPv4.
    V4 {
        /// Its checksum is to be computed.
        checksum: bool,
    },
}

/// The header after an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Layer4 {
    /// Nothing is to be done for it.
    #[default]
    None,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// An outer header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tunnel {
    /// Outer IP.
    pub(super) ip: Ip,
    /// Bytes of it.
    pub(super) ip_bytes: usize,
    /// A UDP header follows the outer IP header.
    pub(super) udp: bool,
    /// Bytes between outer and inner IP.
    pub(super) bytes: usize,
    /// All segments have the same IP identification.
    pub(super) keep_identification: bool,
    /// The outer UDP checksum is to be finished.
    pub(super) checksum: bool,
}

/// Sizes of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Segmentation {
    /// Payload of all segments.
    pub(super) payload_bytes: usize,
    /// Payload of a segment.
    pub(super) segment_bytes: usize,
}

/// The offloads that descriptors request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offload {
    /// Bytes of the Ethernet header, tags in the packet included.
    pub(super) layer_2_bytes: usize,
    /// The IP header; the inner one in a tunnel.
    pub(super) ip: Ip,
    /// Bytes of it, options and extensions included.
    pub(super) ip_bytes: usize,
    /// The next header.
    pub(super) layer_4: Layer4,
    /// Bytes of its header.
    pub(super) layer_4_bytes: usize,
    /// Outer headers.
    pub(super) tunnel: Option<Tunnel>,
    /// The packet is to be cut.
    pub(super) segmentation: Option<Segmentation>,
    /// Type and value of tags to insert, the outer first.
    pub(super) tags: [Option<(u16, u16)>; 2],
}

/// The reason why a packet cannot be sent as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OffloadError {
    /// Lengths of headers leave the packet.
    #[error("headers of {headers} bytes in a packet of {packet}")]
    HeadersOutside {
        /// End of the headers.
        headers: usize,
        /// Bytes of the packet.
        packet: usize,
    },
    /// The descriptors announce an IP header at a place that holds none.
    #[error("no IPv{version} header of {bytes} bytes at {at}")]
    NotIp {
        /// 4 or 6.
        version: u8,
        /// Its expected place.
        at: usize,
        /// Its length.
        bytes: usize,
    },
    /// Segmentation of something that cannot be cut.
    #[error("segmentation of {layer_4:?} over {ip:?}")]
    NotSegmentable {
        /// The value in the descriptors.
        ip: Ip,
        /// The value in the descriptors.
        layer_4: Layer4,
    },
    /// The length of the payload differs from that in the descriptors.
    #[error("payload of {found} bytes, the context descriptor has {said}")]
    PayloadLength {
        /// Bytes after the headers.
        found: usize,
        /// The value in the descriptors.
        said: usize,
    },
    /// The segments are too small or too large.
    #[error("segments of {0} bytes")]
    SegmentLength(usize),
}

/// Offsets of the headers of a packet.
#[derive(Clone, Copy, Debug)]
struct Places {
    outer_ip: usize,
    outer_layer_4: usize,
    ip: usize,
    layer_4: usize,
    payload: usize,
}

/// Turns a packet of the driver into the frames that go out, without frame check sequence.
///
/// A packet that is not segmented is changed in place and becomes the frame. The callee of `emit`
/// may keep the frame and leave another buffer.
///
/// Errors: [`OffloadError`]; the descriptors contradict the packet, and nothing goes out.
pub(super) fn apply(
    packet: &mut Vec<u8>,
    offload: &Offload,
    mut emit: impl FnMut(&mut Vec<u8>),
) -> Result<(), OffloadError> {
    let places = offload.places(packet)?;
    let Some(cut) = offload.segmentation else {
        offload.finish(packet, &places, false);
        offload.wrap(packet);
        emit(packet);
        return Ok(());
    };
    offload.check_segmentation(&cut, &places, packet.len())?;
    let (headers, payload) = packet.split_at(places.payload.min(packet.len()));
    let pieces = payload.chunks(cut.segment_bytes.max(1));
    let last = pieces.len().saturating_sub(1);
    // The callee leaves a buffer for the next one.
    let mut frame = Vec::new();
    for (index, piece) in pieces.enumerate() {
        frame.clear();
        frame.extend_from_slice(headers);
        frame.extend_from_slice(piece);
        let before = index * cut.segment_bytes;
        offload.number(&mut frame, &places, index, before, index == last);
        offload.finish(&mut frame, &places, true);
        offload.wrap(&mut frame);
        emit(&mut frame);
    }
    Ok(())
}

impl Offload {
    /// Bytes of all headers, which every segment repeats.
    pub(super) fn header_bytes(&self) -> usize {
        let outer = self
            .tunnel
            .map_or(0, |tunnel| tunnel.ip_bytes + tunnel.bytes);
        self.layer_2_bytes + outer + self.ip_bytes + self.layer_4_bytes
    }

    fn places(&self, packet: &[u8]) -> Result<Places, OffloadError> {
        let outer_ip = self.layer_2_bytes;
        let (outer_layer_4, ip) = match &self.tunnel {
            Some(tunnel) => {
                let outer_layer_4 = outer_ip + tunnel.ip_bytes;
                check_ip(packet, tunnel.ip, outer_ip, tunnel.ip_bytes)?;
                (outer_layer_4, outer_layer_4 + tunnel.bytes)
            }
            None => (outer_ip, outer_ip),
        };
        let layer_4 = ip + self.ip_bytes;
        let payload = self.header_bytes();
        if payload > packet.len() {
            return Err(OffloadError::HeadersOutside {
                headers: payload,
                packet: packet.len(),
            });
        }
        check_ip(packet, self.ip, ip, self.ip_bytes)?;
        Ok(Places {
            outer_ip,
            outer_layer_4,
            ip,
            layer_4,
            payload,
        })
    }

    fn check_segmentation(
        &self,
        cut: &Segmentation,
        places: &Places,
        packet_bytes: usize,
    ) -> Result<(), OffloadError> {
        use ringside_spec::lan::transmit::{MAX_SEGMENT_BYTES, SEGMENT_BYTES_MIN};
        let cuttable = matches!(self.layer_4, Layer4::Tcp | Layer4::Udp) && self.ip != Ip::None;
        let layer_4_min = if self.layer_4 == Layer4::Tcp { 20 } else { 8 };
        if !cuttable || self.layer_4_bytes < layer_4_min {
            return Err(OffloadError::NotSegmentable {
                ip: self.ip,
                layer_4: self.layer_4,
            });
        }
        if !(SEGMENT_BYTES_MIN..=MAX_SEGMENT_BYTES).contains(&(cut.segment_bytes as u64)) {
            return Err(OffloadError::SegmentLength(cut.segment_bytes));
        }
        let found = packet_bytes - places.payload;
        if found != cut.payload_bytes || found == 0 {
            return Err(OffloadError::PayloadLength {
                found,
                said: cut.payload_bytes,
            });
        }
        Ok(())
    }

    /// Counts what counts from segment to segment, and sets all lengths. Everything lies within
    /// the frame, as `places` found.
    fn number(&self, frame: &mut [u8], places: &Places, index: usize, before: usize, last: bool) {
        let all = frame.len();
        if let Some(tunnel) = &self.tunnel {
            let step = if tunnel.keep_identification { 0 } else { index };
            set_ip_length(frame, tunnel.ip, places.outer_ip, step);
            if tunnel.udp {
                set16(frame, places.outer_layer_4 + 4, all - places.outer_layer_4);
            }
        }
        set_ip_length(frame, self.ip, places.ip, index);
        match self.layer_4 {
            Layer4::Tcp => {
                let first = be32(frame, places.layer_4 + 4).unwrap_or(0);
                let sequence = first.wrapping_add(before as u32);
                put(frame, places.layer_4 + 4, &sequence.to_be_bytes());
                if let Some(flags) = frame.get_mut(places.layer_4 + 13) {
                    // FIN and PSH belong to the last segment, CWR to the first
                    *flags &= if last { 0xFF } else { !0x09 };
                    *flags &= if index == 0 { 0xFF } else { !0x80 };
                }
            }
            Layer4::Udp => set16(frame, places.layer_4 + 4, all - places.layer_4),
            Layer4::Sctp | Layer4::None => {}
        }
    }

    /// Finishes the checksums, the inner ones first.
    fn finish(&self, frame: &mut [u8], places: &Places, segmented: bool) {
        set_ip_checksum(frame, self.ip, places.ip, self.ip_bytes);
        let end = ip_end(frame, self.ip, places.ip);
        match self.layer_4 {
            Layer4::Tcp => finish_sum(frame, places.layer_4, end, 16, segmented),
            Layer4::Udp => finish_sum(frame, places.layer_4, end, 6, segmented),
            Layer4::Sctp => finish_crc(frame, places.layer_4, end),
            Layer4::None => {}
        }
        if let Some(tunnel) = &self.tunnel {
            set_ip_checksum(frame, tunnel.ip, places.outer_ip, tunnel.ip_bytes);
            if tunnel.checksum {
                let end = ip_end(frame, tunnel.ip, places.outer_ip);
                finish_sum(frame, places.outer_layer_4, end, 6, segmented);
            }
        }
    }

    /// Inserts tags and pads.
    fn wrap(&self, frame: &mut Vec<u8>) {
        // The inner one first: the outer one goes before it.
        for (kind, value) in self.tags.iter().rev().flatten() {
            let [a, b] = kind.to_be_bytes();
            let [c, d] = value.to_be_bytes();
            let at = TAG_AT.min(frame.len());
            frame.splice(at..at, [a, b, c, d]);
        }
        pad(frame);
    }
}

/// Pads a frame to the shortest one.
#[inline]
pub(super) fn pad(frame: &mut Vec<u8>) {
    if frame.len() < FRAME_BYTES_MIN {
        frame.resize(FRAME_BYTES_MIN, 0);
    }
}

fn check_ip(packet: &[u8], ip: Ip, at: usize, bytes: usize) -> Result<(), OffloadError> {
    let first = packet.get(at).copied().unwrap_or(0);
    let (version, fits) = match ip {
        Ip::None => return Ok(()),
        Ip::V4 { .. } => (4, bytes >= 20 && usize::from(first & 0xF) * 4 == bytes),
        Ip::V6 => (6, bytes >= 40),
    };
    let inside = at.checked_add(bytes).is_some_and(|end| end <= packet.len());
    if first >> 4 == version && fits && inside {
        Ok(())
    } else {
        Err(OffloadError::NotIp { version, at, bytes })
    }
}

fn set16(frame: &mut [u8], at: usize, value: usize) {
    put(frame, at, &(value as u16).to_be_bytes());
}

/// Length and identification of an IP header whose packet reaches to the end of the frame.
fn set_ip_length(frame: &mut [u8], ip: Ip, at: usize, step: usize) {
    let length = frame.len() - at;
    match ip {
        Ip::V4 { .. } => {
            set16(frame, at + 2, length);
            let identification = be16(frame, at + 4).unwrap_or(0);
            let next = identification.wrapping_add(step as u16);
            put(frame, at + 4, &next.to_be_bytes());
        }
        Ip::V6 => set16(frame, at + 4, length.saturating_sub(40)),
        Ip::None => {}
    }
}

fn set_ip_checksum(frame: &mut [u8], ip: Ip, at: usize, bytes: usize) {
    if ip != (Ip::V4 { checksum: true }) {
        return;
    }
    put(frame, at + 10, &[0, 0]);
    let header = frame.get(at..at + bytes).unwrap_or_default();
    let checksum = Sum::default().bytes(header).checksum();
    put(frame, at + 10, &checksum.to_be_bytes());
}

/// End of an IP packet: the padding of a short frame is no part of it.
fn ip_end(frame: &[u8], ip: Ip, at: usize) -> usize {
    let said = match ip {
        Ip::V4 { .. } => be16(frame, at + 2).map(usize::from),
        Ip::V6 => be16(frame, at + 4).map(|length| usize::from(length) + 40),
        Ip::None => None,
    };
    said.map_or(frame.len(), |said| (at + said).min(frame.len()))
}

/// Adds up a segment from its header to its end, with what the driver put into the field.
fn finish_sum(frame: &mut [u8], at: usize, end: usize, field: usize, segmented: bool) {
    let Some(segment) = frame.get(at..end) else {
        return;
    };
    // The driver left the length out where it differs from segment to segment.
    let length = if segmented { segment.len() as u32 } else { 0 };
    let checksum = Sum::default().bytes(segment).number(length).checksum();
    // UDP: zero means that there is no checksum; in TCP both values mean the same.
    let checksum = if checksum == 0 { 0xFFFF } else { checksum };
    put(frame, at + field, &checksum.to_be_bytes());
}

fn finish_crc(frame: &mut [u8], at: usize, end: usize) {
    put(frame, at + 8, &[0; 4]);
    let Some(segment) = frame.get(at..end) else {
        return;
    };
    let crc = crc32c(&[segment]);
    put(frame, at + 8, &crc.to_le_bytes());
}

#[cfg(test)]
mod tests;
