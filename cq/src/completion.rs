//! A completion, in the terms of verbs.

use ringside_qp::state::{QueuePairNote, SendRecordInfo, Tracker};
use ringside_spec::verbs::completion::{
    CompletionHeader, GLOBAL_ROUTE_BYTES, PACKET_WRITE_LAST_IMMEDIATE, PACKET_WRITE_ONLY_IMMEDIATE,
};
use ringside_spec::verbs::status::FLUSH_MAJOR;
use ringside_spec::verbs::{FlushCode, SendOpcode};

/// The status of a request. Verbs: `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done.
    Success,
    /// A message was longer than the receive request, or too long for its operation.
    LocalLength,
    /// The request was malformed for this queue pair.
    LocalOperation,
    /// A local buffer was not registered, too short, or lacked the right.
    LocalProtection,
    /// Not carried out: the queue pair had failed before. Verbs: `IBV_WC_WR_FLUSH_ERR`.
    Flushed,
    /// A memory window could not be bound.
    WindowBind,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer refused the key, the range or the access right.
    RemoteAccess,
    /// The peer could not carry out the request.
    RemoteOperation,
    /// The peer did not respond to any retry.
    RetryExceeded,
    /// The peer had no receive request posted, and all retries were used.
    ReceiverNotReady,
    /// The device put the queue pair into a fatal error state.
    Fatal,
    /// The device completed a later receive but never reported this one: it is unknown if the
    /// buffer was written. A fault of the device.
    Unreported,
    /// A code that this version does not know. Verbs: `IBV_WC_GENERAL_ERR` with a vendor error.
    Unknown {
        /// major code
        major: u16,
        /// minor code
        minor: u16,
    },
}

impl Status {
    /// Returns the status for the error codes of a failed completion.
    ///
    /// Source: irdma `verbs.c`, irdma_flush_err_to_ib_wc_status. Only major code 1 means "flushed"
    /// (rdma-core 65 also accepts 0xFFFE; the kernel and ringside do not).
    #[must_use]
    pub const fn from_codes(major: u16, minor: u16) -> Self {
        if major != FLUSH_MAJOR {
            return Self::Unknown { major, minor };
        }
        match FlushCode::from_code(minor) {
            FlushCode::General => Self::Flushed,
            FlushCode::LocalProtection => Self::LocalProtection,
            FlushCode::RemoteAccess => Self::RemoteAccess,
            FlushCode::LocalOperation => Self::LocalOperation,
            FlushCode::RemoteOperation => Self::RemoteOperation,
            FlushCode::LocalLength => Self::LocalLength,
            FlushCode::Invalid | FlushCode::Fatal => Self::Fatal,
            FlushCode::RetryExceeded => Self::RetryExceeded,
            FlushCode::WindowBind => Self::WindowBind,
            FlushCode::RemoteInvalidRequest => Self::RemoteInvalidRequest,
            FlushCode::ReceiverNotReady => Self::ReceiverNotReady,
            FlushCode::Unknown(_) => Self::Unknown { major, minor },
        }
    }

    /// True for [`Status::Success`].
    #[inline(always)]
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::Success => "success",
            Self::LocalLength => "message longer than the receive buffer",
            Self::LocalOperation => "request malformed for its queue pair",
            Self::LocalProtection => "local buffer not registered, too short or without the right",
            Self::Flushed => "flushed: the queue pair had failed before",
            Self::WindowBind => "memory window could not be bound",
            Self::RemoteInvalidRequest => "peer found the request invalid",
            Self::RemoteAccess => "peer refused key, range or right",
            Self::RemoteOperation => "peer could not carry the request out",
            Self::RetryExceeded => "peer did not answer",
            Self::ReceiverNotReady => "peer had no receive request posted",
            Self::Fatal => "the device gave up the queue pair",
            Self::Unreported => "the device skipped this receive request",
            Self::Unknown { major, minor } => {
                return write!(f, "unknown device error {major:#06x}/{minor:#06x}");
            }
        };
        f.write_str(text)
    }
}

/// The completed operation. Verbs: `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// RDMA write
    Write,
    /// RDMA read
    Read,
    /// Send of any kind
    Send,
    /// Memory window bind
    BindWindow,
    /// Fast register
    FastRegister,
    /// Local invalidate
    LocalInvalidate,
    /// NOP
    Nop,
    /// Atomic fetch and add
    FetchAdd,
    /// Atomic compare and swap
    CompareSwap,
    /// A receive request was consumed by a message
    Receive,
    /// A receive request was consumed by a peer's RDMA write with immediate
    ReceiveWriteImmediate,
    /// Another code of the send side
    Unknown(u8),
}

