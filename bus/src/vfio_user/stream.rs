//! Reads and writes whole messages, with their descriptors, on a non-blocking socket.
//!
//! A stream has no message boundaries, and descriptors belong to bytes. A message is therefore
//! received in pieces that never extend beyond it, and the descriptors received with any of the
//! pieces belong to it.

use super::capabilities::MAX_MESSAGE_DESCRIPTORS;
use super::message::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The kernel's own limit for one message. Source: `net/scm.h`, SCM_MAX_FD.
const MAX_KERNEL_DESCRIPTORS: usize = 253;

/// Bytes of an oversized message that are discarded at a time.
const DISCARD_BYTES: usize = 64 << 10;
const DISCARD_BURST: usize = 16;

/// One received message.
#[derive(Debug)]
pub struct Message {
    /// Its header; the size in it may be wrong.
    pub header: Header,
    /// The bytes that followed; empty if the message was refused for its size.
    pub body: Vec<u8>,
    /// Descriptors beside it.
    pub descriptors: Vec<OwnedFd>,
    /// The reason why the message is invalid; `None` if it is valid.
    pub fault: Option<Fault>,
}

/// Reasons why a message is invalid; the stream continues after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It claims to be shorter than its own header.
    #[error("a message claims {0} bytes, fewer than its header")]
    TooShort(u32),
    /// The size is larger than any valid message.
    #[error("a message claims {0} bytes, more than any needs")]
    TooLong(u32),
    /// More descriptors arrived than this side accepts.
    #[error("a message carries more descriptors than this side accepts")]
    TooManyDescriptors,
}

/// The result of [`Stream::receive`].
#[derive(Debug)]
pub enum Received {
    /// A message.
    Message(Message),
    /// No complete message yet.
    Nothing,
    /// The other side has closed the connection.
    Closed,
}

/// Reasons why the connection is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The operating system reported an error.
    #[error("{operation}: {error}")]
    System {
        /// The operation.
        operation: &'static str,
        /// The operating system's message.
        error: Errno,
    },
}

/// The message that is being received.
#[derive(Default)]
struct Partial {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    body: Vec<u8>,
    body_bytes: usize,
    descriptors: Vec<OwnedFd>,
    too_many: bool,
}

/// The rest of a message that did not fit into the socket.
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
    descriptors: Vec<OwnedFd>,
}

