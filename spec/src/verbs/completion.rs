//! Completion queue elements.
//!
//! Source: irdma `defs.h`, IRDMACQ_* and IRDMA_CQ_*; `uk.c`, irdma_uk_cq_poll_cmpl.

use super::Quantum;

crate::words! {
    /// Word 0 of a completion.
    pub struct CompletionLength: u64 {
        /// bytes received (IRDMACQ_PAYLDLEN)
        payload_bytes: [31:0],
        /// round-trip time or packet sequence number (IRDMACQ_TCPSEQNUMRTT)
        round_trip_or_sequence: [63:32],
    }

    /// Word 2 of a completion.
    pub struct CompletionSource: u64 {
        /// steering tag that was invalidated, or source queue pair of a datagram
        /// (IRDMACQ_INVSTAG, IRDMACQ_UDSRCQPN)
        invalidated_or_source: [31:0],
        /// local queue pair (IRDMACQ_QPID)
        queue_pair: [55:32],
    }

    /// Word 3 of a completion: the one with the valid bit, stored last.
    pub struct CompletionHeader: u64 {
        /// minor error code (IRDMACQ_MINERR, IRDMA_CQ_MINERR)
        minor: [15:0],
        /// major error code (IRDMA_CQ_MAJERR)
        major: [31:16],
        /// index of the element's first quantum (IRDMA_CQ_WQEIDX)
        element_index: [46:32],
        /// the next slot is this completion's extension (IRDMA_CQ_EXTCQE)
        extended: [50],
        /// a pushed element was dropped and needs its doorbell (IRDMACQ_PSHDROP)
        push_dropped: [51],
        /// word 2 holds an invalidated steering tag; for datagrams: IPv4
        /// (IRDMACQ_STAG, IRDMACQ_IPV4)
        invalidated_or_ipv4: [53],
        /// the sender requested an event (IRDMACQ_SOEVENT)
        solicited: [54],
        /// the request failed (IRDMA_CQ_ERROR)
        error: [55],
        /// send side: operation of the request; receive side: low bits of the packet's
        /// operation (IRDMACQ_OP). No driver reads it for a received datagram.
        operation: [61:56],
        /// of the send queue; else of the receive queue (IRDMA_CQ_SQ)
        send_queue: [62],
        /// ring polarity (IRDMA_CQ_VALID)
        valid: [63],
    }

    /// Word 0 of an extension.
    pub struct ExtensionImmediate: u64 {
        /// immediate data as a number in host order (IRDMA_CQ_IMMDATALOW32)
        immediate: [31:0],
    }

    /// Word 2 of an extension.
    pub struct ExtensionDatagram: u64 {
        /// source MAC address, first octet most significant (IRDMA_CQ_UDSMAC)
        source_mac: [47:0],
        /// VLAN tag (IRDMA_CQ_UDVLAN)
        vlan_tag: [63:48],
    }

    /// Word 3 of an extension.
    pub struct ExtensionHeader: u64 {
        /// (IRDMA_CQ_UDVLANVALID)
        vlan_valid: [60],
        /// (IRDMA_CQ_UDSMACVALID)
        source_mac_valid: [61],
        /// (IRDMA_CQ_IMMVALID)
        immediate_valid: [62],
        /// ring polarity at the extension's own slot (IRDMA_CQ_VALID)
        valid: [63],
    }
}

/// Packet operation in a receive completion: RDMA write last with immediate.
///
/// Source: irdma `defs.h`, IRDMA_CQE_QTYPE_RQ with IB BTH opcode 0x09.
pub const PACKET_WRITE_LAST_IMMEDIATE: u8 = 0x09;

/// Packet operation in a receive completion: RDMA write only with immediate.
pub const PACKET_WRITE_ONLY_IMMEDIATE: u8 = 0x0B;

/// Bytes before the payload in the buffer of a received datagram: a global route header, or 20
/// unused bytes and an IPv4 header. Source: IBA annex A17.
pub const GLOBAL_ROUTE_BYTES: usize = 40;

/// The queue of a queue pair to which a completion belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueSide {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// A completion as a plain value. The valid bit is apart: it belongs to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompletionElement {
    /// Bytes received. The send side leaves it 0.
    pub payload_bytes: u32,
    /// Round-trip time or packet sequence number.
    pub round_trip_or_sequence: u32,
    /// Completion context of the queue pair, as its context (word 21) gave it.
    pub context: u64,
    /// Steering tag that was invalidated, or source queue pair of a datagram.
    pub invalidated_or_source: u32,
    /// Local queue pair, 24 bits.
    pub queue_pair: u32,
    /// Minor error code.
    pub minor: u16,
    /// Major error code; 1 means flushed.
    pub major: u16,
    /// Index of the element's first quantum in its ring.
    pub element_index: u16,
    /// True if an extension follows in the next slot.
    pub extended: bool,
    /// A pushed element was dropped.
    pub push_dropped: bool,
    /// A steering tag was invalidated; for datagrams: the packet was IPv4.
    pub invalidated_or_ipv4: bool,
    /// The sender requested an event.
    pub solicited: bool,
    /// The request failed; see `major` and `minor`.
    pub error: bool,
    /// Operation code, six bits: of the request (send) or of the last packet (receive).
    pub operation: u8,
    /// Send or receive queue.
    pub side: QueueSide,
}

