//! One client: its requests and the answers.

use super::answer::{Answer, Session};
use super::counters::PortCounters;
use super::mappings::Allowance;
use super::refusal::Refusal;
use crate::attachment::Readiness;
use ringside_bus::vfio_user::message::{DmaTransfer, Header, KIND_COMMAND, KIND_REPLY};
use ringside_bus::vfio_user::{Command, Message, Received, Stream};
use ringside_bus::{Memory, MemoryError, RefusedAccess};
use ringside_model::world::World;
use ringside_spec::rdma::registers::{DOORBELL_PAGE, DOORBELL_PAGE_BYTES};
use std::os::fd::{AsFd, BorrowedFd};

/// The result of a read of a message.
pub(super) enum Outcome {
    /// A message was processed.
    Answered,
    /// There was none, or no room for its answer.
    Nothing,
    /// The client disconnected, or its socket failed.
    Ended,
}

/// The most accesses that are repeated through one client.
const MAX_THROUGH_CLIENT: u16 = 256;

/// Bytes of a refused read that are requested: it is refused for the first of them.
const PROBED_BYTES: u64 = 4;

/// The connection of one client; see the module.
pub(super) struct Connection {
    stream: Stream,
    session: Session,
    /// Accesses repeated through the client; also the numbers of their messages.
    asked: u16,
    /// The number of these without an answer.
    unanswered: u16,
}

impl Connection {
    /// A client that has sent nothing yet, with its own doorbell page if it may map one.
    pub(super) fn new(
        stream: Stream,
        doorbell_page: bool,
        allowance: Allowance,
    ) -> Result<Self, MemoryError> {
        let page = if doorbell_page {
            let (at, bytes) = (DOORBELL_PAGE as usize, DOORBELL_PAGE_BYTES as usize);
            Some(Memory::window(at + bytes, at, bytes)?)
        } else {
            None
        };
        Ok(Self {
            stream,
            session: Session::new(page, allowance),
            asked: 0,
            unanswered: 0,
        })
    }

    pub(super) const fn doorbell_page(&self) -> Option<&Memory> {
        self.session.doorbell_page()
    }

    /// The socket, and the readiness to wait for.
    pub(super) fn socket(&self) -> (BorrowedFd<'_>, Readiness) {
        let readiness = if self.stream.is_clogged() {
            Readiness::Writable
        } else {
            Readiness::Readable
        };
        (self.stream.as_fd(), readiness)
    }

    /// Processes one message, if one has arrived and the last answer was sent.
    pub(super) fn take_one(
        &mut self,
        world: &mut World,
        index: usize,
        counters: &mut PortCounters,
    ) -> Outcome {
        match self.stream.flush() {
            Ok(true) => {}
            Ok(false) => return Outcome::Nothing,
            Err(_) => return Outcome::Ended,
        }
        let message = match self.stream.receive() {
            Ok(Received::Message(message)) => message,
            Ok(Received::Nothing) => return Outcome::Nothing,
            Ok(Received::Closed) => return Outcome::Ended,
            Err(error) => {
                tracing::info!(%error, function = index, "a client's socket failed");
                return Outcome::Ended;
            }
        };
        counters.messages += 1;
        let header = message.header;
        if header.flags.kind() == KIND_REPLY {
            // An answer to an answer could repeat forever.
            match self.unanswered.checked_sub(1) {
                Some(left) => self.unanswered = left,
                None => counters.refused += 1,
            }
            return Outcome::Answered;
        }
        let answer = self.answer(message, world, index);
        let sent = match answer {
            Err(refusal) => {
                counters.refused += 1;
                tracing::debug!(
                    function = index, command = header.command, errno = refusal.errno,
                    reason = %refusal.reason, "refused"
                );
                if header.flags.no_reply() {
                    return Outcome::Answered;
                }
                self.stream.send(header.refusal(refusal.errno), &[])
            }
            Ok(_) if header.flags.no_reply() => return Outcome::Answered,
            Ok(Answer {
                payload,
                descriptor,
            }) => {
                let descriptor = descriptor.as_ref().and_then(Memory::descriptor);
                self.stream
                    .send(header.reply(&payload), descriptor.as_slice())
            }
        };
        match sent {
            Ok(()) => Outcome::Answered,
            Err(_) => Outcome::Ended,
        }
    }

    /// Repeats a refused access through the client, whose IOMMU reports it. Not while an answer
    /// waits for room in the socket, and at most [`MAX_THROUGH_CLIENT`] times.
    pub(super) fn try_through_client(&mut self, access: RefusedAccess) -> Outcome {
        if self.asked >= MAX_THROUGH_CLIENT || self.stream.is_clogged() {
            return Outcome::Nothing;
        }
        let address = access.iova.0;
        let (command, transfer) = match access.written {
            Some(data) if !data.is_empty() => {
                let count = data.len() as u64;
                let transfer = DmaTransfer {
                    address,
                    count,
                    data,
                };
                (Command::DmaWrite, transfer)
            }
            _ => {
                let (count, data) = (PROBED_BYTES, Vec::new());
                let transfer = DmaTransfer {
                    address,
                    count,
                    data,
                };
                (Command::DmaRead, transfer)
            }
        };
        tracing::info!(?command, %access.iova, "a refused access, made through the client");
        let message = Header::command(self.asked, command, false, &transfer.encode());
        self.asked += 1;
        self.unanswered += 1;
        match self.stream.send(message, &[]) {
            Ok(()) => Outcome::Answered,
            Err(_) => Outcome::Ended,
        }
    }

    fn answer(
        &mut self,
        message: Message,
        world: &mut World,
        index: usize,
    ) -> Result<Answer, Refusal> {
        if let Some(fault) = message.fault {
            return Err(Refusal::from(fault));
        }
        if message.header.flags.kind() != KIND_COMMAND {
            return Err(Refusal::invalid(
                "a message that is neither command nor reply",
            ));
        }
        self.session.answer(message, world, index)
    }
}
