//! Packets for the wire.

use super::ActiveQueuePair;
use super::send::LOCAL_READ;
use crate::frame::{Frame, MAX_INLINE_BYTES, MAX_PIECES, Payload, Pieces, RUN_BYTES};
use crate::packet::Opcode;
use crate::rdma::fault_codes;
use crate::rdma::hmc::HmcFault;
use crate::rdma::objects::queue_pair::SendFault;
use crate::rdma::objects::work_queue::ElementWords;
use crate::rdma::regions::TagFault;
use crate::rdma::translation::{Access, Granted};
use crate::roce::{AccessFault, MessageBytes, RemoteBytes, Requester, Responder, ResponsePacket};
use ringside_bus::function::DmaAccess;
use ringside_bus::{DmaFault, Iova};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AccessRights, AeSource};
use ringside_spec::verbs::{Fragment, SendElement};

/// Payload of a read's response after which a request leaves: that of the longest run.
const TURN_BYTES: u32 = RUN_BYTES;

/// A payload could not be gathered.
pub(super) enum GatherFault {
    /// A tag does not give access.
    Tag(TagFault),
    /// The element changed after it was handed over, or falls into too many pieces.
    Element,
    /// The tag gives access, and the host does not.
    Memory,
    /// The process behind this function has ended, and its memory with it.
    OwnerEnded,
}

impl From<TagFault> for GatherFault {
    fn from(fault: TagFault) -> Self {
        Self::Tag(fault)
    }
}

impl From<HmcFault> for GatherFault {
    fn from(fault: HmcFault) -> Self {
        Self::Tag(TagFault::Table(fault))
    }
}

impl ActiveQueuePair<'_, '_> {
    /// Puts the next packets of this queue pair into `frame`, answers first, then requests; false
    /// if there are none. A frame holds one, or a run of up to `run_bytes` of payload.
    ///
    /// Read responses take turns with requests, one of which leaves between two responses and after
    /// each [`TURN_BYTES`] of a long one: the requests of a queue pair must leave though its peer
    /// reads without a pause.
    #[inline]
    pub(in crate::rdma) fn next_frame(&mut self, run_bytes: u32, frame: &mut Frame) -> bool {
        let answers = self
            .qp
            .responder
            .as_ref()
            .is_some_and(Responder::has_packet);
        let requester = self.qp.requester.as_ref();
        if !answers && requester.is_none_or(Requester::is_idle) {
            return !self.qp.datagrams.is_empty() && self.next_datagram(frame);
        }
        if !self.resolve() {
            return false;
        }
        if answers && self.qp.answered_bytes >= TURN_BYTES {
            self.qp.answered_bytes = 0;
            if self.next_request(run_bytes, frame) {
                return true;
            }
        }
        answers && self.next_answer(run_bytes, frame) || self.next_request(run_bytes, frame)
    }

    #[inline]
    fn next_request(&mut self, run_bytes: u32, frame: &mut Frame) -> bool {
        let now = self.context.now;
        let headers = &mut frame.packet.transport;
        let Some(requester) = &mut self.qp.requester else {
            return false;
        };
        let mark = requester.mark();
        let Some((message, packets)) = requester.next_run_into(now, run_bytes, headers) else {
            return false;
        };
        frame.packets = packets;
        if self.qp.fault.is_some() && self.is_refused(message.token) {
            self.refuse_request(message.token, packets, mark);
            return false;
        }
        match self.gather_message(&message, &mut frame.payload) {
            Ok(()) => self.address(frame),
            Err(fault) => {
                let index = self.qp.work(message.token).index;
                let code = self.gather_code(fault);
                self.qp.fault = Some(SendFault { code, index });
                self.refuse_request(message.token, packets, mark);
                false
            }
        }
    }

    /// True if the payload of this request could not be had before.
    #[cold]
    fn is_refused(&self, token: u32) -> bool {
        let index = self.qp.work(token).index;
        self.qp.fault.is_some_and(|fault| fault.index == index)
    }

    /// The payload of a request cannot be had. The requests before it complete first.
    #[cold]
    fn refuse_request(&mut self, token: u32, packets: u32, mark: u64) {
        let Some(requester) = &mut self.qp.requester else {
            return;
        };
        if !requester.take_back(token, packets, mark) {
            return;
        }
        if let Some(SendFault { code, index }) = self.qp.fault.take() {
            self.fail(code, AeSource::SendQueue, index);
        }
    }

