//! Packets from the wire.

use super::ActiveQueuePair;
use super::send::LOCAL_WRITE;
use super::transmit::{GatherFault, parts, small_parts};
use crate::frame::{Frame, PayloadError, Pieces};
use crate::packet::{Opcode, OpcodeClass};
use crate::rdma::fault_codes;
use crate::rdma::objects::Element;
use crate::rdma::regions::TagFault;
use crate::rdma::translation::{Access, Granted};
use crate::roce::{
    AccessFault, MessageBytes, Placement, Receive, Received, RemoteRight, RequestOutcome,
    RequesterFault, ResponderFault, ResponderHost, ResponseOutcome,
};
use ringside_bus::{DmaFault, DmaSpace, Iova};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AccessRights, AeSource};
use ringside_spec::verbs::{
    CompletionElement, CompletionExtension, Fragment, QueueSide, ReceiveElement, SendElement,
};

pub(in crate::rdma) const REMOTE_WRITE: AccessRights = AccessRights::ZERO.with_remote_write(true);

/// Values of six bits: the part of a packet's opcode in a completion.
const OPERATION_CODES: u8 = 64;

/// The reason why a payload was not placed.
pub(super) enum Unplaced {
    /// The place cannot be found.
    Gather(GatherFault),
    /// The place refuses.
    Target,
    /// The sender's memory is not accessible: nothing to place.
    Source,
    /// The process behind this function has ended, and its memory with it.
    OwnerEnded,
}

impl Unplaced {
    /// The receiving memory refused with this fault.
    pub(super) const fn at_target(fault: DmaFault) -> Self {
        match fault {
            DmaFault::Gone {
                owner_ended: true, ..
            } => Self::OwnerEnded,
            _ => Self::Target,
        }
    }
}

impl ActiveQueuePair<'_, '_> {
    /// Takes a packet for this queue pair. False if it is none of its business.
    #[inline]
    pub(in crate::rdma) fn receive(&mut self, frame: &Frame, spaces: &[DmaSpace]) -> bool {
        let network = &frame.packet.path.network;
        if !self.qp.is_from_peer(network) | network.is_marked() {
            return self.receive_specially(frame, spaces);
        }
        self.receive_from_peer(frame, spaces)
    }

    #[inline]
    fn receive_from_peer(&mut self, frame: &Frame, spaces: &[DmaSpace]) -> bool {
        if !self.resolve() {
            return false;
        }
        match frame.packet.transport.opcode.class() {
            OpcodeClass::Request => self.on_request(frame, spaces),
            OpcodeClass::Response => self.on_response(frame, spaces),
            OpcodeClass::CongestionNotification => {
                self.on_notification();
                true
            }
            OpcodeClass::Datagram => self.receive_datagram(frame, spaces),
            OpcodeClass::Unknown => false,
        }
    }

    /// Takes a packet that does not come from the peer of a connection, as only datagrams do, or
    /// one that met congestion.
    #[cold]
    fn receive_specially(&mut self, frame: &Frame, spaces: &[DmaSpace]) -> bool {
        let network = &frame.packet.path.network;
        let class = frame.packet.transport.opcode.class();
        let marked = network.is_marked();
        self.objects.counters.marked += u64::from(marked);
        if !self.qp.is_from_peer(network) {
            return class == OpcodeClass::Datagram && self.receive_datagram(frame, spaces);
        }
        if marked && matches!(class, OpcodeClass::Request | OpcodeClass::Response) {
            self.notify_peer();
        }
        self.receive_from_peer(frame, spaces)
    }

    #[inline]
    fn on_request(&mut self, frame: &Frame, spaces: &[DmaSpace]) -> bool {
        if !self.qp.receives() {
            return false;
        }
        let Some(mut responder) = self.qp.responder.take() else {
            return false;
        };
        let headers = &frame.packet.transport;
        let (outcome, taken) = match frame.packets {
            1 => {
                let length = frame.payload.length() as u32;
                (responder.on_request(headers, length, self), 1)
            }
            // A refusal by the host then affects one packet.
            packets => {
                let at_once = if self.context.memory.is_refusing() {
                    1
                } else {
                    packets
                };
                responder.on_run(headers, at_once, frame.packet_bytes() as u32, self)
            }
        };
        self.qp.responder = Some(responder);
        if taken < frame.packets {
            let first = self.finish_request(&frame.part(0), spaces, outcome);
            return self.take_apart(frame, first, spaces);
        }
        self.finish_request(frame, spaces, outcome)
    }

