//! Changes that the device makes to a packet when it is sent.

mod error;
mod headers;
mod protocol;
mod software;

use super::Packet;
pub use error::OffloadError;
use headers::{Headers, layer_4_header};
pub use protocol::Layer4;
use ringside_spec::lan::transmit::{
    DataCommand, MAX_SEGMENT_BYTES, SEGMENT_BYTES_MIN, inner_ip, layer_4,
};

/// Most bytes of payload of a packet that the device cuts: 18 bits.
pub(crate) const MAX_PAYLOAD: u32 = (1 << 18) - 1;
/// [`DataCommand`] from this bit on goes into [`Packet::command`]: header lengths and kinds.
pub(crate) const COMMAND_SHIFT: u32 = 4;

/// Offloads requested for one packet; [`Packet::offload`] finds its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TransmitRequest {
    /// The device computes the IPv4 header's checksum.
    pub ip_checksum: bool,
    /// The device computes the TCP, UDP or SCTP checksum.
    pub layer_4_checksum: bool,
    /// The device cuts the TCP or UDP payload into segments of this many bytes, 64..=9668, and
    /// gives each the headers of the packet.
    pub segment_bytes: Option<u16>,
}

const fn code(kind: Layer4) -> u64 {
    match kind {
        Layer4::Tcp => layer_4::TCP,
        Layer4::Udp => layer_4::UDP,
        Layer4::Sctp => layer_4::SCTP,
    }
}

impl Packet {
    /// Asks the device for checksums and segmentation, and prepares the headers for that: writes
    /// the sum of the pseudo header, and zeroes what differs from segment to segment.
    ///
    /// A further request replaces the former one. Fields that the former one prepared and that the
    /// device is no longer to fill in are computed here: `TransmitRequest::default()` leaves a
    /// packet that can be sent as it is.
    ///
    /// Of IPv6, hop-by-hop options, routing headers without further nodes, and destination options
    /// may stand before the layer 4 header.
    ///
    /// Bytes behind the IP datagram, as the padding of a short frame that was received, are removed
    /// for a checksum of layer 4 and for segmentation: the device would cover them. A packet of
    /// several segments with such bytes is refused ([`OffloadError::Behind`]). An IP length of 0
    /// says that the datagram is all of the packet, and so does a packet that is too long for the
    /// field.
    ///
    /// The request is for the packet as it is: bytes that are added or removed afterwards need a
    /// new one. A packet that has lost part of its headers, or all of the payload that was to be
    /// cut, is dropped by [`TransmitQueue::send`](crate::TransmitQueue::send) and counted as
    /// `too_short`.
    ///
    /// Errors: [`OffloadError`], by name; nothing was changed.
    pub fn offload(&mut self, wanted: TransmitRequest) -> Result<(), OffloadError> {
        if wanted == TransmitRequest::default() {
            self.finish_former(wanted)?;
            self.command = 0;
            self.set_cut(0, 0);
            self.own = self.own.with_segmentation(false);
            return Ok(());
        }
        if !self.is_sole() {
            return Err(OffloadError::Shared);
        }
        let first = self.bytes();
        let split = OffloadError::HeadersSplit(first.len());
        let headers = Headers::find(first)?;
        let at = headers.layer_2_bytes + headers.ip_bytes;
        let cut = wanted.segment_bytes;
        let kind = match wanted.layer_4_checksum || cut.is_some() {
            true => Some(headers.layer_4()?),
            false => None,
        };
        let found = kind.map(|kind| layer_4_header(kind, first, at).ok_or(split));
        let (layer_4_bytes, field) = found.transpose()?.unwrap_or((0, 0));
        let header_bytes = at + layer_4_bytes;
        if header_bytes > first.len() || (kind == Some(Layer4::Tcp) && layer_4_bytes < 20) {
            return Err(split);
        }
        let end = self.covered_end(&headers, kind, header_bytes, cut)?;
        self.finish_former(wanted)?;
        if end < self.length() {
            // A packet of one segment: others were refused.
            let _ = self.truncate(end);
        }
        let first = self.bytes();
        let length = match cut {
            Some(_) => 0,
            None => headers.ip_payload_bytes(first),
        };
        let sum = headers.pseudo_sum(first, length);
        let ip_checksum = !headers.is_v6 && (wanted.ip_checksum || cut.is_some());
        let Some(bytes) = self.bytes_mut() else {
            return Err(OffloadError::Shared);
        };
        match kind {
            Some(Layer4::Tcp | Layer4::Udp) => put(bytes, field, &sum.to_be_bytes()),
            Some(Layer4::Sctp) => put(bytes, field, &[0; 4]),
            None => {}
        }
        if ip_checksum {
            put(bytes, headers.layer_2_bytes + 10, &[0; 2]);
        }
        if cut.is_some() {
            put(bytes, headers.length_field(), &[0; 2]);
        }
        let inner = match (headers.is_v6, ip_checksum) {
            (true, _) => inner_ip::V6,
            (false, true) => inner_ip::V4_CHECKSUM,
            (false, false) => inner_ip::V4,
        };
        let command = DataCommand::ZERO
            .with_inner_ip(inner)
            .with_layer_4(kind.map_or(layer_4::NONE, code))
            .with_layer_2_length_2(headers.layer_2_bytes as u64 / 2)
            .with_ip_length_4(headers.ip_bytes as u64 / 4)
            .with_layer_4_length_4(layer_4_bytes as u64 / 4);
        self.command = (command.0 >> COMMAND_SHIFT) as u32;
        self.set_cut(header_bytes as u16, cut.unwrap_or(0));
        self.own = self.own.with_segmentation(cut.is_some());
        Ok(())
    }

