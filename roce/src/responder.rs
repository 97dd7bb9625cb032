//! The half that receives requests, carries them out and answers.
//!
//! Requests are taken strictly in order of their PSN. Answers leave in the same order: read
//! responses wait in a queue, and the one acknowledgement or NAK that is due leaves after them,
//! since an acknowledgement that overtook them would tell the peer that they were lost.

mod reads;
mod request;
mod run;
mod short;

#[cfg(test)]
mod tests;

use super::config::{PathMtu, ResponderConfig};
use super::fault::{AccessFault, ResponderFault};
use crate::packet::{
    Acknowledgement, Extension, NegativeCode, Opcode, Psn, Syndrome, TransportHeaders,
};
use reads::ReadQueue;
pub use reads::RemoteBytes;

pub use request::{DropReason, Placement, Received, RequestOutcome};

/// The services that a responder needs of its adapter.
pub trait ResponderHost {
    /// Proof of an access check, returned with the bytes that it covers, so that the adapter need
    /// not look them up again. It may become invalid before the last byte was moved; the adapter
    /// detects that.
    type Grant: Copy;

    /// May the peer request this at all? Asked before anything else of a write or a read, also of
    /// an empty one.
    fn allows(&self, right: RemoteRight) -> bool;

    /// May the peer touch these bytes? Asked once for each message, for its whole length, never
    /// for an empty one.
    ///
    /// # Errors
    /// The failed check.
    fn grant(
        &mut self,
        key: u32,
        address: u64,
        length_bytes: u32,
        right: RemoteRight,
    ) -> Result<Self::Grant, AccessFault>;

    /// Takes the next receive request of this queue pair.
    fn take_receive(&mut self) -> Receive;

    /// May the peer's send invalidate this key? The adapter does so once the payload is in its
    /// place, which the key may name: see [`Received::invalidated`].
    ///
    /// # Errors
    /// The failed check.
    fn may_invalidate(&mut self, key: u32) -> Result<(), AccessFault>;
}

/// The peer's request to our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteRight {
    /// RDMA read
    Read,
    /// RDMA write
    Write,
}

/// The answer to [`ResponderHost::take_receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// A receive request was posted.
    Ready {
        /// the adapter's own name for it
        token: u32,
        /// bytes that it takes
        capacity_bytes: u32,
    },
    /// None is posted; the peer receives a request to repeat the message later.
    Empty,
    /// One is posted and malformed; the responder stops.
    Malformed {
        /// the adapter's own code of the error, which the fault carries
        code: u16,
    },
}

/// A packet that a responder sends, or a run of packets; see [`Responder::next_run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponsePacket<G> {
    /// its headers, ready for the wire
    pub headers: TransportHeaders,
    /// its payload, if it has any
    pub payload: Option<RemoteBytes<G>>,
    /// number of packets, at least 1
    pub packets: u32,
    /// a read response that, to its end, was sent before
    pub repeated: bool,
}

/// The counts of a responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderStatistics {
    /// requests taken in order
    pub packets_accepted: u64,
    /// requests that came again
    pub duplicates: u64,
    /// gaps noticed, each answered by one NAK
    pub gaps: u64,
    /// packets dropped while a gap was open
    pub dropped_after_gap: u64,
    /// RNR NAKs
    pub receiver_not_ready: u64,
    /// packets dropped for another reason
    pub dropped: u64,
    /// acknowledgements and NAKs sent
    pub acknowledgements_sent: u64,
    /// read response packets sent
    pub read_responses_sent: u64,
}

/// The message whose packets are arriving.
#[derive(Clone, Copy, Debug)]
enum Message<G> {
    None,
    Send {
        token: u32,
        capacity_bytes: u32,
        offset_bytes: u32,
    },
    Write {
        grant: G,
        address: u64,
        offset_bytes: u32,
        length_bytes: u32,
    },
}

/// The handling of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is taken if it is the expected one; a gap gets a NAK.
    InOrder,
    /// A NAK was sent for the expected packet: no second one until it arrives.
    NegativeSent,
    /// It is dropped.
    Stopped,
}

/// The answer that leaves once all read responses have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    None,
    /// acknowledges everything before the expected PSN
    Acknowledge,
    /// something before this packet is missing
    SequenceError,
    NotReady,
    /// the last word
    Refused(Psn, NegativeCode),
}