    /// Sends the refusal or acknowledgement that has not left yet, before the queue pair is
    /// destroyed: a device sends it before it raises the event, or writes the completion, that made
    /// the driver destroy the queue pair.
    pub(in crate::rdma) fn answer_at_the_end(&mut self) {
        let responder = self.qp.responder.as_mut();
        let last = responder.and_then(Responder::take_last_answer);
        let Some(last) = last else {
            return;
        };
        let mut frame = Frame::default();
        frame.packet.transport = last.headers;
        if self.address(&mut frame) {
            self.objects.notifications.push_back(frame);
        }
    }

    #[cold]
    pub(super) fn gather_code(&mut self, fault: GatherFault) -> AeCode {
        match fault {
            GatherFault::Tag(fault) => self.event_code(fault),
            GatherFault::Element => AeCode::InvalidWqeFragment,
            GatherFault::Memory | GatherFault::OwnerEnded => AeCode::QueuePairCatastrophic,
        }
    }

    /// Puts the peer's addresses into a frame that is complete else; false, and the queue pair has
    /// failed, if they are not known.
    #[inline]
    fn address(&mut self, frame: &mut Frame) -> bool {
        let Some(destination) = self.objects.arp.get(self.qp.context.arp_index) else {
            let ipv4 = self.qp.context.ipv4;
            self.objects.counters.count_no_route(ipv4);
            self.fail(AeCode::InvalidArpEntry, AeSource::SendQueue, 0);
            return false;
        };
        frame.packet.path = self.qp.path(destination);
        self.objects.counters.count_sent(frame);
        true
    }

    #[inline]
    fn next_answer(&mut self, run_bytes: u32, frame: &mut Frame) -> bool {
        loop {
            let Some(packet) = self
                .qp
                .responder
                .as_mut()
                .and_then(|responder| responder.next_run(run_bytes))
            else {
                return false;
            };
            frame.packet.transport = packet.headers;
            frame.packets = packet.packets;
            let gathered = match &packet.payload {
                None => {
                    frame.payload.start_inline(0);
                    Ok(())
                }
                Some(bytes) => {
                    self.count_answered(bytes.length_bytes, packet.headers.opcode);
                    self.gather_remote(bytes, &mut frame.payload)
                }
            };
            match gathered {
                Ok(()) => return self.address(frame),
                Err(fault) => {
                    if let Some(sent) = self.refuse_answer(&packet, fault, frame) {
                        return sent;
                    }
                }
            }
        }
    }

    /// Counts towards the turn of requests: the same with packets by themselves and in runs. Behind
    /// the last response requests have no turn before acknowledgements, as without packets.
    #[inline]
    fn count_answered(&mut self, bytes: u32, opcode: Opcode) {
        let ends = matches!(
            opcode,
            Opcode::READ_RESPONSE_LAST | Opcode::READ_RESPONSE_ONLY
        );
        let count = self.qp.answered_bytes.saturating_add(bytes);
        let responder = self.qp.responder.as_ref();
        let has_more = responder.is_some_and(Responder::has_responses);
        self.qp.answered_bytes = match (ends, has_more) {
            (true, true) => TURN_BYTES,
            (true, false) => 0,
            (false, _) => count,
        };
    }

    /// The bytes of a read's response cannot be had. `None`: it was sent before and is left out,
    /// and the next answer takes its place.
    #[cold]
    fn refuse_answer(
        &mut self,
        packet: &ResponsePacket<u32>,
        fault: GatherFault,
        frame: &mut Frame,
    ) -> Option<bool> {
        if matches!(fault, GatherFault::OwnerEnded) {
            self.ignore_peer();
            return Some(false);
        }
        let access = self.access_fault(fault);
        let Some(responder) = &mut self.qp.responder else {
            return Some(false);
        };
        let fault = responder.refuse_response(packet, access)?;
        let (code, _) = fault_codes::responder(fault);
        self.fail(code, AeSource::OutboundReadResponse, 0);
        let refusal = self.qp.responder.as_mut().and_then(Responder::next_packet);
        let Some(refusal) = refusal else {
            return Some(false);
        };
        frame.packet.transport = refusal.headers;
        frame.packets = 1;
        frame.payload.start_inline(0);
        Some(self.address(frame))
    }

    /// The fault of the peer's access.
    #[cold]
    pub(super) fn access_fault(&mut self, fault: GatherFault) -> AccessFault {
        match fault {
            GatherFault::Tag(TagFault::Access(fault)) => fault,
            GatherFault::Tag(TagFault::Privileged)
            | GatherFault::Element
            | GatherFault::Memory
            | GatherFault::OwnerEnded => AccessFault::InvalidKey,
            GatherFault::Tag(fault @ TagFault::Table(_)) => {
                self.event_code(fault);
                AccessFault::InvalidKey
            }
        }
    }

