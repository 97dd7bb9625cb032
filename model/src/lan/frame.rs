//! Frames of the engine with what its parser found in them.

use super::headers::{self, Parsed, is_service_tag};
use super::switching::{Key, UNTAGGED};
use crate::packet::{self, MacAddress};

/// Bytes of the frame check sequence.
pub(super) const CHECK_BYTES: usize = ringside_spec::lan::limits::CHECK_BYTES as usize;

/// Frames that are kept for further ones.
const MAX_SPARES: usize = 64;

/// Bytes of the largest buffer of a frame that is kept.
const MAX_SPARE_BYTES: usize = 16 << 10;

/// The result of the parser, found once for sender and receivers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Headers {
    /// The result of the parser.
    pub(super) parsed: Parsed,
    /// The fields that the switch compares.
    pub(super) key: Key,
}

impl Headers {
    /// Parses a frame; `None` if it has no Ethernet header.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let mut headers = Self::default();
        headers.fill(frame).then_some(headers)
    }

    /// The same in place of another frame's; false and any content if it has no Ethernet header.
    #[inline]
    fn fill(&mut self, frame: &[u8]) -> bool {
        let Some((destination, source)) = headers::addresses(frame) else {
            return false;
        };
        if !headers::parse_into(frame, &mut self.parsed) {
            return false;
        }
        let parsed = &self.parsed;
        self.key = Key {
            destination,
            source,
            vlan: parsed.tag.map_or(UNTAGGED, |(_, value)| value & 0xFFF),
            tagged: parsed.tag.is_some(),
            service: parsed.tag.is_some_and(|(kind, _)| is_service_tag(kind)),
            ether_type: parsed.ether_type,
        };
        true
    }
}

/// A frame that the host's network stack sent, from its Ethernet header on, without frame check
/// sequence. A VLAN tag is part of the bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentFrame {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    pub(super) headers: Headers,
}

impl SentFrame {
    /// Looks at its bytes. False if they have no Ethernet header.
    #[inline]
    pub(super) fn parse(&mut self) -> bool {
        self.headers.fill(&self.bytes)
    }

    /// True if it is a whole datagram to RoCEv2's port, with any content.
    #[inline]
    pub(crate) fn is_for_roce(&self) -> bool {
        self.headers.parsed.is_ip() && packet::is_for_roce(&self.bytes)
    }

    /// Its destination.
    #[inline]
    pub(crate) const fn destination(&self) -> MacAddress {
        self.headers.key.destination
    }

    /// Its source.
    #[inline]
    pub(crate) const fn source(&self) -> MacAddress {
        self.headers.key.source
    }
}

/// Frames that have been sent, for those that follow.
#[derive(Debug, Default)]
#[allow(clippy::vec_box)] // a frame is large to move
pub(super) struct Spares(Vec<Box<SentFrame>>);

impl Spares {
    /// A frame with any content.
    #[inline]
    pub(super) fn take(&mut self) -> Box<SentFrame> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps a frame, unless there are many or its buffer is large.
    #[inline]
    pub(super) fn keep(&mut self, frame: Box<SentFrame>) {
        if self.0.len() < MAX_SPARES && frame.bytes.capacity() <= MAX_SPARE_BYTES {
            self.0.push(frame);
        }
    }
}