    /// Takes the packets of a run one by one, as its first was taken.
    #[cold]
    fn take_apart(&mut self, frame: &Frame, first: bool, spaces: &[DmaSpace]) -> bool {
        let mut one = frame.part(0);
        for index in 0..frame.packets {
            let taken = match index {
                0 => first,
                _ => {
                    one = frame.part(index);
                    self.receive_from_peer(&one, spaces)
                }
            };
            if !taken {
                self.objects.counters.count_discarded(&one);
            }
        }
        true
    }

    #[inline]
    fn finish_request(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        outcome: RequestOutcome<u32>,
    ) -> bool {
        match outcome {
            RequestOutcome::Accepted {
                placement,
                received,
            } => self.accept(frame, spaces, placement, received),
            RequestOutcome::Fault(fault) => {
                self.responder_failed(fault);
                true
            }
            RequestOutcome::Dropped(_) => false,
            RequestOutcome::Duplicate | RequestOutcome::Gap | RequestOutcome::NotReady => true,
        }
    }

    #[inline]
    fn accept(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        placement: Option<Placement<u32>>,
        received: Option<Received>,
    ) -> bool {
        let opens_write = matches!(
            frame.packet.transport.opcode,
            Opcode::WRITE_FIRST | Opcode::WRITE_ONLY | Opcode::WRITE_ONLY_WITH_IMMEDIATE
        );
        self.objects.counters.writes_received += u64::from(opens_write);
        if let Some(placement) = placement
            && let Err(unplaced) = self.place(frame, spaces, &placement)
        {
            self.unplaced(unplaced, &placement, received.as_ref());
            return true;
        }
        if let Some(received) = received
            && (received.invalidated.is_none() || self.invalidated(&received))
        {
            self.complete_receive(&received);
        }
        true
    }

    #[cold]
    fn unplaced(
        &mut self,
        unplaced: Unplaced,
        placement: &Placement<u32>,
        received: Option<&Received>,
    ) {
        let access = match unplaced {
            Unplaced::Gather(fault) => self.access_fault(fault),
            Unplaced::Target => AccessFault::InvalidKey,
            Unplaced::Source | Unplaced::OwnerEnded => {
                self.ignore_peer();
                return;
            }
        };
        if let Some(responder) = &mut self.qp.responder {
            let fault = responder.refuse_placement(placement, received, access);
            self.responder_failed(fault);
        }
    }

    /// Takes and answers no more requests: one of the two sides has ended. On a wire, this packet
    /// would not have been sent or received: a device stops before its memory goes. A sender that
    /// still is there repeats it until it gives up.
    #[cold]
    pub(super) fn ignore_peer(&mut self) {
        self.qp.responder = None;
    }

    #[cold]
    pub(super) fn responder_failed(&mut self, fault: ResponderFault) {
        let open = self
            .qp
            .responder
            .as_ref()
            .and_then(|responder| responder.open_receive());
        let index = open.unwrap_or(self.qp.receive.next()) as u16;
        let (code, source) = fault_codes::responder(fault);
        self.fail(code, source, index);
    }

    #[cold]
    pub(super) fn requester_failed(&mut self, fault: RequesterFault) {
        self.drain_completions();
        let index = self.qp.work(fault.token).index;
        self.fail(
            fault_codes::requester(fault.reason),
            AeSource::SendQueue,
            index,
        );
    }

    /// Tells the connection the time.
    pub(in crate::rdma) fn on_time(&mut self) {
        let now = self.context.now;
        let outcome = self
            .qp
            .requester
            .as_mut()
            .map(|requester| requester.on_time(now));
        if let Some(Err(fault)) = outcome {
            self.requester_failed(fault);
        }
    }

    #[inline]
    fn place(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        placement: &Placement<u32>,
    ) -> Result<(), Unplaced> {
        match *placement {
            Placement::Remote {
                grant,
                address,
                length_bytes,
            } => {
                let access = self.remote_access(REMOTE_WRITE);
                let target = Fragment {
                    address,
                    length_bytes,
                    steering_tag: grant,
                };
                self.scatter(frame, spaces, std::iter::once(target), &access)
            }
            Placement::Receive {
                offset_bytes,
                length_bytes,
                ..
            } => {
                let access = self.local_access(LOCAL_WRITE);
                let words = self.qp.open_receive.words;
                let Some(element) = ReceiveElement::new(&words) else {
                    return Err(Unplaced::Gather(GatherFault::Element));
                };
                let parts = parts(element.fragments(), offset_bytes, length_bytes);
                self.scatter(frame, spaces, parts, &access)
            }
        }
    }

