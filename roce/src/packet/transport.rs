//! Base transport header and its extensions.

use std::ops::Range;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::icrc::INVARIANT_CRC_LENGTH;
use super::wire::{
    AcknowledgeWord, AtomicHeader, BaseHeader, DatagramHeader, DatagramSecond, RemoteHeader,
    SyndromeByte, TransportFirst, TransportSecond, TransportThird,
};
use super::{EmitError, ExtensionKind, Opcode, ParseError, Psn, QpNumber};

/// The base transport header (BTH) and the extension headers after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransportHeaders {
    /// the operation
    pub opcode: Opcode,
    /// SE: the receiver should be woken when the message is complete
    pub solicited: bool,
    /// M: migration state; set by most senders that never migrate, left clear by some
    pub migrated: bool,
    /// P_Key
    pub partition_key: u16,
    /// FECN
    pub forward_congestion: bool,
    /// BECN
    pub backward_congestion: bool,
    /// queue pair that it is for
    pub destination_qp: QpNumber,
    /// AckReq: the responder shall acknowledge
    pub acknowledge_request: bool,
    /// packet sequence number
    pub psn: Psn,
    /// the extension header; must fit the opcode
    pub extension: Extension,
}

/// Extension headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// no extension header
    None,
    /// ImmDt: the four bytes as a big-endian number
    Immediate(u32),
    /// IETH: key to invalidate
    Invalidate(u32),
    /// RETH
    Remote(RemoteBuffer),
    /// RETH and ImmDt
    RemoteImmediate(RemoteBuffer, u32),
    /// AETH
    Acknowledge(Acknowledgement),
    /// AETH and AtomicAckETH: the previous value of the memory
    AtomicAcknowledge(Acknowledgement, u64),
    /// AtomicETH
    Atomic(AtomicRequest),
    /// DETH
    Datagram(Datagram),
    /// DETH and ImmDt
    DatagramImmediate(Datagram, u32),
    /// the reserved bytes of a congestion notification packet
    CongestionNotification([u8; 16]),
}

/// RETH: memory of the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteBuffer {
    /// virtual address
    pub address: u64,
    /// R_Key
    pub key: u32,
    /// length of the whole message in bytes
    pub length_bytes: u32,
}

/// AtomicETH: an atomic operation on eight bytes of the responder's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AtomicRequest {
    /// virtual address
    pub address: u64,
    /// R_Key
    pub key: u32,
    /// the value to store, or to add
    pub swap_or_add: u64,
    /// the value to compare with
    pub compare: u64,
}

/// DETH: who sent a datagram, and its permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    /// Q_Key
    pub queue_key: u32,
    /// queue pair that sent it
    pub source_qp: QpNumber,
}

/// AETH: the responder's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Acknowledgement {
    /// the kind of acknowledgement and its value
    pub syndrome: Syndrome,
    /// MSN: messages completed, modulo 2^24
    pub message_sequence_number: u32,
}

/// AETH:Syndrome.
/// Source: InfiniBand Architecture Specification volume 1, table 46.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// everything up to this PSN arrived
    Acknowledge {
        /// 5 bits, coded; 31 = no end-to-end credits
        credits: u8,
    },
    /// RNR NAK: no receive work request; come again after the time
    ReceiverNotReady {
        /// 5 bits, index into the table of times
        timer: u8,
    },
    /// NAK
    Negative(NegativeCode),
    /// a reserved value, kept
    Reserved(u8),
}

/// The reason of a responder's refusal; 5 bits, unknown values are kept.
/// Source: InfiniBand Architecture Specification volume 1, table 47.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NegativeCode(pub u8);

impl NegativeCode {
    /// a packet is missing before this one
    pub const SEQUENCE_ERROR: Self = Self(0);
    /// the request makes no sense
    pub const INVALID_REQUEST: Self = Self(1);
    /// key, bounds or rights
    pub const REMOTE_ACCESS: Self = Self(2);
    /// the responder could not do it
    pub const REMOTE_OPERATION: Self = Self(3);
    /// reliable datagram only
    pub const INVALID_RD: Self = Self(4);
}