/// The receive half of a reliable connection.
///
/// See the [module](super) for who calls what when. `G` is [`ResponderHost::Grant`].
#[derive(Debug)]
pub struct Responder<G> {
    expected: Psn,
    /// packets accepted so far, up to half of all numbers: what may come again
    behind: u32,
    message_sequence_number: u32,
    message: Message<G>,
    phase: Phase,
    pending: Pending,
    reads: ReadQueue<G>,
    /// the response packet after the newest that was sent
    answered: Psn,
    mtu: PathMtu,
    acknowledge_credits: u8,
    not_ready_timer: u8,
    template: TransportHeaders,
    statistics: ResponderStatistics,
}

impl<G: Copy> Responder<G> {
    /// A responder that waits for its first packet. This is the only place that allocates.
    #[must_use]
    pub fn new(config: &ResponderConfig) -> Self {
        Self {
            expected: config.expected_psn,
            behind: 0,
            message_sequence_number: 0,
            message: Message::None,
            phase: Phase::InOrder,
            pending: Pending::None,
            reads: ReadQueue::new(usize::from(config.inbound_reads)),
            answered: config.expected_psn,
            mtu: config.path_mtu,
            acknowledge_credits: config.acknowledge_credits,
            not_ready_timer: config.not_ready_timer,
            template: TransportHeaders {
                opcode: Opcode::ACKNOWLEDGE,
                solicited: false,
                migrated: true,
                partition_key: config.partition_key,
                forward_congestion: false,
                backward_congestion: false,
                destination_qp: config.destination_qp,
                acknowledge_request: false,
                psn: config.expected_psn,
                extension: Extension::None,
            },
            statistics: ResponderStatistics::default(),
        }
    }

    /// True if [`Responder::next_packet`] has something.
    #[inline]
    #[must_use]
    pub fn has_packet(&self) -> bool {
        self.pending != Pending::None || !self.reads.is_empty()
    }

    /// True if the responses of reads wait to leave.
    #[inline]
    #[must_use]
    pub fn has_responses(&self) -> bool {
        !self.reads.is_empty()
    }

    /// True once a fault or [`Responder::stop`] has ended it.
    #[inline]
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// The receive request whose message is arriving, if there is one: where a flush starts.
    #[must_use]
    pub fn open_receive(&self) -> Option<u32> {
        match self.message {
            Message::Send { token, .. } => Some(token),
            Message::None | Message::Write { .. } => None,
        }
    }

    /// Its counts.
    #[must_use]
    pub fn statistics(&self) -> ResponderStatistics {
        self.statistics
    }

    /// Number of the next packet expected (for a context read back).
    #[must_use]
    pub fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Changes the number of reads that the peer may have outstanding, as in [`ResponderConfig`].
    /// Those that it has stay.
    pub fn set_reads(&mut self, inbound_reads: u16) {
        self.reads.set_limit(inbound_reads.into());
    }

    /// Ends it: nothing is taken any more. A refusal that has not left yet still leaves, with the
    /// read responses ahead of it, since the peer would wait for it. So does an acknowledgement
    /// with nothing ahead of it: the owner may know that the message has come. No other answer
    /// does.
    pub fn stop(&mut self) {
        self.phase = Phase::Stopped;
        match self.pending {
            Pending::Refused(..) => {}
            Pending::Acknowledge if self.reads.is_empty() => {}
            _ => {
                self.pending = Pending::None;
                self.reads.clear();
            }
        }
    }

    /// Takes the refusal or acknowledgement that has not left yet out of a responder that is about
    /// to be destroyed. `None` if there is none, or if read responses would have to leave first:
    /// they need memory that the caller may no longer own.
    pub fn take_last_answer(&mut self) -> Option<ResponsePacket<G>> {
        match self.pending {
            Pending::Refused(..) | Pending::Acknowledge if self.reads.is_empty() => {
                self.next_packet()
            }
            _ => None,
        }
    }

    /// Takes the receive request whose message was arriving, so that a flush names it once.
    pub fn take_open_receive(&mut self) -> Option<u32> {
        let open = self.open_receive()?;
        self.message = Message::None;
        Some(open)
    }

    /// Reports that the placement of the last [`Responder::on_request`] could not be carried out:
    /// the packet counts as refused, the peer gets a NAK and the responder stops. `received` is the
    /// message that the packet completed, if it did. Its receive request counts as open again, so
    /// that a flush names it.
    ///
    /// Returns the fault to report.
    pub fn refuse_placement(
        &mut self,
        placement: &Placement<G>,
        received: Option<&Received>,
        access: AccessFault,
    ) -> ResponderFault {
        if let Some(received) = received {
            self.open_again(received);
        }
        let psn = self.expected.plus(Psn::MODULUS - 1);
        let fault = match placement {
            Placement::Receive { .. } => ResponderFault::ReceiveAccess(access),
            Placement::Remote { .. } => ResponderFault::RemoteAccess(access),
        };
        self.refuse(psn, fault)
    }