    /// Copies a frame's payload to these parts of this function's memory.
    #[inline]
    fn scatter(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        parts: impl Iterator<Item = Fragment>,
        access: &Access,
    ) -> Result<(), Unplaced> {
        let mut offset = 0;
        for part in parts {
            let (tag, at, length) = (part.steering_tag, part.address, part.length_bytes);
            let mut tables = self.objects.tables(self.context.memory);
            let granted = match tables.grant(tag, at, length.into(), access) {
                Ok(granted) => granted,
                Err(fault) => return Err(Unplaced::Gather(fault.into())),
            };
            if let Granted::Block(base) = granted {
                let at = Iova(base.wrapping_add(at));
                self.fill_piece(frame, spaces, (at, length as usize), &mut offset)?;
                continue;
            }
            let mut pieces = Pieces::new();
            match self.locate(&part, access, &mut pieces) {
                Ok(true) => self.fill(frame, spaces, &pieces, &mut offset)?,
                Ok(false) => self.scatter_widely(frame, spaces, part, access, &mut offset)?,
                Err(fault) => return Err(Unplaced::Gather(fault)),
            }
        }
        if offset == frame.payload.length() {
            Ok(())
        } else {
            Err(Unplaced::Gather(GatherFault::Element))
        }
    }

    /// Copies a frame's payload from `offset` on to pieces of memory.
    #[inline]
    fn fill(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        pieces: &Pieces,
        offset: &mut usize,
    ) -> Result<(), Unplaced> {
        for &(at, length) in pieces.as_slice() {
            self.fill_piece(frame, spaces, (at, length as usize), offset)?;
        }
        Ok(())
    }

    #[inline]
    fn fill_piece(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        (at, length): (Iova, usize),
        offset: &mut usize,
    ) -> Result<(), Unplaced> {
        match frame.copy_to(spaces, *offset, self.context.memory, at, length) {
            Ok(()) => {
                *offset += length;
                Ok(())
            }
            Err(PayloadError::Target(fault)) => {
                crate::rdma::access::unreached(self.context, "received payload", fault);
                Err(Unplaced::at_target(fault))
            }
            Err(_) => Err(Unplaced::Source),
        }
    }

    /// The same to a part in more places than a frame names.
    #[cold]
    fn scatter_widely(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        whole: Fragment,
        access: &Access,
        offset: &mut usize,
    ) -> Result<(), Unplaced> {
        for part in small_parts(whole) {
            let mut pieces = Pieces::new();
            match self.locate(&part, access, &mut pieces) {
                Ok(true) => self.fill(frame, spaces, &pieces, offset)?,
                Ok(false) => return Err(Unplaced::Gather(GatherFault::Element)),
                Err(fault) => return Err(Unplaced::Gather(fault)),
            }
        }
        Ok(())
    }

    fn complete_receive(&mut self, received: &Received) {
        let announces_write = matches!(
            received.opcode,
            Opcode::WRITE_LAST_WITH_IMMEDIATE | Opcode::WRITE_ONLY_WITH_IMMEDIATE
        );
        self.objects.counters.sends_received += u64::from(!announces_write);
        let success = CompletionElement::success(
            QueueSide::Receive,
            self.qp.context.completion_context,
            self.qp.number,
            received.token as u16,
        );
        let extension = received.immediate.map(|value| CompletionExtension {
            immediate: Some(value),
            ..CompletionExtension::default()
        });
        let element = CompletionElement {
            payload_bytes: received.length_bytes,
            operation: received.opcode.0 % OPERATION_CODES,
            extended: extension.is_some(),
            invalidated_or_ipv4: received.invalidated.is_some(),
            invalidated_or_source: received.invalidated.unwrap_or(0),
            solicited: received.solicited,
            ..success
        };
        let element = Element {
            words: element.encode(false),
            extension: extension.map(|extension| extension.encode(false)),
            notable: received.solicited,
        };
        self.objects
            .complete(self.qp.receive_cq, &element, self.context);
    }

    #[inline]
    fn on_response(&mut self, frame: &Frame, spaces: &[DmaSpace]) -> bool {
        if self.qp.stopped {
            return false;
        }
        let (headers, now) = (&frame.packet.transport, self.context.now);
        let Some(requester) = &mut self.qp.requester else {
            return false;
        };
        let (outcome, taken) = match frame.packets {
            1 => {
                let length = frame.payload.length() as u32;
                (requester.on_response(now, headers, length), 1)
            }
            // A refusal by the host then affects one packet.
            packets => {
                let at_once = if self.context.memory.is_refusing() {
                    1
                } else {
                    packets
                };
                requester.on_run(now, headers, at_once, frame.packet_bytes() as u32)
            }
        };
        if taken < frame.packets {
            let first = self.finish_response(&frame.part(0), spaces, outcome);
            return self.take_apart(frame, first, spaces);
        }
        self.finish_response(frame, spaces, outcome)
    }