ringside_spec::words! {
    /// Details of the message that a receive completion reports.
    pub(crate) struct ReceiveDetail: u64 {
        /// bytes of the message
        payload_bytes: [31:0],
        /// immediate data, if the header says that there is one
        immediate: [63:32],
    }

    /// The queue pair of a completion, and word 2 of the device's completion.
    pub(crate) struct Origin: u64 {
        /// number of the queue pair
        queue_pair: [23:0],
        /// invalidated key, or source queue pair of a datagram
        key_or_source: [55:24],
        /// a queue pair of datagrams
        is_datagram: [63],
    }

    /// The queue pair of a datagram's completion, and the datagram's origin.
    pub(crate) struct DatagramOrigin: u64 {
        /// number of the queue pair
        queue_pair: [23:0],
        /// queue pair that sent it
        source: [47:24],
        /// low bits of the VLAN tag, if `vlan_known` of the note is set
        vlan_low: [62:48],
        /// as in [`Origin`]
        is_datagram: [63],
    }

    /// Values that software keeps in header bits that the device leaves clear. For a datagram, its
    /// origin replaces the bits that otherwise hold error codes and the index.
    pub(crate) struct SoftwareNote: u64 {
        /// octets 1 to 5 of the source MAC address
        mac_low: [39:0],
        /// octet 0 without its group bit, which no source address has
        mac_high: [46:40],
        /// the source MAC address is known
        mac_known: [47],
        /// the VLAN tag is known
        vlan_known: [48],
        /// the device skipped this receive
        unreported: [49],
        /// highest bit of the VLAN tag: replaces a bit that belongs to sends
        vlan_high: [51],
        /// the queue pair of this receive has been destroyed
        outlived: [52],
    }
}

const _: () = assert!(
    SoftwareNote::OUTLIVED_MASK & CompletionHeader::DEFINED == 0,
    "completions of receives have such bits cleared"
);

const _: () = assert!(
    QueuePairNote::NUMBER_MASK == Origin::QUEUE_PAIR_MASK
        && QueuePairNote::IS_DATAGRAM_MASK == Origin::IS_DATAGRAM_MASK
        && QueuePairNote::DEFINED & Origin::KEY_OR_SOURCE_MASK == 0,
    "the note of a queue pair stands in the origin"
);

/// The group bit of a MAC address that is held as a number.
const MAC_GROUP: u64 = 1 << 40;

/// Bits of a VLAN tag that the origin of a datagram holds.
const VLAN_LOW_BITS: u32 = 15;

impl Origin {
    /// Returns the origin for a queue pair.
    #[inline(always)]
    pub(crate) fn of(tracker: &Tracker) -> Self {
        Self(tracker.note_of_queue_pair().0)
    }

    /// Returns the origin with the key or the source that a completion names; it had none.
    #[inline(always)]
    pub(crate) const fn naming(self, key_or_source: u32) -> Self {
        Self(self.0 | Self::ZERO.with_key_or_source(key_or_source as u64).0)
    }
}

impl SoftwareNote {
    /// Returns a completion's header and origin with the VLAN tag noted.
    pub(crate) const fn of_vlan(
        header: CompletionHeader,
        origin: Origin,
        tag: u16,
    ) -> (CompletionHeader, Origin) {
        let note = Self(header.0)
            .with_vlan_known(true)
            .with_vlan_high(tag >> VLAN_LOW_BITS != 0);
        let low = tag as u64 % (1 << VLAN_LOW_BITS);
        let origin = DatagramOrigin(origin.0).with_vlan_low(low);
        (CompletionHeader(note.0), Origin(origin.0))
    }

    const fn vlan_tag(self, origin: DatagramOrigin) -> u16 {
        (self.vlan_high() as u16) << VLAN_LOW_BITS | origin.vlan_low() as u16
    }

    /// Returns the header without codes and index, with the source MAC address noted. A group
    /// address is not noted.
    pub(crate) const fn of_source(header: CompletionHeader, mac: u64) -> CompletionHeader {
        if mac & MAC_GROUP != 0 {
            return header;
        }
        let note = Self(header.0)
            .with_mac_low(mac % MAC_GROUP)
            .with_mac_high(mac / (2 * MAC_GROUP))
            .with_mac_known(true);
        CompletionHeader(note.0)
    }

    const fn source_mac(self) -> [u8; 6] {
        let number = self.mac_high() * 2 * MAC_GROUP + self.mac_low();
        let [_, _, mac @ ..] = number.to_be_bytes();
        mac
    }
}