impl core::fmt::Debug for NegativeCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::SEQUENCE_ERROR => f.write_str("SEQUENCE_ERROR"),
            Self::INVALID_REQUEST => f.write_str("INVALID_REQUEST"),
            Self::REMOTE_ACCESS => f.write_str("REMOTE_ACCESS"),
            Self::REMOTE_OPERATION => f.write_str("REMOTE_OPERATION"),
            Self::INVALID_RD => f.write_str("INVALID_RD"),
            Self(other) => write!(f, "NegativeCode({other})"),
        }
    }
}

const KIND_ACKNOWLEDGE: u8 = 0;
const KIND_RECEIVER_NOT_READY: u8 = 1;
const KIND_NEGATIVE: u8 = 3;

impl Syndrome {
    /// Decodes the byte of the header.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        let fields = SyndromeByte(byte);
        match (fields.extended(), fields.kind()) {
            (false, KIND_ACKNOWLEDGE) => Self::Acknowledge {
                credits: fields.value(),
            },
            (false, KIND_RECEIVER_NOT_READY) => Self::ReceiverNotReady {
                timer: fields.value(),
            },
            (false, KIND_NEGATIVE) => Self::Negative(NegativeCode(fields.value())),
            _ => Self::Reserved(byte),
        }
    }

    /// The byte of the header; values wider than their five bits are cut.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        let (kind, value) = match self {
            Self::Acknowledge { credits } => (KIND_ACKNOWLEDGE, credits),
            Self::ReceiverNotReady { timer } => (KIND_RECEIVER_NOT_READY, timer),
            Self::Negative(code) => (KIND_NEGATIVE, code.0),
            Self::Reserved(byte) => return byte,
        };
        SyndromeByte::ZERO
            .with_kind(kind)
            .with_value(SyndromeByte(value).value())
            .0
    }
}

impl Acknowledgement {
    fn from_word(word: u32) -> Self {
        let word = AcknowledgeWord(word);
        Self {
            syndrome: Syndrome::from_byte(word.syndrome() as u8),
            message_sequence_number: word.message_sequence_number(),
        }
    }

    fn to_word(self) -> u32 {
        let number = AcknowledgeWord(self.message_sequence_number).message_sequence_number();
        AcknowledgeWord::ZERO
            .with_syndrome(self.syndrome.to_byte().into())
            .with_message_sequence_number(number)
            .0
    }
}

impl TransportHeaders {
    /// The headers of packet `index` of a run of `packets` that begins with these; see
    /// [`crate::Requester::next_run`]. None of them ends its message.
    #[must_use]
    pub fn of_run(&self, index: u32, packets: u32) -> Self {
        let acknowledge_request = self.acknowledge_request && index + 1 == packets;
        if index == 0 {
            return Self {
                acknowledge_request,
                ..*self
            };
        }
        let opcode = match self.opcode {
            Opcode::WRITE_FIRST => Opcode::WRITE_MIDDLE,
            Opcode::SEND_FIRST => Opcode::SEND_MIDDLE,
            Opcode::READ_RESPONSE_FIRST => Opcode::READ_RESPONSE_MIDDLE,
            middle => middle,
        };
        Self {
            opcode,
            acknowledge_request,
            psn: self.psn.plus(index),
            extension: Extension::None,
            ..*self
        }
    }
}

impl Extension {
    /// The kind of these headers.
    #[must_use]
    pub const fn kind(&self) -> ExtensionKind {
        match self {
            Self::None => ExtensionKind::None,
            Self::Immediate(_) => ExtensionKind::Immediate,
            Self::Invalidate(_) => ExtensionKind::Invalidate,
            Self::Remote(_) => ExtensionKind::Remote,
            Self::RemoteImmediate(..) => ExtensionKind::RemoteImmediate,
            Self::Acknowledge(_) => ExtensionKind::Acknowledge,
            Self::AtomicAcknowledge(..) => ExtensionKind::AtomicAcknowledge,
            Self::Atomic(_) => ExtensionKind::Atomic,
            Self::Datagram(_) => ExtensionKind::Datagram,
            Self::DatagramImmediate(..) => ExtensionKind::DatagramImmediate,
            Self::CongestionNotification(_) => ExtensionKind::CongestionNotification,
        }
    }
}

