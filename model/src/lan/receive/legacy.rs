//! Descriptors in the layout of older cards, which iPXE and virtual functions ask for.

use super::written::{DESCRIPTOR_WORDS, cast_of};
use super::{Arrival, ReceiveQueue};
use crate::lan::frame::Headers;
use ringside_spec::lan::receive::{
    FLOW_VALID, LegacyDescriptor, LegacyExtended, LegacyStatus, filter_status, profile,
};

/// The packet types that the layout has bits for.
const PACKET_TYPES: u16 = 0xFF;

impl ReceiveQueue {
    /// The words of the descriptor that is written back for `length` bytes of a frame; `last` for
    /// the last buffer of the frame.
    pub(super) fn describe_as_legacy(
        &self,
        arrival: &Arrival<'_>,
        tag: Option<u16>,
        length: usize,
        last: bool,
    ) -> [u64; DESCRIPTOR_WORDS] {
        let Headers { parsed, key } = arrival.headers;
        let context = &self.context;
        let in_first = tag.filter(|_| last && context.tag_in_l2tag1);
        let in_second = tag.filter(|_| last && !context.tag_in_l2tag1);
        let hash = arrival.hash.filter(|_| last);
        let flow = arrival.flow.filter(|_| last);
        let short = self.profile == profile::LEGACY_16 || self.short.is_some();
        // One word for both in the short form; the hash goes first.
        let (filter_status, word) = match (hash, flow) {
            (Some(hash), _) => (filter_status::HASH, hash),
            (None, Some(flow)) if short => (filter_status::FLOW, flow),
            (None, _) => (filter_status::NONE, 0),
        };
        let status = LegacyStatus::ZERO
            .with_done(true)
            .with_end_of_packet(last)
            .with_l2tag1_present(in_first.is_some())
            .with_checksums_checked(last && parsed.checks.looked_at)
            .with_crc_present(last && !context.strip_crc)
            .with_cast(cast_of(key.destination).into())
            .with_filter_match(flow.is_some())
            .with_filter_status(filter_status)
            .with_loopback(last && arrival.sender.is_some())
            .with_ipv6_extension(last && parsed.ipv6_extension)
            .with_ip_checksum_error(last && parsed.checks.ip_wrong)
            .with_layer_4_checksum_error(last && parsed.checks.layer_4_wrong)
            .with_packet_type((parsed.packet_type & PACKET_TYPES).into())
            .with_bytes(length as u64);
        let mut written = LegacyDescriptor {
            l2tag1: in_first.unwrap_or(0).into(),
            hash: word.into(),
            status: status.0.into(),
            ..LegacyDescriptor::zeroed()
        };
        if !short {
            let extended = LegacyExtended::ZERO
                .with_l2tag2_present(in_second.is_some())
                .with_flow(if flow.is_some() { FLOW_VALID } else { 0 });
            written.extended = extended.0.into();
            written.l2tag2_second = in_second.unwrap_or(0).into();
            written.flow_id = flow.unwrap_or(0).into();
        }
        let words: [u64; DESCRIPTOR_WORDS] = zerocopy::transmute!(written.to_bytes());
        words.map(u64::from_le)
    }
}