    /// The end of the bytes that the device covers: of the datagram, for a checksum of layer 4 and
    /// for segmentation. Refuses a packet that the device cannot cut, or whose end it would cover.
    fn covered_end(
        &self,
        headers: &Headers,
        kind: Option<Layer4>,
        header_bytes: usize,
        cut: Option<u16>,
    ) -> Result<usize, OffloadError> {
        let total = self.length();
        let Some(kind) = kind else {
            return Ok(total);
        };
        let end = headers.datagram_end(self.bytes(), total);
        if end < header_bytes {
            return Err(OffloadError::MalformedIp);
        }
        if let Some(cut) = cut {
            check_cut(cut, kind, end - header_bytes)?;
        }
        if end < total && self.segment_count() > 1 {
            return Err(OffloadError::Behind(total - end));
        }
        Ok(end)
    }

    fn set_cut(&mut self, header_bytes: u16, segment_bytes: u16) {
        self.written.header_length.set(header_bytes);
        self.written.l2tag2_first.set(segment_bytes);
    }

    /// Bytes of the headers of a packet that the device cuts.
    pub(crate) const fn header_bytes(&self) -> u16 {
        self.written.header_length.get()
    }

    /// Bytes of a segment of it.
    pub(crate) const fn cut_bytes(&self) -> u16 {
        self.written.l2tag2_first.get()
    }

    /// Sets the tag that the device inserts; `None` for none. A received packet holds the tag that
    /// the device removed from it.
    pub fn set_vlan(&mut self, tag: Option<u16>) {
        self.own = self.own.with_vlan(tag.is_some());
        self.written.l2tag1.set(tag.unwrap_or(0));
    }

    /// The same for the outer of two tags. Its type is 0x88A8; in double VLAN mode it is that which
    /// the VSI of the port names, 0x8100. The E810 inserts an outer tag in
    /// double VLAN mode, or beside an inner one: in single VLAN mode a packet with an outer tag
    /// alone is dropped, and counted as [`Drops::outer_tag_alone`](crate::Drops::outer_tag_alone).
    pub fn set_outer_vlan(&mut self, tag: Option<u16>) {
        self.own = self.own.with_outer_vlan(tag.is_some());
        self.written.l2tag2_second.set(tag.unwrap_or(0));
    }
}

fn check_cut(cut: u16, kind: Layer4, payload: usize) -> Result<(), OffloadError> {
    if !(SEGMENT_BYTES_MIN..=MAX_SEGMENT_BYTES).contains(&u64::from(cut)) {
        return Err(OffloadError::SegmentBytes(cut));
    }
    if kind == Layer4::Sctp {
        return Err(OffloadError::NotSegmentable(kind));
    }
    if !(1..=MAX_PAYLOAD as usize).contains(&payload) {
        return Err(OffloadError::Payload(payload));
    }
    Ok(())
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}
