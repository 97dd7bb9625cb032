//! The handling of a request packet by a responder.

use super::reads::Read;
use super::{Message, Pending, Phase, Receive, RemoteRight, Responder, ResponderHost};
use crate::fault::ResponderFault;
use crate::packet::{Extension, Opcode, Psn, RemoteBuffer, TransportHeaders};
use crate::partition_keys_match;
use crate::work::MAX_MESSAGE_BYTES;

/// The target of a request's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement<G> {
    /// Into memory that the peer named.
    Remote {
        /// the result of [`ResponderHost::grant`] for the whole message
        grant: G,
        /// first byte
        address: u64,
        /// bytes, at least 1
        length_bytes: u32,
    },
    /// Into a receive request.
    Receive {
        /// the request
        token: u32,
        /// from its start, across its fragments
        offset_bytes: u32,
        /// bytes, at least 1
        length_bytes: u32,
    },
}

/// A receive request that is complete, once the placement that came with it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// the receive request
    pub token: u32,
    /// length of the message in bytes; for a write with immediate data that of the write
    pub length_bytes: u32,
    /// opcode of the message's last packet
    pub opcode: Opcode,
    /// immediate data, the four bytes as a big-endian number
    pub immediate: Option<u32>,
    /// our own key that the message invalidates: after the placement, before the completion
    pub invalidated: Option<u32>,
    /// the sender requested a completion event
    pub solicited: bool,
}

/// The meaning of a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome<G> {
    /// The packet is in order.
    Accepted {
        /// copy the payload there, before the next call of the responder
        placement: Option<Placement<G>>,
        /// then write this completion
        received: Option<Received>,
    },
    /// A duplicate; it is answered again where that is due.
    Duplicate,
    /// Something before it is missing; the first such packet causes a NAK.
    Gap,
    /// No receive request is posted; the peer receives a request to wait.
    NotReady,
    /// The packet was dropped without an answer.
    Dropped(DropReason),
    /// The responder has stopped; the peer gets a NAK. Raise the event.
    Fault(ResponderFault),
}

/// The reason why a request was dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// the responder has stopped
    Stopped,
    /// of another partition
    PartitionKey,
    /// older than the connection, or a duplicate read that reaches beyond the original request
    OutOfWindow,
    /// a duplicate read that cannot be answered now: too many wait, or its memory was deregistered
    DuplicateRead,
    /// no request of a reliable connection
    NotARequest,
}

/// The kind of message that a packet is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
}

/// Place of a packet in its message.
#[derive(Clone, Copy)]
struct Place {
    kind: Kind,
    is_first: bool,
    is_last: bool,
}

#[inline]
const fn place(opcode: Opcode) -> Option<Place> {
    let (kind, is_first, is_last) = match opcode {
        Opcode::SEND_FIRST => (Kind::Send, true, false),
        Opcode::SEND_MIDDLE => (Kind::Send, false, false),
        Opcode::SEND_LAST
        | Opcode::SEND_LAST_WITH_IMMEDIATE
        | Opcode::SEND_LAST_WITH_INVALIDATE => (Kind::Send, false, true),
        Opcode::SEND_ONLY
        | Opcode::SEND_ONLY_WITH_IMMEDIATE
        | Opcode::SEND_ONLY_WITH_INVALIDATE => (Kind::Send, true, true),
        Opcode::WRITE_FIRST => (Kind::Write, true, false),
        Opcode::WRITE_MIDDLE => (Kind::Write, false, false),
        Opcode::WRITE_LAST | Opcode::WRITE_LAST_WITH_IMMEDIATE => (Kind::Write, false, true),
        Opcode::WRITE_ONLY | Opcode::WRITE_ONLY_WITH_IMMEDIATE => (Kind::Write, true, true),
        _ => return None,
    };
    Some(Place {
        kind,
        is_first,
        is_last,
    })
}

/// A packet that was not taken.
enum Refusal {
    NotReady,
    Fault(ResponderFault),
}

impl From<ResponderFault> for Refusal {
    fn from(fault: ResponderFault) -> Self {
        Self::Fault(fault)
    }
}

/// The caller's task for a packet.
type Effects<G> = (Option<Placement<G>>, Option<Received>);
type Taken<G> = Result<Effects<G>, Refusal>;
/// The same, and the message that is open afterwards.
type Step<G> = Result<(Message<G>, Effects<G>), Refusal>;

