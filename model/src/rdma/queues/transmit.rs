//! Packets for the wire.

use super::ActiveQueuePair;
use super::send::LOCAL_READ;
use crate::frame::{Frame, INLINE_BYTES_MAX, Payload, Pieces};
use crate::packet::{Packet, TransportHeaders};
use crate::rdma::fault_codes;
use crate::rdma::hmc::HmcFault;
use crate::rdma::objects::work_queue::ElementWords;
use crate::rdma::regions::TagFault;
use crate::rdma::translation::Access;
use crate::roce::{AccessFault, MessageBytes, RemoteBytes, Requester, Responder};
use ringside_bus::DmaFault;
use ringside_bus::function::DmaAccess;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AccessRights, AeSource};
use ringside_spec::verbs::{Fragment, SendElement};

/// A payload could not be gathered.
pub(super) enum GatherFault {
    /// A tag does not give access.
    Tag(TagFault),
    /// The element changed after it was handed over, or falls into too many pieces.
    Element,
    /// The tag gives access, and the host does not.
    Memory,
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
    /// The next packet of this queue pair: answers first, then requests.
    #[inline]
    pub(in crate::rdma) fn next_frame(&mut self) -> Option<Frame> {
        let answers = self
            .qp
            .responder
            .as_ref()
            .is_some_and(Responder::has_packet);
        let requester = self.qp.requester.as_ref();
        if !answers && requester.is_none_or(Requester::is_idle) {
            return match self.qp.datagrams.is_empty() {
                true => None,
                false => self.next_datagram(),
            };
        }
        if !self.resolve() {
            return None;
        }
        if answers && let Some(frame) = self.next_answer() {
            return Some(frame);
        }
        let packet = self.qp.requester.as_mut()?.next_packet(self.context.now)?;
        match self.gather_message(&packet.payload) {
            Ok(payload) => self.frame(packet.headers, payload),
            Err(fault) => {
                let index = self.qp.work(packet.payload.token).index;
                let code = self.gather_code(fault);
                self.fail(code, AeSource::SendQueue, index);
                None
            }
        }
    }

    /// Sends the refusal that has not left yet, before the queue pair is destroyed: a device sends
    /// it before it raises the event that made the driver destroy the queue pair.
    pub(in crate::rdma) fn refuse_at_the_end(&mut self) {
        let last = self.qp.responder.as_mut().and_then(Responder::take_refusal);
        if let Some(last) = last
            && let Some(frame) = self.frame(last.headers, Payload::empty())
        {
            self.objects.notifications.push_back(frame);
        }
    }

    #[cold]
    pub(super) fn gather_code(&mut self, fault: GatherFault) -> AeCode {
        match fault {
            GatherFault::Tag(fault) => self.event_code(fault),
            GatherFault::Element => AeCode::InvalidWqeFragment,
            GatherFault::Memory => AeCode::QueuePairCatastrophic,
        }
    }

    #[inline]
    fn frame(&mut self, transport: TransportHeaders, payload: Payload) -> Option<Frame> {
        let arp = self.objects.arp.get(usize::from(self.qp.context.arp_index));
        let Some(destination) = arp.copied().flatten() else {
            let ipv4 = self.qp.context.ipv4;
            self.objects.counters.count_no_route(ipv4);
            self.fail(AeCode::InvalidArpEntry, AeSource::SendQueue, 0);
            return None;
        };
        let path = self.qp.path(destination);
        let frame = Frame {
            packet: Packet { path, transport },
            payload,
        };
        self.objects.counters.count_sent(&frame);
        Some(frame)
    }

    #[inline]
    fn next_answer(&mut self) -> Option<Frame> {
        let packet = self.qp.responder.as_mut()?.next_packet()?;
        let payload = match &packet.payload {
            None => Ok(Payload::empty()),
            Some(bytes) => self.gather_remote(bytes),
        };
        match payload {
            Ok(payload) => self.frame(packet.headers, payload),
            Err(fault) => {
                let access = self.access_fault(fault);
                let fault = self.qp.responder.as_mut()?.refuse_response(&packet, access);
                let (code, _) = fault_codes::responder(fault);
                self.fail(code, AeSource::OutboundReadResponse, 0);
                let refusal = self.qp.responder.as_mut()?.next_packet()?;
                self.frame(refusal.headers, Payload::empty())
            }
        }
    }

