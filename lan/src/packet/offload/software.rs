//! Fields that a former request prepared for the device, and that the device is not to fill in.

use super::headers::{Headers, be16, layer_4_header};
use super::{COMMAND_SHIFT, Layer4, OffloadError, Packet, TransmitRequest, put};
use ringside_spec::lan::transmit::{DataCommand, inner_ip, layer_4};

/// Bytes that are read from a packet at once; even, so that sums of pairs go on.
const PIECE_BYTES: usize = 512;

impl Packet {
    /// Writes the fields that the former request has taken from the packet and that `wanted` leaves
    /// to software: the length of IP, and the checksums.
    ///
    /// Does nothing to a packet whose headers are no longer those of the former request: the caller
    /// has changed them. Errors: [`OffloadError::Shared`], and nothing was changed.
    pub(super) fn finish_former(&mut self, wanted: TransmitRequest) -> Result<(), OffloadError> {
        if self.command == 0 {
            return Ok(());
        }
        let former = DataCommand(u64::from(self.command) << COMMAND_SHIFT);
        let Ok(headers) = Headers::find(self.bytes()) else {
            return Ok(());
        };
        let same = headers.layer_2_bytes as u64 == former.layer_2_length_2() * 2
            && headers.ip_bytes as u64 == former.ip_length_4() * 4
            && headers.is_v6 == (former.inner_ip() == inner_ip::V6);
        if !same {
            return Ok(());
        }
        let is_cut = wanted.segment_bytes.is_some();
        let length = self.own.segmentation() && !is_cut;
        let ip = former.inner_ip() == inner_ip::V4_CHECKSUM && !wanted.ip_checksum && !is_cut;
        let layer_4 = former.layer_4() != layer_4::NONE && !wanted.layer_4_checksum && !is_cut;
        if !(length || ip || layer_4) {
            return Ok(());
        }
        if !self.is_sole() {
            return Err(OffloadError::Shared);
        }
        if length {
            self.restore_length(&headers);
        }
        if ip {
            self.sum_ip(&headers);
        }
        if layer_4 && let Ok(kind) = headers.layer_4() {
            self.sum_layer_4(&headers, kind);
        }
        Ok(())
    }

    /// Writes the length field of IP if it is zero. A packet too long for it is not sent uncut.
    fn restore_length(&mut self, headers: &Headers) {
        let field = headers.length_field();
        let counted = self.length() - headers.layer_2_bytes - headers.uncounted();
        let length = u16::try_from(counted).unwrap_or(0);
        if let Some(bytes) = self.bytes_mut()
            && be16(bytes, field) == Some(0)
        {
            put(bytes, field, &length.to_be_bytes());
        }
    }

    fn sum_ip(&mut self, headers: &Headers) {
        let Some(bytes) = self.bytes_mut() else {
            return;
        };
        let (at, end) = (
            headers.layer_2_bytes,
            headers.layer_2_bytes + headers.ip_bytes,
        );
        put(bytes, at + 10, &[0; 2]);
        let sum = !add(0, bytes.get(at..end).unwrap_or_default());
        put(bytes, at + 10, &sum.to_be_bytes());
    }

    fn sum_layer_4(&mut self, headers: &Headers, kind: Layer4) {
        let at = headers.layer_2_bytes + headers.ip_bytes;
        let first = self.bytes();
        let length = headers.ip_payload_bytes(first);
        let end = (at + length as usize).min(self.length());
        let pseudo = headers.pseudo_sum(first, length);
        let Some((_, field)) = layer_4_header(kind, first, at) else {
            return;
        };
        let Some(bytes) = self.bytes_mut() else {
            return;
        };
        if kind == Layer4::Sctp {
            put(bytes, field, &[0; 4]);
            let mut check = 0;
            self.read_pieces(at, end, |piece| check = crc32c::crc32c_append(check, piece));
            let check = check.to_le_bytes();
            put(self.bytes_mut().unwrap_or_default(), field, &check);
            return;
        }
        put(bytes, field, &[0; 2]);
        let mut sum = pseudo;
        self.read_pieces(at, end, |piece| sum = add(sum, piece));
        // A sum of zero in UDP would mean that there is none.
        let sum = match (!sum, kind) {
            (0, Layer4::Udp) => u16::MAX,
            (sum, _) => sum,
        };
        put(
            self.bytes_mut().unwrap_or_default(),
            field,
            &sum.to_be_bytes(),
        );
    }

    /// Passes the bytes from `at` to `end` on, in pieces.
    fn read_pieces(&self, at: usize, end: usize, mut each: impl FnMut(&[u8])) {
        let mut buffer = [0; PIECE_BYTES];
        for from in (at..end).step_by(PIECE_BYTES) {
            let count = (end - from).min(PIECE_BYTES);
            let piece = buffer.get_mut(..count).unwrap_or_default();
            if self.read(from, piece) {
                each(piece);
            }
        }
    }
}

/// Adds words to a sum of RFC 1071; an odd last byte is completed with zero.
fn add(sum: u16, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let [high, low] = [pair.first(), pair.get(1)].map(|byte| byte.copied().unwrap_or(0));
        u32::from(u16::from_be_bytes([high, low]))
    });
    let mut sum = u32::from(sum) + words.sum::<u32>();
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