    #[inline]
    fn finish_response(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        outcome: ResponseOutcome,
    ) -> bool {
        match outcome {
            ResponseOutcome::Acknowledged | ResponseOutcome::Repeating => {}
            ResponseOutcome::Place(bytes) => self.place_response(frame, spaces, &bytes),
            ResponseOutcome::Ignored(_) => return true,
            ResponseOutcome::Fault(fault) => self.requester_failed(fault),
        }
        self.drain_completions();
        true
    }

    fn place_response(&mut self, frame: &Frame, spaces: &[DmaSpace], bytes: &MessageBytes) {
        if bytes.length_bytes == 0 {
            return;
        }
        let access = self.local_access(LOCAL_WRITE);
        let (offset, length) = (bytes.offset_bytes, bytes.length_bytes);
        let scattered = if let Some(piece) = self.qp.work(bytes.token).single {
            let parts = parts(std::iter::once(piece), offset, length);
            self.scatter(frame, spaces, parts, &access)
        } else {
            let words = self.element_again(bytes);
            match SendElement::new(words.as_slice()) {
                Ok(element) => {
                    let parts = parts(element.fragments(), offset, length);
                    self.scatter(frame, spaces, parts, &access)
                }
                Err(_) => Err(Unplaced::Gather(GatherFault::Element)),
            }
        };
        let code = match scattered {
            Ok(()) => return,
            Err(Unplaced::Gather(fault)) => self.gather_code(fault),
            Err(Unplaced::Target | Unplaced::OwnerEnded) => AeCode::InvalidStag,
            // The response was never sent, and none will be.
            Err(Unplaced::Source) => AeCode::TooManyRetries,
        };
        if let Some(requester) = &mut self.qp.requester {
            requester.refuse_placement(bytes.token);
        }
        self.drain_completions();
        let index = self.qp.work(bytes.token).index;
        self.fail(code, AeSource::SendQueue, index);
    }
}

impl ResponderHost for ActiveQueuePair<'_, '_> {
    type Grant = u32;

    #[inline]
    fn allows(&self, right: RemoteRight) -> bool {
        match right {
            RemoteRight::Read => self.qp.context.read_ok,
            RemoteRight::Write => self.qp.context.write_and_read_response_ok,
        }
    }

    #[inline]
    fn grant(
        &mut self,
        key: u32,
        address: u64,
        length_bytes: u32,
        right: RemoteRight,
    ) -> Result<u32, AccessFault> {
        let rights = match right {
            RemoteRight::Read => super::REMOTE_READ,
            RemoteRight::Write => REMOTE_WRITE,
        };
        if right == RemoteRight::Read {
            self.objects.counters.reads_received += 1;
        }
        let access = self.remote_access(rights);
        let mut tables = self.objects.tables(self.context.memory);
        match tables.grant(key, address, length_bytes.into(), &access) {
            Ok(_) => Ok(key),
            Err(TagFault::Access(fault)) => Err(fault),
            Err(fault) => Err(self.access_fault(GatherFault::Tag(fault))),
        }
    }

    fn take_receive(&mut self) -> Receive {
        let receive = self.look_at_receive();
        if receive != Receive::Empty {
            self.qp.receive.advance(self.qp.receive_quanta);
        }
        receive
    }

    fn may_invalidate(&mut self, key: u32) -> Result<(), AccessFault> {
        self.remotely_invalidated(key).map(drop)
    }
}

impl ActiveQueuePair<'_, '_> {
    /// Reads the next element of the receive queue, which stays there.
    pub(super) fn look_at_receive(&mut self) -> Receive {
        let (index, polarity) = (self.qp.receive.next(), self.qp.receive.polarity());
        if self.qp.receive.peek().is_none() {
            return Receive::Empty;
        }
        let quanta = self.qp.receive_quanta;
        let words = self.qp.receive.read(index, quanta);
        let Some(element) = ReceiveElement::new(words.as_slice()) else {
            let code = AeCode::InvalidWqeFragment.code();
            return Receive::Malformed { code };
        };
        if !element.is_well_formed(polarity) {
            let number = self.qp.number;
            self.context
                .ledger
                .breach("a receive element is malformed", || {
                    format!(
                        "queue pair {number}, quantum {index}: {:x?}",
                        words.as_slice()
                    )
                });
            let code = AeCode::InvalidWqeFragment.code();
            return Receive::Malformed { code };
        }
        let capacity_bytes = u32::try_from(element.capacity_bytes()).unwrap_or(u32::MAX);
        self.qp.open_receive = words;
        Receive::Ready {
            token: index,
            capacity_bytes,
        }
    }
}