impl<G: Copy> Responder<G> {
    /// Takes one request packet whose payload has `payload_bytes`.
    #[inline]
    pub fn on_request(
        &mut self,
        headers: &TransportHeaders,
        payload_bytes: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> RequestOutcome<G> {
        if self.phase == Phase::Stopped {
            return self.dropped(DropReason::Stopped);
        }
        if !partition_keys_match(headers.partition_key, self.template.partition_key) {
            return self.dropped(DropReason::PartitionKey);
        }
        let ahead = headers.psn.distance_from(self.expected);
        if ahead != 0 {
            return self.out_of_order(headers, ahead, host);
        }
        let taken = match place(headers.opcode) {
            Some(place) => self.data(headers, place, payload_bytes, host),
            None if headers.opcode == Opcode::READ_REQUEST => {
                self.read(headers, payload_bytes, host)
            }
            None if is_atomic(headers.opcode) => Err(ResponderFault::BadOpcode.into()),
            None => return self.dropped(DropReason::NotARequest),
        };
        match taken {
            Ok((placement, received)) => {
                self.statistics.packets_accepted += 1;
                self.phase = Phase::InOrder;
                RequestOutcome::Accepted {
                    placement,
                    received,
                }
            }
            Err(Refusal::NotReady) => {
                self.statistics.receiver_not_ready += 1;
                self.phase = Phase::NegativeSent;
                self.pending = Pending::NotReady;
                RequestOutcome::NotReady
            }
            Err(Refusal::Fault(fault)) => RequestOutcome::Fault(self.refuse(self.expected, fault)),
        }
    }

    fn dropped(&mut self, reason: DropReason) -> RequestOutcome<G> {
        self.statistics.dropped += 1;
        RequestOutcome::Dropped(reason)
    }

    /// A packet of a send or a write, in order.
    #[inline]
    fn data(
        &mut self,
        headers: &TransportHeaders,
        place: Place,
        payload_bytes: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> Taken<G> {
        let mtu = self.mtu.bytes();
        let fits = if place.is_last {
            payload_bytes <= mtu && (payload_bytes > 0 || place.is_first)
        } else {
            payload_bytes == mtu
        };
        if !fits {
            return Err(ResponderFault::BadLength {
                found: payload_bytes,
            }
            .into());
        }
        let (message, taken) = match place.kind {
            Kind::Write => self.write(headers, place, payload_bytes, host)?,
            Kind::Send => self.send(headers, place, payload_bytes, host)?,
        };
        self.message = message;
        self.expected = self.expected.plus(1);
        self.behind = (self.behind + 1).min(Psn::MODULUS / 2);
        if place.is_last {
            self.message_done();
        }
        // a NAK that was about to leave for this very packet is void
        if headers.acknowledge_request || self.pending != Pending::None {
            self.pending = Pending::Acknowledge;
        }
        Ok(taken)
    }

    #[inline]
    pub(super) fn message_done(&mut self) {
        self.message_sequence_number = Psn::new(self.message_sequence_number + 1).value();
    }

    #[inline]
    fn write(
        &mut self,
        headers: &TransportHeaders,
        place: Place,
        payload_bytes: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> Step<G> {
        let (remote, immediate) = match headers.extension {
            Extension::Remote(remote) => (Some(remote), None),
            Extension::RemoteImmediate(remote, value) => (Some(remote), Some(value)),
            Extension::Immediate(value) => (None, Some(value)),
            _ => (None, None),
        };
        if place.is_first {
            return self.write_first(remote, immediate, headers, place, payload_bytes, host);
        }
        let Message::Write {
            grant,
            address,
            offset_bytes,
            length_bytes,
        } = self.message
        else {
            return Err(ResponderFault::BadOpcode.into());
        };
        let end = offset_bytes + payload_bytes;
        if end > length_bytes || (end == length_bytes) != place.is_last {
            return Err(ResponderFault::BadWriteLength.into());
        }
        let received = self.announce(headers, immediate, length_bytes, host)?;
        let placement = Placement::Remote {
            grant,
            address: address.wrapping_add(u64::from(offset_bytes)),
            length_bytes: payload_bytes,
        };
        let message = if place.is_last {
            Message::None
        } else {
            Message::Write {
                grant,
                address,
                offset_bytes: end,
                length_bytes,
            }
        };
        Ok((message, (Some(placement), received)))
    }

    #[inline]
    fn write_first(
        &mut self,
        remote: Option<RemoteBuffer>,
        immediate: Option<u32>,
        headers: &TransportHeaders,
        place: Place,
        payload_bytes: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> Step<G> {
        let (Some(remote), Message::None) = (remote, self.message) else {
            return Err(ResponderFault::BadOpcode.into());
        };
        if !host.allows(RemoteRight::Write) {
            return Err(ResponderFault::BadOpcode.into());
        }
        let RemoteBuffer {
            address,
            key,
            length_bytes,
        } = remote;
        let fits = if place.is_last {
            payload_bytes == length_bytes
        } else {
            payload_bytes < length_bytes && length_bytes <= MAX_MESSAGE_BYTES
        };
        if !fits {
            return Err(ResponderFault::BadWriteLength.into());
        }
        if length_bytes == 0 {
            let received = self.announce(headers, immediate, 0, host)?;
            return Ok((Message::None, (None, received)));
        }
        let grant = host
            .grant(key, address, length_bytes, RemoteRight::Write)
            .map_err(ResponderFault::RemoteAccess)?;
        let received = self.announce(headers, immediate, length_bytes, host)?;
        let placement = Placement::Remote {
            grant,
            address,
            length_bytes: payload_bytes,
        };
        let message = if place.is_last {
            Message::None
        } else {
            Message::Write {
                grant,
                address,
                offset_bytes: payload_bytes,
                length_bytes,
            }
        };
        Ok((message, (Some(placement), received)))
    }

    /// Takes the receive request that announces a write with immediate data.
    #[inline]
    fn announce(
        &mut self,
        headers: &TransportHeaders,
        immediate: Option<u32>,
        length_bytes: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> Result<Option<Received>, Refusal> {
        let Some(immediate) = immediate else {
            return Ok(None);
        };
        let (token, _) = take_receive(host)?;
        Ok(Some(Received {
            token,
            length_bytes,
            opcode: headers.opcode,
            immediate: Some(immediate),
            invalidated: None,
            solicited: headers.solicited,
        }))
    }

    #[inline]
    fn send(
        &mut self,
        headers: &TransportHeaders,
        place: Place,
        payload_bytes: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> Step<G> {
        let (token, capacity_bytes, offset_bytes) = match (self.message, place.is_first) {
            (Message::None, true) => {
                let (token, capacity_bytes) = take_receive(host)?;
                (token, capacity_bytes, 0)
            }
            (
                Message::Send {
                    token,
                    capacity_bytes,
                    offset_bytes,
                },
                false,
            ) => (token, capacity_bytes, offset_bytes),
            _ => return Err(ResponderFault::BadOpcode.into()),
        };
        // if a later step fails, this receive request is the one that failed
        self.message = Message::Send {
            token,
            capacity_bytes,
            offset_bytes,
        };
        if payload_bytes > capacity_bytes.saturating_sub(offset_bytes) {
            return Err(ResponderFault::MessageTooLong { capacity_bytes }.into());
        }
        let placement = (payload_bytes > 0).then_some(Placement::Receive {
            token,
            offset_bytes,
            length_bytes: payload_bytes,
        });
        let offset_bytes = offset_bytes + payload_bytes;
        if !place.is_last {
            let message = Message::Send {
                token,
                capacity_bytes,
                offset_bytes,
            };
            return Ok((message, (placement, None)));
        }
        let (mut immediate, mut invalidated) = (None, None);
        match headers.extension {
            Extension::Immediate(value) => immediate = Some(value),
            Extension::Invalidate(key) => {
                let allowed = host.may_invalidate(key);
                allowed.map_err(ResponderFault::Invalidate)?;
                invalidated = Some(key);
            }
            _ => {}
        }
        let received = Received {
            token,
            length_bytes: offset_bytes,
            opcode: headers.opcode,
            immediate,
            invalidated,
            solicited: headers.solicited,
        };
        Ok((Message::None, (placement, Some(received))))
    }

    /// A read request, in order.
    fn read(
        &mut self,
        headers: &TransportHeaders,
        payload_bytes: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> Taken<G> {
        let Message::None = self.message else {
            return Err(ResponderFault::BadOpcode.into());
        };
        if !host.allows(RemoteRight::Read) {
            return Err(ResponderFault::BadOpcode.into());
        }
        let remote = match headers.extension {
            Extension::Remote(remote)
                if payload_bytes == 0 && remote.length_bytes <= MAX_MESSAGE_BYTES =>
            {
                remote
            }
            _ => return Err(ResponderFault::BadReadRequest.into()),
        };
        if self.reads.is_full() {
            return Err(ResponderFault::TooManyReads.into());
        }
        let grant = granted(&remote, host).map_err(ResponderFault::RemoteAccess)?;
        self.message_done();
        let read = self.new_read(headers.psn, &remote, grant);
        if self.reads.is_empty() {
            // The number never falls so far behind that it would seem to be ahead.
            self.answered = headers.psn;
        }
        self.reads.push(read);
        self.expected = self.expected.plus(read.remaining_packets);
        self.behind = (self.behind + read.remaining_packets).min(Psn::MODULUS / 2);
        // the response acknowledges everything before it
        self.pending = Pending::None;
        Ok((None, None))
    }

    fn new_read(&self, psn: Psn, remote: &RemoteBuffer, grant: Option<G>) -> Read<G> {
        Read {
            next: psn,
            first: psn,
            address: remote.address,
            remaining_bytes: remote.length_bytes,
            remaining_packets: self.mtu.packets(remote.length_bytes),
            grant,
            message_sequence_number: self.message_sequence_number,
            is_repetition: false,
        }
    }

    #[cold]
    fn out_of_order(
        &mut self,
        headers: &TransportHeaders,
        ahead: i32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> RequestOutcome<G> {
        let is_atomic = is_atomic(headers.opcode);
        let is_served = place(headers.opcode).is_some() || headers.opcode == Opcode::READ_REQUEST;
        if !is_served && !is_atomic {
            return self.dropped(DropReason::NotARequest);
        }
        if ahead > 0 {
            if self.phase == Phase::NegativeSent {
                self.statistics.dropped_after_gap += 1;
            } else {
                self.statistics.gaps += 1;
                self.phase = Phase::NegativeSent;
                self.pending = Pending::SequenceError;
            }
            return RequestOutcome::Gap;
        }
        // None was taken that could come again.
        if is_atomic || ahead.unsigned_abs() > self.behind {
            return self.dropped(DropReason::OutOfWindow);
        }
        if headers.opcode == Opcode::READ_REQUEST {
            return self.duplicate_read(headers, ahead.unsigned_abs(), host);
        }
        self.statistics.duplicates += 1;
        if self.pending == Pending::None {
            self.pending = Pending::Acknowledge;
        }
        RequestOutcome::Duplicate
    }

    /// Carries a read out again, perhaps from its middle. Nothing else about it is remembered, so
    /// every check is made again.
    fn duplicate_read(
        &mut self,
        headers: &TransportHeaders,
        behind: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> RequestOutcome<G> {
        let Extension::Remote(remote) = headers.extension else {
            return self.dropped(DropReason::OutOfWindow);
        };
        let too_long = remote.length_bytes > MAX_MESSAGE_BYTES;
        if too_long || self.mtu.packets(remote.length_bytes) > behind {
            return self.dropped(DropReason::OutOfWindow);
        }
        if self.reads.covers(headers.psn) {
            self.statistics.duplicates += 1;
            return RequestOutcome::Duplicate;
        }
        if !host.allows(RemoteRight::Read) {
            return self.dropped(DropReason::DuplicateRead);
        }
        let Ok(grant) = granted(&remote, host) else {
            return self.dropped(DropReason::DuplicateRead);
        };
        let read = self.new_read(headers.psn, &remote, grant);
        if !self.reads.repeat(read) {
            return self.dropped(DropReason::DuplicateRead);
        }
        self.statistics.duplicates += 1;
        RequestOutcome::Duplicate
    }
}

#[inline]
fn take_receive(host: &mut impl ResponderHost) -> Result<(u32, u32), Refusal> {
    match host.take_receive() {
        Receive::Ready {
            token,
            capacity_bytes,
        } => Ok((token, capacity_bytes)),
        Receive::Empty => Err(Refusal::NotReady),
        Receive::Malformed { code } => Err(ResponderFault::BadReceiveRequest { code }.into()),
    }
}

/// True for the operations that no device of this kind carries out.
fn is_atomic(opcode: Opcode) -> bool {
    opcode == Opcode::COMPARE_SWAP || opcode == Opcode::FETCH_ADD
}

/// The check of a read; an empty one needs none.
fn granted<H: ResponderHost>(
    remote: &RemoteBuffer,
    host: &mut H,
) -> Result<Option<H::Grant>, super::AccessFault> {
    if remote.length_bytes == 0 {
        return Ok(None);
    }
    host.grant(
        remote.key,
        remote.address,
        remote.length_bytes,
        RemoteRight::Read,
    )
    .map(Some)
}