/// Reads the headers of a UDP payload that ends with the invariant CRC; gives the payload's range.
pub(super) fn parse(segment: &[u8]) -> Result<(TransportHeaders, Range<usize>), ParseError> {
    let truncated = |header| ParseError::Truncated { header };
    let body = segment
        .len()
        .checked_sub(INVARIANT_CRC_LENGTH)
        .ok_or(truncated("ICRC"))?;
    let body = segment.get(..body).ok_or(truncated("ICRC"))?;
    let (base, rest) = BaseHeader::read_from_prefix(body).map_err(|_| truncated("BTH"))?;
    let first = TransportFirst(base.first.get());
    let second = TransportSecond(base.second.get());
    let third = TransportThird(base.third.get());
    if first.version() != 0 {
        return Err(ParseError::BadTransportVersion {
            version: first.version() as u8,
        });
    }
    let opcode = Opcode(first.opcode() as u8);
    let (extension, rest) =
        parse_extension(opcode.extension_kind(), rest).ok_or(truncated("BTH extension"))?;
    let start = body.len() - rest.len();
    let pad = first.pad_bytes() as usize;
    let length = rest.len().checked_sub(pad).ok_or(ParseError::BadLength {
        header: "BTH pad",
        said: pad,
        available: rest.len(),
    })?;
    let headers = TransportHeaders {
        opcode,
        solicited: first.solicited(),
        migrated: first.migrated(),
        partition_key: first.partition_key() as u16,
        forward_congestion: second.forward_congestion(),
        backward_congestion: second.backward_congestion(),
        destination_qp: QpNumber::new(second.destination_qp()),
        acknowledge_request: third.acknowledge_request(),
        psn: Psn::new(third.psn()),
        extension,
    };
    Ok((headers, start..start + length))
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    U32::read_from_prefix(bytes)
        .ok()
        .map(|(value, rest)| (value.get(), rest))
}

fn take_remote(bytes: &[u8]) -> Option<(RemoteBuffer, &[u8])> {
    let (header, rest) = RemoteHeader::read_from_prefix(bytes).ok()?;
    let remote = RemoteBuffer {
        address: header.address.get(),
        key: header.key.get(),
        length_bytes: header.length.get(),
    };
    Some((remote, rest))
}

fn take_datagram(bytes: &[u8]) -> Option<(Datagram, &[u8])> {
    let (header, rest) = DatagramHeader::read_from_prefix(bytes).ok()?;
    let source = DatagramSecond(header.source.get());
    let datagram = Datagram {
        queue_key: header.queue_key.get(),
        source_qp: QpNumber::new(source.source_qp()),
    };
    Some((datagram, rest))
}

fn parse_extension(kind: ExtensionKind, bytes: &[u8]) -> Option<(Extension, &[u8])> {
    Some(match kind {
        ExtensionKind::None => (Extension::None, bytes),
        ExtensionKind::Immediate => {
            let (value, rest) = take_u32(bytes)?;
            (Extension::Immediate(value), rest)
        }
        ExtensionKind::Invalidate => {
            let (key, rest) = take_u32(bytes)?;
            (Extension::Invalidate(key), rest)
        }
        ExtensionKind::Remote => {
            let (remote, rest) = take_remote(bytes)?;
            (Extension::Remote(remote), rest)
        }
        ExtensionKind::RemoteImmediate => {
            let (remote, rest) = take_remote(bytes)?;
            let (value, rest) = take_u32(rest)?;
            (Extension::RemoteImmediate(remote, value), rest)
        }
        ExtensionKind::Acknowledge => {
            let (word, rest) = take_u32(bytes)?;
            (
                Extension::Acknowledge(Acknowledgement::from_word(word)),
                rest,
            )
        }
        ExtensionKind::AtomicAcknowledge => {
            let (word, rest) = take_u32(bytes)?;
            let (original, rest) = U64::read_from_prefix(rest).ok()?;
            let answer = Acknowledgement::from_word(word);
            (Extension::AtomicAcknowledge(answer, original.get()), rest)
        }
        ExtensionKind::Atomic => {
            let (header, rest) = AtomicHeader::read_from_prefix(bytes).ok()?;
            let request = AtomicRequest {
                address: header.address.get(),
                key: header.key.get(),
                swap_or_add: header.swap_or_add.get(),
                compare: header.compare.get(),
            };
            (Extension::Atomic(request), rest)
        }
        ExtensionKind::Datagram => {
            let (datagram, rest) = take_datagram(bytes)?;
            (Extension::Datagram(datagram), rest)
        }
        ExtensionKind::DatagramImmediate => {
            let (datagram, rest) = take_datagram(bytes)?;
            let (value, rest) = take_u32(rest)?;
            (Extension::DatagramImmediate(datagram, value), rest)
        }
        ExtensionKind::CongestionNotification => {
            let (reserved, rest) = <[u8; 16]>::read_from_prefix(bytes).ok()?;
            (Extension::CongestionNotification(reserved), rest)
        }
    })
}