    /// Access of a peer with these rights.
    #[inline]
    pub(super) fn remote_access(&self, rights: AccessRights) -> Access {
        Access {
            privileged: false,
            ..self.local_access(rights)
        }
    }

    fn gather_remote(
        &mut self,
        bytes: &RemoteBytes<u32>,
        into: &mut Payload,
    ) -> Result<(), GatherFault> {
        let access = self.remote_access(super::REMOTE_READ);
        let part = Fragment {
            address: bytes.address,
            length_bytes: bytes.length_bytes,
            steering_tag: bytes.grant,
        };
        self.gather_one(&part, &access, into)
    }

    /// A payload that is one part of memory; see [`Self::gather`].
    #[inline]
    fn gather_one(
        &mut self,
        part: &Fragment,
        access: &Access,
        into: &mut Payload,
    ) -> Result<(), GatherFault> {
        let length = part.length_bytes;
        if length as usize <= MAX_INLINE_BYTES {
            let mut tables = self.objects.tables(self.context.memory);
            let (tag, at) = (part.steering_tag, part.address);
            let granted = tables.grant(tag, at, length.into(), access)?;
            if let (Granted::Block(offset), Some(bytes)) =
                (granted, into.start_inline(length as usize))
            {
                let at = Iova(offset.wrapping_add(at));
                return match self.context.memory.read(at, bytes) {
                    Ok(()) => Ok(()),
                    Err(fault) => Err(self.unread(fault)),
                };
            }
        }
        self.gather(|| std::iter::once(*part), length, access, into)
    }

    /// A payload of `length` bytes: taken along if it is short, else left where it is.
    fn gather<I: Iterator<Item = Fragment>>(
        &mut self,
        parts: impl Fn() -> I,
        length: u32,
        access: &Access,
        into: &mut Payload,
    ) -> Result<(), GatherFault> {
        let mut pieces = Pieces::new();
        for part in parts() {
            if !self.locate(&part, access, &mut pieces)? {
                *into = self.gather_bytes(parts(), length, access)?;
                return Ok(());
            }
        }
        if pieces.length() != length as usize {
            return Err(GatherFault::Element);
        }
        let Some(bytes) = into.start_inline(length as usize) else {
            self.check_pieces(&pieces)?;
            // The wire fills in the sending function.
            *into = Payload::Memory { source: 0, pieces };
            return Ok(());
        };
        self.read_pieces(&pieces, bytes)
    }

    /// The same from more places than a frame can name.
    #[cold]
    pub(super) fn gather_bytes(
        &mut self,
        parts: impl Iterator<Item = Fragment>,
        length: u32,
        access: &Access,
    ) -> Result<Payload, GatherFault> {
        let mut bytes = vec![0; length as usize];
        let mut done = 0;
        for part in parts.flat_map(small_parts) {
            let mut pieces = Pieces::new();
            let end = done + part.length_bytes as usize;
            let Some(into) = bytes.get_mut(done..end) else {
                return Err(GatherFault::Element);
            };
            if !self.locate(&part, access, &mut pieces)? {
                return Err(GatherFault::Element);
            }
            self.read_pieces(&pieces, into)?;
            done = end;
        }
        Ok(Payload::Bytes(bytes))
    }

    /// Checks that the host permits to read all of it now: later, only the receiver would notice.
    #[inline]
    fn check_pieces(&mut self, pieces: &Pieces) -> Result<(), GatherFault> {
        for &(at, count) in pieces.as_slice() {
            let checked = self
                .context
                .memory
                .check(at, count as usize, DmaAccess::Read);
            if let Err(fault) = checked {
                self.attempt(fault, at, count);
                return Err(self.unread(fault));
            }
        }
        Ok(())
    }

    /// Reads what is not mapped, as a device does: an IOMMU logs the attempt.
    #[cold]
    fn attempt(&mut self, fault: DmaFault, at: Iova, count: u32) {
        if matches!(fault, DmaFault::NotMapped { .. }) {
            let mut bytes = vec![0; count as usize];
            let _ = self.context.memory.read(at, &mut bytes);
        }
    }

    /// The host did not allow to read a payload.
    #[cold]
    fn unread(&mut self, fault: DmaFault) -> GatherFault {
        crate::rdma::access::unreached(self.context, "payload", fault);
        match fault {
            DmaFault::Gone {
                owner_ended: true, ..
            } => GatherFault::OwnerEnded,
            _ => GatherFault::Memory,
        }
    }