impl CompletionElement {
    /// A successful completion of an element, with everything else 0.
    #[must_use]
    pub const fn success(side: QueueSide, context: u64, queue_pair: u32, index: u16) -> Self {
        Self {
            payload_bytes: 0,
            round_trip_or_sequence: 0,
            context,
            invalidated_or_source: 0,
            queue_pair,
            minor: 0,
            major: 0,
            element_index: index,
            extended: false,
            push_dropped: false,
            invalidated_or_ipv4: false,
            solicited: false,
            error: false,
            operation: 0,
            side,
        }
    }

    /// The slot's four words. Word 3 is written to memory last.
    #[inline]
    #[must_use]
    pub const fn encode(&self, polarity: bool) -> Quantum {
        let length = CompletionLength::ZERO
            .with_payload_bytes(self.payload_bytes as u64)
            .with_round_trip_or_sequence(self.round_trip_or_sequence as u64);
        let source = CompletionSource::ZERO
            .with_invalidated_or_source(self.invalidated_or_source as u64)
            .with_queue_pair(self.queue_pair as u64);
        let header = CompletionHeader::ZERO
            .with_minor(self.minor as u64)
            .with_major(self.major as u64)
            .with_element_index(self.element_index as u64)
            .with_extended(self.extended)
            .with_push_dropped(self.push_dropped)
            .with_invalidated_or_ipv4(self.invalidated_or_ipv4)
            .with_solicited(self.solicited)
            .with_error(self.error)
            .with_operation(self.operation as u64)
            .with_send_queue(matches!(self.side, QueueSide::Send))
            .with_valid(polarity);
        [length.0, self.context, source.0, header.0]
    }

    /// Decodes four words. Any words decode; the caller checks the valid bit.
    #[inline]
    #[must_use]
    pub const fn decode(words: &Quantum) -> Self {
        let [length, context, source, header] = *words;
        let length = CompletionLength(length);
        let source = CompletionSource(source);
        let header = CompletionHeader(header);
        Self {
            payload_bytes: length.payload_bytes() as u32,
            round_trip_or_sequence: length.round_trip_or_sequence() as u32,
            context,
            invalidated_or_source: source.invalidated_or_source() as u32,
            queue_pair: source.queue_pair() as u32,
            minor: header.minor() as u16,
            major: header.major() as u16,
            element_index: header.element_index() as u16,
            extended: header.extended(),
            push_dropped: header.push_dropped(),
            invalidated_or_ipv4: header.invalidated_or_ipv4(),
            solicited: header.solicited(),
            error: header.error(),
            operation: header.operation() as u8,
            side: if header.send_queue() {
                QueueSide::Send
            } else {
                QueueSide::Receive
            },
        }
    }
}

/// The second slot of a completion that carries immediate data or a datagram's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CompletionExtension {
    /// Immediate data as a number in host order.
    pub immediate: Option<u32>,
    /// Source MAC address, first octet most significant, 48 bits.
    pub source_mac: Option<u64>,
    /// VLAN tag.
    pub vlan_tag: Option<u16>,
}

impl CompletionExtension {
    /// An empty extension, or no extension.
    pub const NONE: Self = Self {
        immediate: None,
        source_mac: None,
        vlan_tag: None,
    };

    /// The slot's four words, to be written before those of the completion itself.
    #[inline]
    #[must_use]
    pub fn encode(&self, polarity: bool) -> Quantum {
        let immediate =
            ExtensionImmediate::ZERO.with_immediate(u64::from(self.immediate.unwrap_or(0)));
        let datagram = ExtensionDatagram::ZERO
            .with_source_mac(self.source_mac.unwrap_or(0))
            .with_vlan_tag(u64::from(self.vlan_tag.unwrap_or(0)));
        let header = ExtensionHeader::ZERO
            .with_vlan_valid(self.vlan_tag.is_some())
            .with_source_mac_valid(self.source_mac.is_some())
            .with_immediate_valid(self.immediate.is_some())
            .with_valid(polarity);
        [immediate.0, 0, datagram.0, header.0]
    }

    /// Decodes four words. Any words decode.
    #[inline]
    #[must_use]
    pub fn decode(words: &Quantum) -> Self {
        let header = ExtensionHeader(words[3]);
        let datagram = ExtensionDatagram(words[2]);
        Self {
            immediate: header
                .immediate_valid()
                .then_some(ExtensionImmediate(words[0]).immediate() as u32),
            source_mac: header.source_mac_valid().then_some(datagram.source_mac()),
            vlan_tag: header.vlan_valid().then_some(datagram.vlan_tag() as u16),
        }
    }
}