    /// Reports that the key of [`Received::invalidated`] could not be invalidated: as
    /// [`Self::refuse_placement`].
    pub fn refuse_invalidation(
        &mut self,
        received: &Received,
        access: AccessFault,
    ) -> ResponderFault {
        self.open_again(received);
        let psn = self.expected.plus(Psn::MODULUS - 1);
        self.refuse(psn, ResponderFault::Invalidate(access))
    }

    /// The receive request of a message counts as open again.
    fn open_again(&mut self, received: &Received) {
        self.message = Message::Send {
            token: received.token,
            capacity_bytes: received.length_bytes,
            offset_bytes: received.length_bytes,
        };
    }

    /// The payload of `packet`, which [`Responder::next_packet`] just gave, could not be read: the
    /// peer gets a NAK in its place and the responder stops. Gives the fault to report.
    ///
    /// `None`: all that was left of the response had been sent before. The packet is dropped, and
    /// the responder continues. A peer that has got a response may let its memory be invalidated,
    /// while a repetition that it asked for earlier still waits here.
    pub fn refuse_response(
        &mut self,
        packet: &ResponsePacket<G>,
        access: AccessFault,
    ) -> Option<ResponderFault> {
        if packet.repeated {
            return None;
        }
        self.reads.clear();
        Some(self.refuse(packet.headers.psn, ResponderFault::RemoteAccess(access)))
    }

    /// The next packet to send, if there is one. Call it until it gives `None` or the wire is
    /// full.
    #[inline]
    pub fn next_packet(&mut self) -> Option<ResponsePacket<G>> {
        self.next_run(0)
    }

    /// The same, where a carrier takes several packets at once: up to `run_bytes` of a response's
    /// full packets come as one with the headers of the first, its last packet by itself.
    #[inline]
    pub fn next_run(&mut self, run_bytes: u32) -> Option<ResponsePacket<G>> {
        if !self.reads.is_empty() {
            return self.next_read_response(run_bytes);
        }
        let before = self.expected.plus(Psn::MODULUS - 1);
        let (psn, syndrome) = match self.pending {
            Pending::None => return None,
            Pending::Acknowledge => (
                before,
                Syndrome::Acknowledge {
                    credits: self.acknowledge_credits,
                },
            ),
            Pending::SequenceError => (
                self.expected,
                Syndrome::Negative(NegativeCode::SEQUENCE_ERROR),
            ),
            Pending::NotReady => (
                self.expected,
                Syndrome::ReceiverNotReady {
                    timer: self.not_ready_timer,
                },
            ),
            Pending::Refused(psn, code) => (psn, Syndrome::Negative(code)),
        };
        self.pending = Pending::None;
        self.statistics.acknowledgements_sent += 1;
        let message_sequence_number = self.message_sequence_number;
        let extension = Extension::Acknowledge(Acknowledgement {
            syndrome,
            message_sequence_number,
        });
        Some(ResponsePacket {
            headers: TransportHeaders {
                psn,
                extension,
                ..self.template
            },
            payload: None,
            packets: 1,
            repeated: false,
        })
    }

    fn next_read_response(&mut self, run_bytes: u32) -> Option<ResponsePacket<G>> {
        let part = self.reads.next_part(self.mtu, run_bytes)?;
        self.statistics.read_responses_sent += u64::from(part.packets);
        let after = part.psn.plus(part.packets);
        let end = after.plus(part.packets_left);
        let repeated = self.answered.distance_from(end) >= 0;
        if after.distance_from(self.answered) > 0 {
            self.answered = after;
        }
        let answer = Extension::Acknowledge(Acknowledgement {
            syndrome: Syndrome::Acknowledge {
                credits: self.acknowledge_credits,
            },
            message_sequence_number: part.message_sequence_number,
        });
        let (opcode, extension) = match (part.is_first, part.is_last) {
            (true, true) => (Opcode::READ_RESPONSE_ONLY, answer),
            (true, false) => (Opcode::READ_RESPONSE_FIRST, answer),
            (false, false) => (Opcode::READ_RESPONSE_MIDDLE, Extension::None),
            (false, true) => (Opcode::READ_RESPONSE_LAST, answer),
        };
        let headers = TransportHeaders {
            opcode,
            extension,
            psn: part.psn,
            ..self.template
        };
        Some(ResponsePacket {
            headers,
            payload: part.bytes,
            packets: part.packets,
            repeated,
        })
    }

    fn refuse(&mut self, psn: Psn, fault: ResponderFault) -> ResponderFault {
        self.phase = Phase::Stopped;
        self.pending = Pending::Refused(psn, fault.negative_code());
        fault
    }
}