    #[inline]
    fn read_pieces(&mut self, pieces: &Pieces, bytes: &mut [u8]) -> Result<(), GatherFault> {
        let mut done = 0;
        for &(at, count) in pieces.as_slice() {
            let end = done + count as usize;
            if let Some(part) = bytes.get_mut(done..end)
                && let Err(fault) = self.context.memory.read(at, part)
            {
                return Err(self.unread(fault));
            }
            done = end;
        }
        Ok(())
    }

    /// Adds the places of a fragment to `pieces`; false if they are too many.
    #[inline]
    pub(super) fn locate(
        &mut self,
        piece: &Fragment,
        access: &Access,
        pieces: &mut Pieces,
    ) -> Result<bool, GatherFault> {
        let mut tables = self.objects.tables(self.context.memory);
        let length = piece.length_bytes;
        let granted = tables.grant(piece.steering_tag, piece.address, length.into(), access)?;
        Ok(tables.pieces(&granted, piece.address, length, pieces)?)
    }

    /// The bytes of a send element's message: of its one fragment, or else from the ring as it is
    /// now.
    #[inline]
    pub(super) fn gather_message(
        &mut self,
        message: &MessageBytes,
        into: &mut Payload,
    ) -> Result<(), GatherFault> {
        if message.length_bytes == 0 {
            into.start_inline(0);
            return Ok(());
        }
        let (offset, length) = (message.offset_bytes, message.length_bytes);
        match self.qp.work(message.token).single {
            Some(piece) => {
                let part = Fragment {
                    address: piece.address.wrapping_add(offset.into()),
                    length_bytes: length,
                    ..piece
                };
                let access = self.local_access(LOCAL_READ);
                self.gather_one(&part, &access, into)
            }
            None => self.gather_element(message, into),
        }
    }

    fn gather_element(
        &mut self,
        message: &MessageBytes,
        into: &mut Payload,
    ) -> Result<(), GatherFault> {
        let words = self.element_again(message);
        let Ok(element) = SendElement::new(words.as_slice()) else {
            return Err(GatherFault::Element);
        };
        if element.header().inline() {
            return gather_inline(&element, message, into);
        }
        let access = self.local_access(LOCAL_READ);
        let (offset, length) = (message.offset_bytes, message.length_bytes);
        self.gather(
            || parts(element.fragments(), offset, length),
            length,
            &access,
            into,
        )
    }

    /// The element of a request under way, which software must not have changed.
    #[inline]
    pub(super) fn element_again(&self, message: &MessageBytes) -> ElementWords {
        let work = self.qp.work(message.token);
        self.qp.send.read(work.index.into(), work.quanta.into())
    }
}

/// The parts of fragments that make up `length` bytes from `offset` of their message.
#[inline]
pub(super) fn parts(
    fragments: impl Iterator<Item = Fragment>,
    offset: u32,
    length: u32,
) -> impl Iterator<Item = Fragment> {
    let (mut skip, mut left) = (offset, length);
    fragments.filter_map(move |piece| {
        if skip >= piece.length_bytes {
            skip -= piece.length_bytes;
            return None;
        }
        let here = left.min(piece.length_bytes - skip);
        if here == 0 {
            return None;
        }
        let address = piece.address.wrapping_add(u64::from(skip));
        left -= here;
        skip = 0;
        Some(Fragment {
            address,
            length_bytes: here,
            ..piece
        })
    })
}

/// Bytes that never lie in more places than a frame names: pages have 4 KiB at least.
const SMALL_BYTES: u32 = (MAX_PIECES as u32 - 1) * 4096;

/// The same bytes in parts that never lie in more places than a frame names.
pub(super) fn small_parts(whole: Fragment) -> impl Iterator<Item = Fragment> {
    (0..whole.length_bytes)
        .step_by(SMALL_BYTES as usize)
        .map(move |offset| Fragment {
            address: whole.address.wrapping_add(u64::from(offset)),
            length_bytes: SMALL_BYTES.min(whole.length_bytes - offset),
            ..whole
        })
}

fn gather_inline(
    element: &SendElement<'_>,
    message: &MessageBytes,
    into: &mut Payload,
) -> Result<(), GatherFault> {
    // Shorter than the smallest path MTU: always the whole of it.
    let length = message.length_bytes as usize;
    let whole = message.offset_bytes == 0
        && element.header().inline_length_bytes() == u64::from(message.length_bytes);
    let Some(bytes) = into.start_inline(length) else {
        return Err(GatherFault::Element);
    };
    let copied = element.copy_inline(bytes);
    if whole && copied == length {
        Ok(())
    } else {
        Err(GatherFault::Element)
    }
}