/// A vfio-user socket; see the module.
pub struct Stream {
    socket: OwnedFd,
    partial: Partial,
    /// Bytes of an oversized message that remain to be discarded.
    discard: u64,
    unsent: Option<Unsent>,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Stream {
    /// Makes a stream of a connected socket, which becomes non-blocking.
    pub fn new(socket: UnixStream) -> Result<Self, StreamError> {
        let operation = "making a socket non-blocking";
        if let Err(error) = socket.set_nonblocking(true) {
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(StreamError::System { operation, error });
        }
        Ok(Self {
            socket: socket.into(),
            partial: Partial::default(),
            discard: 0,
            unsent: None,
        })
    }

    /// Returns the next message, if it is complete.
    ///
    /// A message with an invalid size is returned with its fault as soon as its header has arrived;
    /// its bytes are discarded as they arrive. Errors: the socket has failed.
    pub fn receive(&mut self) -> Result<Received, StreamError> {
        for _ in 0..DISCARD_BURST {
            if self.discard == 0 {
                break;
            }
            // On the heap: threads with small stacks come here, too.
            let mut waste = vec![0; self.discard.min(DISCARD_BYTES as u64) as usize];
            match self.receive_bytes(&mut waste)? {
                Some(0) => return Ok(Received::Closed),
                Some(count) => self.discard = self.discard.saturating_sub(count as u64),
                None => return Ok(Received::Nothing),
            }
            self.partial = Partial::default();
        }
        if self.discard > 0 {
            return Ok(Received::Nothing);
        }
        while self.partial.header_bytes < HEADER_BYTES {
            let mut rest = [0; HEADER_BYTES];
            let have = self.partial.header_bytes;
            match self.receive_bytes(rest.get_mut(have..).unwrap_or(&mut []))? {
                Some(0) => return Ok(Received::Closed),
                Some(count) => self.partial.take_header(&rest, count),
                None => return Ok(Received::Nothing),
            }
        }
        let header = Header::decode(self.partial.header);
        let size = header.size as usize;
        if size < HEADER_BYTES {
            return Ok(self.whole(header, Some(Fault::TooShort(header.size))));
        }
        if size > MAX_MESSAGE_BYTES {
            self.discard = (size - HEADER_BYTES) as u64;
            return Ok(self.whole(header, Some(Fault::TooLong(header.size))));
        }
        let length = size - HEADER_BYTES;
        let mut body = std::mem::take(&mut self.partial.body);
        body.resize(length, 0);
        while self.partial.body_bytes < length {
            let rest = body.get_mut(self.partial.body_bytes..).unwrap_or(&mut []);
            match self.receive_bytes(rest) {
                Ok(Some(0)) => return Ok(Received::Closed),
                Ok(Some(count)) => self.partial.body_bytes += count,
                Ok(None) => {
                    self.partial.body = body;
                    return Ok(Received::Nothing);
                }
                Err(error) => return Err(error),
            }
        }
        self.partial.body = body;
        Ok(self.whole(header, None))
    }

    fn whole(&mut self, header: Header, fault: Option<Fault>) -> Received {
        let partial = std::mem::take(&mut self.partial);
        let many = partial.descriptors.len() > MAX_MESSAGE_DESCRIPTORS as usize || partial.too_many;
        Received::Message(Message {
            header,
            body: partial.body,
            descriptors: partial.descriptors,
            fault: fault.or(many.then_some(Fault::TooManyDescriptors)),
        })
    }

    /// Receives bytes, and the descriptors with them; `None` if there are none yet.
    fn receive_bytes(&mut self, into: &mut [u8]) -> Result<Option<usize>, StreamError> {
        const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_KERNEL_DESCRIPTORS));
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut buffers = [IoSliceMut::new(into)];
        let received = loop {
            match rustix::net::recvmsg(&self.socket, &mut buffers, &mut control, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                // everything that the other side sent before it ended has been read by then
                Err(Errno::CONNRESET) => return Ok(Some(0)),
                Err(error) => {
                    let operation = "receiving from a vfio-user socket";
                    return Err(StreamError::System { operation, error });
                }
                Ok(received) => break received,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.partial.descriptors.extend(descriptors);
            }
        }
        self.partial.too_many |= received.flags.contains(ReturnFlags::CTRUNC);
        if self.partial.descriptors.len() > MAX_KERNEL_DESCRIPTORS {
            // many small pieces with descriptors each: keep a bounded number open
            self.partial.descriptors.truncate(MAX_KERNEL_DESCRIPTORS);
            self.partial.too_many = true;
        }
        Ok(Some(received.bytes))
    }

    /// Sends a message with descriptors, or keeps what does not fit for [`Stream::flush`].
    ///
    /// Nothing else may be sent while [`Stream::is_clogged`]. Errors: the socket has failed.
    pub fn send(
        &mut self,
        bytes: Vec<u8>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), StreamError> {
        let sent = self.send_bytes(&bytes, descriptors)?;
        if sent < bytes.len() {
            // descriptors travel with the first byte
            let wanted = if sent == 0 { descriptors } else { &[] };
            let kept = wanted.iter().map(BorrowedFd::try_clone_to_owned);
            let descriptors = kept.collect::<Result<_, _>>().map_err(|error| {
                let operation = "duplicating a descriptor";
                let error = Errno::from_io_error(&error).unwrap_or(Errno::MFILE);
                StreamError::System { operation, error }
            })?;
            self.unsent = Some(Unsent {
                bytes,
                sent,
                descriptors,
            });
        }
        Ok(())
    }

    /// True while part of a message waits for room in the socket.
    #[must_use]
    pub const fn is_clogged(&self) -> bool {
        self.unsent.is_some()
    }

    /// Sends more of the waiting bytes. Returns true if none are left.
    pub fn flush(&mut self) -> Result<bool, StreamError> {
        let Some(mut unsent) = self.unsent.take() else {
            return Ok(true);
        };
        let descriptors: Vec<_> = unsent.descriptors.iter().map(AsFd::as_fd).collect();
        let descriptors = if unsent.sent == 0 {
            descriptors
        } else {
            Vec::new()
        };
        let rest = unsent.bytes.get(unsent.sent..).unwrap_or(&[]);
        unsent.sent += self.send_bytes(rest, &descriptors)?;
        if unsent.sent < unsent.bytes.len() {
            self.unsent = Some(unsent);
        }
        Ok(self.unsent.is_none())
    }

    fn send_bytes(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<usize, StreamError> {
        const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_MESSAGE_DESCRIPTORS as usize));
        let operation = "sending to a vfio-user socket";
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            let mut control = SendAncillaryBuffer::new(&mut space);
            let with = if sent == 0 { descriptors } else { &[] };
            if !with.is_empty() && !control.push(SendAncillaryMessage::ScmRights(with)) {
                let error = Errno::TOOMANYREFS;
                return Err(StreamError::System { operation, error });
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::sendmsg(&self.socket, &[IoSlice::new(rest)], &mut control, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(StreamError::System { operation, error }),
                Ok(count) => sent += count,
            }
        }
        Ok(sent)
    }

    /// Waits until there is something to receive (or room to send), at most for `limit`.
    pub fn wait(&self, for_room: bool, limit: Duration) -> Result<(), StreamError> {
        let flags = if for_room {
            PollFlags::OUT
        } else {
            PollFlags::IN
        };
        let mut descriptors = [PollFd::new(&self.socket, flags)];
        let limit = Timespec {
            tv_sec: limit.as_secs().min(3600) as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut descriptors, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => {
                let operation = "waiting for a vfio-user socket";
                Err(StreamError::System { operation, error })
            }
        }
    }
}

impl Partial {
    fn take_header(&mut self, rest: &[u8; HEADER_BYTES], count: usize) {
        let at = self.header_bytes..self.header_bytes.saturating_add(count);
        if let (Some(to), Some(from)) = (self.header.get_mut(at.clone()), rest.get(at)) {
            to.copy_from_slice(from);
        }
        self.header_bytes += count;
    }
}

#[cfg(test)]
mod tests;
