//! Taking elements from a send queue.

use super::ActiveQueuePair;
use crate::rdma::fault_codes;
use crate::rdma::objects::queue_pair::{SendFault, Work};
use crate::rdma::regions::TagFault;
use crate::rdma::translation::Access;
use crate::roce::{Operation, PostError, WorkRequest};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AccessRights, QueuePairType};
use ringside_spec::rdma::events::{QP_SHADOW_TAIL_WORD, QpShadowTail};
use ringside_spec::rdma::limits::MAX_MESSAGE_BYTES;
use ringside_spec::verbs::{
    ElementBreach, Fragment, PlainElement, SendElement, SendHeader, SendOpcode,
};

/// Elements taken from one queue before others have their turn.
const BURST: u32 = 32;

/// The reason why an element was not taken.
enum NotTaken {
    /// It has to wait for those before it.
    Waits,
    /// It cannot be carried out.
    Fault(AeCode),
}

impl From<AeCode> for NotTaken {
    fn from(code: AeCode) -> Self {
        Self::Fault(code)
    }
}

impl ActiveQueuePair<'_, '_> {
    /// Takes elements that software has posted, as many as possible now. True if any was taken.
    pub(in crate::rdma) fn fetch(&mut self) -> bool {
        self.qp.more = false;
        if !self.qp.sends() || self.qp.fault.is_some() || !self.resolve() {
            return false;
        }
        let mut taken = 0;
        loop {
            let room = self.qp.room();
            if room == 0 {
                break;
            }
            if taken == BURST {
                self.qp.more = true;
                break;
            }
            let Some(header) = self.qp.send.peek() else {
                self.tell_tail();
                break;
            };
            match self.take(SendHeader(header)) {
                Ok(()) => taken += 1,
                Err(NotTaken::Waits) => break,
                Err(NotTaken::Fault(code)) => {
                    let index = self.qp.send.next() as u16;
                    self.say_refused(SendHeader(header), code);
                    self.qp.fault = Some(SendFault { code, index });
                    break;
                }
            }
        }
        taken > 0
    }

    /// Writes to the shadow area the place where the device stopped reading. Elements that software
    /// posts meanwhile are found once the queue pair is idle; see `schedule`.
    #[inline]
    fn tell_tail(&mut self) {
        let tail = self.qp.send.next();
        if self.qp.told_tail == tail {
            return;
        }
        self.qp.told_tail = tail;
        self.qp.told = true;
        let word = QpShadowTail::ZERO.with_send_queue_tail(tail.into());
        self.qp.shadow.store(QP_SHADOW_TAIL_WORD, word.0);
    }

    #[inline]
    fn take(&mut self, header: SendHeader) -> Result<(), NotTaken> {
        let index = self.qp.send.next();
        if header.is_plain() {
            let words = self.qp.send.read_one(index);
            if let Some(plain) = PlainElement::new(header, &words, self.qp.send.polarity()) {
                return self.take_plain(header, &plain);
            }
        }
        let opcode = SendOpcode::from_code(header.opcode() as u8);
        let quanta = header.quanta() as u32;
        if quanta > 1 && index % 8 + quanta > 8 {
            self.breach(ElementBreach::CrossesBlock {
                index,
                quanta: quanta as usize,
            });
            return Err(AeCode::InvalidWqeParameter.into());
        }
        let (one, several);
        let words = if quanta == 1 {
            one = self.qp.send.read_one(index);
            one.as_slice()
        } else {
            several = self.qp.send.read(index, quanta);
            several.as_slice()
        };
        let element = match SendElement::new(words) {
            Ok(element) => element,
            Err(breach) => {
                self.breach(breach);
                return Err(AeCode::InvalidWqeFragment.into());
            }
        };
        let datagram = self.qp.kind == QueuePairType::RoceUnreliableDatagram;
        if let Some(breach) = element.breach(index, self.qp.send.polarity(), datagram) {
            self.breach(breach);
            return Err(match breach {
                ElementBreach::UnknownOperation { .. } => AeCode::UnexpectedWqeOpcode,
                _ => AeCode::InvalidWqeFragment,
            }
            .into());
        }
        self.check_fences(element.header())?;
        let work = Work {
            index: index as u16,
            quanta: quanta as u8,
            operation: header.opcode() as u8,
            signalled: header.signalled(),
            invalidates: 0,
            single: None,
        };
        self.start(opcode, &element, work)?;
        self.qp.send.advance(quanta);
        Ok(())
    }