/// The source of a datagram, and the position of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    /// Queue pair that sent it, 24 bits.
    pub source_queue_pair: u32,
    /// MAC address of the sender, if the device reports it.
    pub source_mac: Option<[u8; 6]>,
    /// VLAN tag of the frame.
    pub vlan_tag: Option<u16>,
    /// True for a datagram over IPv4, false over IPv6.
    pub ipv4: bool,
    /// Bytes of the payload; it begins [`Datagram::PAYLOAD_OFFSET`] bytes into the buffer.
    pub payload_bytes: u32,
}

impl Datagram {
    /// Bytes before the payload: the route headers, see `Route` of the RDMA module.
    pub const PAYLOAD_OFFSET: usize = GLOBAL_ROUTE_BYTES;
}

/// One completion: 32 bytes. The methods decode its fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The number that the request was posted with.
    pub id: u64,
    /// Send: the record of the request. Receive: [`ReceiveDetail`].
    pub(crate) detail: u64,
    /// The header as the device wrote it, or as it would have written it; `extended` means that
    /// there is an immediate.
    pub(crate) header: CompletionHeader,
    pub(crate) origin: Origin,
}

impl Completion {
    /// An empty completion, to fill a batch before polling into it.
    pub const EMPTY: Self = Self {
        id: 0,
        detail: 0,
        header: CompletionHeader::ZERO,
        origin: Origin::ZERO,
    };

    /// A receive that software flushed. `queue_pair` is 0 if it was in no queue pair's queue.
    #[must_use]
    pub fn flushed_receive(queue_pair: u32, id: u64) -> Self {
        Self::failed_receive(queue_pair, id, FlushCode::General)
    }

    /// A receive that software could not carry out, for this reason.
    #[must_use]
    pub fn failed_receive(queue_pair: u32, id: u64, reason: FlushCode) -> Self {
        Self {
            id,
            detail: 0,
            header: CompletionHeader::ZERO
                .with_error(true)
                .with_major(u64::from(FLUSH_MAJOR))
                .with_minor(u64::from(reason.code())),
            origin: Origin::ZERO.with_queue_pair(u64::from(queue_pair)),
        }
    }

    /// True if the request was carried out.
    #[inline(always)]
    #[must_use]
    pub const fn is_success(&self) -> bool {
        !self.header.error()
    }

    /// True for a receive that a message consumed.
    #[inline(always)]
    #[must_use]
    pub const fn is_received(&self) -> bool {
        let either = CompletionHeader::SEND_QUEUE_MASK | CompletionHeader::ERROR_MASK;
        self.header.0 & either == 0
    }

    /// True for a receive that is used up and after which its queue pair goes on: a message
    /// consumed it, or the device passed over it.
    #[must_use]
    pub const fn is_consumed(&self) -> bool {
        self.is_received() || !self.is_send() && SoftwareNote(self.header.0).unreported()
    }

    /// True for a receive that a message consumed on a queue pair that had not been destroyed when
    /// the completion was polled. It costs no more than [`Self::is_received`].
    #[inline(always)]
    #[must_use]
    pub const fn is_received_by_member(&self) -> bool {
        let any = CompletionHeader::SEND_QUEUE_MASK
            | CompletionHeader::ERROR_MASK
            | SoftwareNote::OUTLIVED_MASK;
        self.header.0 & any == 0
    }

    /// True for a receive that completed in a former ring of the completion queue, and whose queue
    /// pair was destroyed before the completion was polled. Another queue pair may have its number.
    #[must_use]
    pub const fn outlives_queue_pair(&self) -> bool {
        SoftwareNote(self.header.0).outlived()
    }

    /// True for a receive that no message has used: its queue pair had failed.
    #[must_use]
    pub const fn is_flushed_receive(&self) -> bool {
        !self.is_send() && matches!(self.status(), Status::Flushed)
    }

    pub(crate) const fn outliving(mut self) -> Self {
        self.header = CompletionHeader(self.header.0 | SoftwareNote::OUTLIVED_MASK);
        self
    }

    /// The status of the request.
    #[inline]
    #[must_use]
    pub const fn status(&self) -> Status {
        if self.is_success() {
            Status::Success
        } else if SoftwareNote(self.header.0).unreported() {
            Status::Unreported
        } else {
            let (major, minor) = self.error_codes();
            Status::from_codes(major, minor)
        }
    }

    /// Major and minor code of a failed request, as the device or the driver gave them; zeros after
    /// success. [`Completion::status`] says what they mean.
    #[must_use]
    pub const fn error_codes(&self) -> (u16, u16) {
        if self.is_success() {
            return (0, 0);
        }
        (self.header.major() as u16, self.header.minor() as u16)
    }