    /// The fault of the peer's access.
    #[cold]
    pub(super) fn access_fault(&mut self, fault: GatherFault) -> AccessFault {
        match fault {
            GatherFault::Tag(TagFault::Access(fault)) => fault,
            GatherFault::Tag(TagFault::Privileged) | GatherFault::Element | GatherFault::Memory => {
                AccessFault::InvalidKey
            }
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

    fn gather_remote(&mut self, bytes: &RemoteBytes<u32>) -> Result<Payload, GatherFault> {
        let access = self.remote_access(super::REMOTE_READ);
        let part = Fragment {
            address: bytes.address,
            length_bytes: bytes.length_bytes,
            steering_tag: bytes.grant,
        };
        self.gather(|| std::iter::once(part), bytes.length_bytes, &access)
    }

    /// A payload of `length` bytes: taken along if it is short, else left where it is.
    #[inline]
    fn gather<I: Iterator<Item = Fragment>>(
        &mut self,
        parts: impl Fn() -> I,
        length: u32,
        access: &Access,
    ) -> Result<Payload, GatherFault> {
        let mut pieces = Pieces::new();
        for part in parts() {
            if !self.locate(&part, access, &mut pieces)? {
                return self.gather_bytes(parts(), length, access);
            }
        }
        if pieces.length() != length as usize {
            return Err(GatherFault::Element);
        }
        if length as usize > INLINE_BYTES_MAX {
            if self.context.memory.is_refusing() {
                self.check_pieces(&pieces)?;
            }
            // The wire knows which function sends it.
            return Ok(Payload::Memory { source: 0, pieces });
        }
        let mut bytes = [0; INLINE_BYTES_MAX];
        self.read_pieces(&pieces, &mut bytes)?;
        Ok(Payload::Inline {
            bytes,
            length: length as u8,
        })
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
        for part in parts {
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

    /// True if the host permits to read all of it now.
    #[cold]
    fn check_pieces(&mut self, pieces: &Pieces) -> Result<(), GatherFault> {
        for &(at, count) in pieces.as_slice() {
            let checked = self
                .context
                .memory
                .check(at, count as usize, DmaAccess::Read);
            if let Err(fault @ DmaFault::Refused { .. }) = checked {
                crate::rdma::access::unreached(self.context, "payload", fault);
                return Err(GatherFault::Memory);
            }
        }
        Ok(())
    }

    #[inline]
    fn read_pieces(&mut self, pieces: &Pieces, bytes: &mut [u8]) -> Result<(), GatherFault> {
        let mut done = 0;
        for &(at, count) in pieces.as_slice() {
            let end = done + count as usize;
            if let Some(part) = bytes.get_mut(done..end)
                && let Err(fault) = self.context.memory.read(at, part)
            {
                crate::rdma::access::unreached(self.context, "payload", fault);
                return Err(GatherFault::Memory);
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

    /// The bytes of a send element's message, from the ring as it is now.
    #[inline]
    pub(super) fn gather_message(
        &mut self,
        message: &MessageBytes,
    ) -> Result<Payload, GatherFault> {
        if message.length_bytes == 0 {
            return Ok(Payload::empty());
        }
        let words = self.element_again(message);
        let Ok(element) = SendElement::new(words.as_slice()) else {
            return Err(GatherFault::Element);
        };
        if element.header().inline() {
            return gather_inline(&element, message);
        }
        let access = self.local_access(LOCAL_READ);
        let (offset, length) = (message.offset_bytes, message.length_bytes);
        self.gather(
            || parts(element.fragments(), offset, length),
            length,
            &access,
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

fn gather_inline(
    element: &SendElement<'_>,
    message: &MessageBytes,
) -> Result<Payload, GatherFault> {
    let mut bytes = [0; INLINE_BYTES_MAX];
    let length = element.copy_inline(&mut bytes);
    // Shorter than the smallest path MTU: always the whole of it.
    if message.offset_bytes != 0 || length != message.length_bytes as usize {
        return Err(GatherFault::Element);
    }
    Ok(Payload::Inline {
        bytes,
        length: length as u8,
    })
}