fn pad_bytes(payload_bytes: usize) -> usize {
    payload_bytes.next_multiple_of(4) - payload_bytes
}

/// Length of the UDP payload that [`emit`] and the CRC after it make, in bytes.
pub(super) fn emitted_length(
    headers: &TransportHeaders,
    payload_bytes: usize,
) -> Result<usize, EmitError> {
    let (wanted, held) = (headers.opcode.extension_kind(), headers.extension.kind());
    if wanted != held {
        return Err(EmitError::ExtensionMismatch {
            opcode: headers.opcode,
            wanted,
            held,
        });
    }
    if payload_bytes > usize::from(u16::MAX) {
        return Err(EmitError::PayloadTooLong {
            length_bytes: payload_bytes,
        });
    }
    Ok(size_of::<BaseHeader>()
        + held.length_bytes()
        + payload_bytes
        + pad_bytes(payload_bytes)
        + INVARIANT_CRC_LENGTH)
}

/// Appends headers, payload and pad.
pub(super) fn emit(headers: &TransportHeaders, payload: &[u8], frame: &mut Vec<u8>) {
    let pad = pad_bytes(payload.len());
    let first = TransportFirst::ZERO
        .with_opcode(headers.opcode.0.into())
        .with_solicited(headers.solicited)
        .with_migrated(headers.migrated)
        .with_pad_bytes(pad as u32)
        .with_partition_key(headers.partition_key.into());
    let second = TransportSecond::ZERO
        .with_forward_congestion(headers.forward_congestion)
        .with_backward_congestion(headers.backward_congestion)
        .with_destination_qp(headers.destination_qp.value());
    let third = TransportThird::ZERO
        .with_acknowledge_request(headers.acknowledge_request)
        .with_psn(headers.psn.value());
    let base = BaseHeader {
        first: first.0.into(),
        second: second.0.into(),
        third: third.0.into(),
    };
    frame.extend_from_slice(base.as_bytes());
    emit_extension(&headers.extension, frame);
    frame.extend_from_slice(payload);
    frame.extend(std::iter::repeat_n(0, pad));
}

fn put_u32(value: u32, frame: &mut Vec<u8>) {
    frame.extend_from_slice(&value.to_be_bytes());
}

fn put_remote(remote: &RemoteBuffer, frame: &mut Vec<u8>) {
    let header = RemoteHeader {
        address: remote.address.into(),
        key: remote.key.into(),
        length: remote.length_bytes.into(),
    };
    frame.extend_from_slice(header.as_bytes());
}

fn put_datagram(datagram: &Datagram, frame: &mut Vec<u8>) {
    let source = DatagramSecond::ZERO.with_source_qp(datagram.source_qp.value());
    let header = DatagramHeader {
        queue_key: datagram.queue_key.into(),
        source: source.0.into(),
    };
    frame.extend_from_slice(header.as_bytes());
}

fn emit_extension(extension: &Extension, frame: &mut Vec<u8>) {
    match extension {
        Extension::None => {}
        Extension::Immediate(value) | Extension::Invalidate(value) => put_u32(*value, frame),
        Extension::Remote(remote) => put_remote(remote, frame),
        Extension::RemoteImmediate(remote, value) => {
            put_remote(remote, frame);
            put_u32(*value, frame);
        }
        Extension::Acknowledge(answer) => put_u32(answer.to_word(), frame),
        Extension::AtomicAcknowledge(answer, original) => {
            put_u32(answer.to_word(), frame);
            frame.extend_from_slice(&original.to_be_bytes());
        }
        Extension::Atomic(request) => {
            let header = AtomicHeader {
                address: request.address.into(),
                key: request.key.into(),
                swap_or_add: request.swap_or_add.into(),
                compare: request.compare.into(),
            };
            frame.extend_from_slice(header.as_bytes());
        }
        Extension::Datagram(datagram) => put_datagram(datagram, frame),
        Extension::DatagramImmediate(datagram, value) => {
            put_datagram(datagram, frame);
            put_u32(*value, frame);
        }
        Extension::CongestionNotification(reserved) => frame.extend_from_slice(reserved),
    }
}