    /// Bytes of the message; 0 unless successful.
    #[inline]
    #[must_use]
    pub const fn byte_length(&self) -> u32 {
        if !self.is_success() {
            0
        } else if self.is_send() {
            SendRecordInfo(self.detail).length_bytes() as u32
        } else {
            ReceiveDetail(self.detail).payload_bytes() as u32
        }
    }

    /// Number of the queue pair.
    #[inline]
    #[must_use]
    pub const fn queue_pair(&self) -> u32 {
        self.origin.queue_pair() as u32
    }

    /// The completed operation. For sends it is the posted operation, independent of the device's
    /// report.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        if self.is_datagram() {
            return Operation::Receive;
        }
        if !self.is_send() {
            return match self.header.operation() as u8 {
                PACKET_WRITE_LAST_IMMEDIATE | PACKET_WRITE_ONLY_IMMEDIATE
                    if self.header.extended() =>
                {
                    Operation::ReceiveWriteImmediate
                }
                _ => Operation::Receive,
            };
        }
        match SendOpcode::from_code(SendRecordInfo(self.detail).opcode() as u8) {
            SendOpcode::Write | SendOpcode::WriteSolicited => Operation::Write,
            SendOpcode::Read | SendOpcode::ReadInvalidate => Operation::Read,
            SendOpcode::Send
            | SendOpcode::SendSolicited
            | SendOpcode::SendInvalidate
            | SendOpcode::SendSolicitedInvalidate => Operation::Send,
            SendOpcode::BindWindow => Operation::BindWindow,
            SendOpcode::FastRegister => Operation::FastRegister,
            SendOpcode::LocalInvalidate => Operation::LocalInvalidate,
            SendOpcode::Nop => Operation::Nop,
            SendOpcode::FetchAdd => Operation::FetchAdd,
            SendOpcode::CompareSwap => Operation::CompareSwap,
            other => Operation::Unknown(other.code()),
        }
    }

    /// True for the send queue, false for the receive queue.
    #[inline]
    #[must_use]
    pub const fn is_send(&self) -> bool {
        self.header.send_queue()
    }

    /// The immediate data of the message, in host order.
    #[inline]
    #[must_use]
    pub const fn immediate(&self) -> Option<u32> {
        if !self.is_send() && self.header.extended() {
            Some(ReceiveDetail(self.detail).immediate() as u32)
        } else {
            None
        }
    }

    /// True for a receive of a datagram queue pair. The operation that the device reports does not
    /// matter: no driver judges by it.
    /// Source: irdma `verbs.c`, irdma_process_cqe; rdma-core `uverbs.c`, irdma_process_cqe.
    #[inline]
    const fn is_datagram(&self) -> bool {
        !self.is_send() && self.origin.is_datagram()
    }

    /// The source of a datagram; `None` for other messages and for failed receives.
    #[must_use]
    pub const fn datagram(&self) -> Option<Datagram> {
        if !self.is_datagram() || !self.is_success() {
            return None;
        }
        let note = SoftwareNote(self.header.0);
        let origin = DatagramOrigin(self.origin.0);
        let bytes = self.byte_length();
        Some(Datagram {
            source_queue_pair: origin.source() as u32,
            source_mac: if note.mac_known() {
                Some(note.source_mac())
            } else {
                None
            },
            vlan_tag: if note.vlan_known() {
                Some(note.vlan_tag(origin))
            } else {
                None
            },
            ipv4: self.header.invalidated_or_ipv4(),
            payload_bytes: bytes.saturating_sub(GLOBAL_ROUTE_BYTES as u32),
        })
    }

    /// The local key that the message invalidated.
    #[inline]
    #[must_use]
    pub const fn invalidated_key(&self) -> Option<u32> {
        if self.header.invalidated_or_ipv4() && !self.is_send() && !self.is_datagram() {
            Some(self.origin.key_or_source() as u32)
        } else {
            None
        }
    }

    /// Queue pair that sent a datagram, 24 bits. Has no meaning on connected queue pairs.
    #[must_use]
    pub const fn source_queue_pair(&self) -> u32 {
        DatagramOrigin(self.origin.0).source() as u32
    }

    /// True if the sender requested an event.
    #[must_use]
    pub const fn is_solicited(&self) -> bool {
        self.header.solicited()
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion")
            .field("id", &self.id)
            .field("operation", &self.operation())
            .field("status", &self.status())
            .field("byte_length", &self.byte_length())
            .field("queue_pair", &self.queue_pair())
            .field("immediate", &self.immediate())
            .field("invalidated_key", &self.invalidated_key())
            .finish()
    }
}

#[cfg(test)]
mod tests;