    /// The same for an element that breaks no rule of the layout and has one fragment.
    #[inline]
    fn take_plain(&mut self, header: SendHeader, plain: &PlainElement) -> Result<(), NotTaken> {
        self.check_fences(header)?;
        let piece = plain.fragment;
        let (address, key) = (plain.remote_address, header.steering_tag() as u32);
        let (rights, operation) = match plain.reads {
            true => (LOCAL_WRITE, Operation::Read { address, key }),
            false => (LOCAL_READ, Operation::Write { address, key }),
        };
        // The field of its length has 31 bits: no message is too long.
        self.check_fragment(&piece, rights)?;
        let work = Work {
            index: self.qp.send.next() as u16,
            quanta: 1,
            operation: header.opcode() as u8,
            signalled: header.signalled(),
            invalidates: 0,
            single: Some(piece),
        };
        self.begin(work, operation, piece.length_bytes, false)?;
        self.qp.send.advance(1);
        Ok(())
    }

    /// Logs the reason why an element cannot be carried out.
    #[cold]
    fn say_refused(&self, header: SendHeader, code: AeCode) {
        let (queue_pair, index) = (self.qp.number, self.qp.send.next());
        let words = self.qp.send.read(index, header.quanta() as u32);
        let words = words.as_slice();
        tracing::debug!(queue_pair, index, ?code, "refused element {words:x?}");
    }

    #[cold]
    fn breach(&mut self, breach: ElementBreach) {
        let (qp, index) = (self.qp.number, self.qp.send.next());
        let kind = match breach {
            ElementBreach::CrossesBlock { .. } => "a send element crosses a 256-byte boundary",
            ElementBreach::ReservedBits { .. } => "reserved bits are set in a send element",
            ElementBreach::WrongValidBit { .. } => "a send element has a wrong valid bit",
            ElementBreach::UnknownOperation { .. } => "a send element has an unknown operation",
            _ => "a send element is malformed",
        };
        self.context.ledger.breach(kind, || {
            format!("queue pair {qp}, quantum {index}: {breach}")
        });
    }

    #[inline]
    fn check_fences(&self, header: SendHeader) -> Result<(), NotTaken> {
        let waits = self.qp.requester.as_ref().is_some_and(|requester| {
            header.read_fence() && requester.open_reads() > 0
                || header.local_fence() && !requester.is_idle()
        });
        if waits {
            return Err(NotTaken::Waits);
        }
        Ok(())
    }

    /// Hands an element to the connection.
    #[inline]
    fn start(
        &mut self,
        opcode: SendOpcode,
        element: &SendElement<'_>,
        mut work: Work,
    ) -> Result<(), NotTaken> {
        let operation = self.operation(opcode, element)?;
        let mut length_bytes = 0;
        if operation != Operation::Local {
            let mut pieces = element.fragments();
            work.single = pieces.next();
            if pieces.next().is_some() {
                work.single = None;
            }
            let total = match work.single {
                Some(piece) => piece.length_bytes.into(),
                None => element.length_bytes(),
            };
            length_bytes = u32::try_from(total)
                .ok()
                .filter(|length| *length <= MAX_MESSAGE_BYTES)
                .ok_or(AeCode::InvalidWqeParameter)?;
            let rights = match operation {
                Operation::Read { .. } => LOCAL_WRITE,
                _ => LOCAL_READ,
            };
            match work.single {
                Some(piece) => self.check_fragment(&piece, rights)?,
                None => self.check_fragments(element, rights)?,
            }
        }
        if opcode == SendOpcode::ReadInvalidate {
            work.invalidates = element
                .fragments()
                .next()
                .map_or(0, |piece| piece.steering_tag);
        }
        let solicited = matches!(
            opcode,
            SendOpcode::SendSolicited
                | SendOpcode::SendSolicitedInvalidate
                | SendOpcode::WriteSolicited
        );
        self.begin(work, operation, length_bytes, solicited)
    }

    /// Counts a checked request, keeps its work, and hands it to the connection.
    #[inline(always)]
    fn begin(
        &mut self,
        work: Work,
        operation: Operation,
        length_bytes: u32,
        solicited: bool,
    ) -> Result<(), NotTaken> {
        let counters = &mut self.objects.counters;
        match operation {
            Operation::Read { .. } => counters.reads_sent += 1,
            Operation::Write { .. } | Operation::WriteWithImmediate { .. } => {
                counters.writes_sent += 1;
            }
            Operation::Local => {}
            _ => counters.sends_sent += 1,
        }
        let token = self.qp.remember(work);
        self.post(WorkRequest {
            token,
            operation,
            length_bytes,
            solicited,
        })
    }

    /// The request of an element to the connection; work without packets is executed here.
    #[inline]
    fn operation(
        &mut self,
        opcode: SendOpcode,
        element: &SendElement<'_>,
    ) -> Result<Operation, AeCode> {
        let (address, key) = (
            element.remote_address(),
            element.header().steering_tag() as u32,
        );
        Ok(match opcode {
            SendOpcode::Write | SendOpcode::WriteSolicited => match element.immediate() {
                Some(immediate) => Operation::WriteWithImmediate {
                    address,
                    key,
                    immediate,
                },
                None => Operation::Write { address, key },
            },
            SendOpcode::Read | SendOpcode::ReadInvalidate => Operation::Read { address, key },
            SendOpcode::Send | SendOpcode::SendSolicited => match element.immediate() {
                Some(immediate) => Operation::SendWithImmediate(immediate),
                None => Operation::Send,
            },
            SendOpcode::SendInvalidate | SendOpcode::SendSolicitedInvalidate => {
                Operation::SendWithInvalidate(key)
            }
            SendOpcode::Nop => Operation::Local,
            SendOpcode::LocalInvalidate | SendOpcode::FastRegister | SendOpcode::BindWindow => {
                self.carry_out(opcode, element)?;
                Operation::Local
            }
            SendOpcode::FetchAdd
            | SendOpcode::CompareSwap
            | SendOpcode::GenerateReadyEvent
            | SendOpcode::Unknown(_) => return Err(AeCode::UnexpectedWqeOpcode),
        })
    }

    #[inline]
    fn post(&mut self, request: WorkRequest) -> Result<(), NotTaken> {
        let Some(requester) = &mut self.qp.requester else {
            return Ok(self.post_datagram(request)?);
        };
        match requester.post(request) {
            Ok(()) => Ok(()),
            Err(PostError::Full { .. } | PostError::Stopped) => Err(NotTaken::Waits),
            Err(PostError::TooLong { .. }) => Err(AeCode::InvalidWqeParameter.into()),
            Err(PostError::ReadsNotAllowed) => Err(AeCode::ReadWithOrdZero.into()),
        }
    }

    /// Access of the queue pair to local memory with these rights.
    #[inline]
    pub(super) fn local_access(&self, rights: AccessRights) -> Access {
        Access {
            rights,
            protection_domain: self.qp.context.protection_domain,
            queue_pair: self.qp.number,
            privileged: self.qp.context.privileged,
        }
    }

    /// Checks that the element's local memory may be used.
    fn check_fragments(
        &mut self,
        element: &SendElement<'_>,
        rights: AccessRights,
    ) -> Result<(), AeCode> {
        for piece in element.fragments() {
            self.check_fragment(&piece, rights)?;
        }
        Ok(())
    }

    #[inline]
    fn check_fragment(&mut self, piece: &Fragment, rights: AccessRights) -> Result<(), AeCode> {
        if piece.length_bytes == 0 {
            return Ok(());
        }
        let access = self.local_access(rights);
        let mut tables = self.objects.tables(self.context.memory);
        let length = piece.length_bytes.into();
        match tables.grant(piece.steering_tag, piece.address, length, &access) {
            Ok(_) => Ok(()),
            Err(fault) => Err(self.event_code(fault)),
        }
    }

    /// The event that a fault of a tag raises.
    #[cold]
    pub(super) fn event_code(&mut self, fault: TagFault) -> AeCode {
        match fault {
            TagFault::Access(fault) => fault_codes::access(fault),
            TagFault::Privileged => AeCode::StagZeroNotAllowed,
            TagFault::Table(fault) => {
                crate::rdma::objects::event_queues::report(
                    self.context,
                    "memory region table",
                    fault,
                );
                AeCode::QueuePairCatastrophic
            }
        }
    }
}

pub(in crate::rdma) const LOCAL_READ: AccessRights = AccessRights::ZERO.with_local_read(true);
pub(super) const LOCAL_WRITE: AccessRights = AccessRights::ZERO.with_local_write(true);
