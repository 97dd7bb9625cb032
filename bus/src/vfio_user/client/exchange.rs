//! Requests and answers over one socket, each with a deadline.

use super::unsettled::Unsettled;
use super::users::Users;
use crate::clock::wait_for;
use crate::process::Severed;
use crate::vfio_user::message::{self, DeviceInfo, Header, KIND_REPLY, Version};
use crate::vfio_user::owner;
use crate::vfio_user::stream::Fault;
use crate::vfio_user::{Capabilities, Command, Message, Received, Stream, StreamError};
use crate::{Clock, Deadline, DeviceAddress, FunctionError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Messages other than the answer that are skipped while waiting for it: requests of the server,
/// and late answers, of which a server that was silent for an hour may send one for each
/// [`SILENT_ANSWER`].
const MAX_STRANGERS: usize = 16_384;

/// The longest sleep while waiting; the clock is read in between.
const NAP: Duration = Duration::from_millis(50);

/// The time that the thread polls for the answer before it sleeps: a running server answers sooner
/// than a sleeping thread is scheduled.
const SPIN: Duration = Duration::from_micros(20);

/// The time for an answer of a server that has left an earlier request without one: a driver that
/// takes a silent device down asks for many undos, none of which will be answered.
const SILENT_ANSWER: Duration = Duration::from_millis(250);

/// The longest waits of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// For the connection and the negotiation.
    pub connect: Duration,
    /// For the answer to one message. Once an answer did not come in time, the client waits at most
    /// 250 ms for each further one, until the server sends something again.
    pub answer: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(5),
        }
    }
}

/// Reasons why there is no usable answer.
pub(super) enum LostReply {
    /// The server refused with this errno, and the bytes behind it.
    Refused(Errno, Vec<u8>),
    /// The server did not answer, or its answer is invalid.
    Failed(FunctionError),
}

/// The connection to the server; see the module.
pub(super) struct Exchange {
    /// A child of a fork would keep the function in use after this process.
    _severed: Arc<Severed>,
    stream: Stream,
    device: DeviceAddress,
    clock: Arc<dyn Clock>,
    limit: Duration,
    next_id: u16,
    /// the latest wait was too long, and the server has sent nothing since
    is_silent: bool,
    /// Set once the connection is unusable.
    dead: Option<String>,
    /// requests for mappings that the server may perform late
    pub(super) unsettled: Unsettled,
    pub(super) users: Users,
}

impl Exchange {
    /// The process at the other end of the socket, if the kernel shows it here.
    pub(super) fn server_process(&self) -> Option<u32> {
        owner::peer(self.stream.as_fd()).map(|server| server.pid)
    }

    /// Connects and negotiates.
    pub(super) fn connect(
        path: &Path,
        clock: Arc<dyn Clock>,
        limits: ClientLimits,
    ) -> Result<(Self, Capabilities), FunctionError> {
        let socket = connect(path, &*clock, limits.connect)?;
        let device = DeviceAddress::VfioUser(path.to_owned());
        let stream = Stream::new(socket).map_err(|error| FunctionError::Gone {
            device: device.clone(),
            reason: error.to_string(),
        })?;
        let mut exchange = Self {
            _severed: Severed::new(stream.as_fd()),
            stream,
            device,
            clock,
            limit: limits.connect,
            next_id: 0,
            is_silent: false,
            dead: None,
            unsettled: Unsettled::default(),
            users: Users::default(),
        };
        let ours = Version {
            major: message::VERSION_MAJOR,
            minor: message::VERSION_MINOR,
            text: Capabilities::OURS.to_text(),
        };
        let reply = match exchange.try_ask(Command::Version, &ours.encode(), &[]) {
            Ok(reply) => reply,
            Err(LostReply::Refused(Errno::BUSY, line)) => {
                let device = exchange.device;
                let owner = owner::decode(&line);
                return Err(FunctionError::InUse { device, owner });
            }
            Err(LostReply::Refused(errno, _)) => {
                return Err(exchange.not_ours(&format!("it refused version 0.1: {errno}")));
            }
            Err(LostReply::Failed(error)) => return Err(error),
        };
        let version = Version::decode(&reply.body);
        let version = version.map_err(|error| exchange.not_ours(&error.to_string()))?;
        if version.major != message::VERSION_MAJOR || version.minor > message::VERSION_MINOR {
            let reason = format!("it uses version {}.{}", version.major, version.minor);
            return Err(exchange.not_ours(&reason));
        }
        let theirs = Capabilities::from_text(&version.text);
        let theirs = theirs.map_err(|error| exchange.not_ours(&error.to_string()))?;
        exchange.limit = limits.answer;
        Ok((exchange, theirs))
    }

    /// The kind of the device.
    pub(super) fn device_info(&mut self) -> Result<DeviceInfo, FunctionError> {
        let question = DeviceInfo {
            flags: message::DeviceFlags::ZERO,
            regions: 0,
            interrupts: 0,
        };
        let reply = self.ask(Command::DeviceInfo, &question.encode(), &[])?;
        DeviceInfo::decode(&reply.body).map_err(|error| self.not_ours(&error.to_string()))
    }

    /// Sends a request; a refusal is an error.
    pub(super) fn ask(
        &mut self,
        command: Command,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Message, FunctionError> {
        let reply = self.try_ask(command, payload, descriptors);
        reply.map_err(|lost| match lost {
            LostReply::Failed(error) => error,
            LostReply::Refused(errno, _) => FunctionError::System {
                operation: format!("{}: {command:?}", self.device),
                error: errno.to_string(),
                remedy: "the server refuses; see its log for the reason".into(),
            },
        })
    }

    /// Sends a request and waits for the answer.
    pub(super) fn try_ask(
        &mut self,
        command: Command,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Message, LostReply> {
        let mut deadline = self.deadline();
        let was_silent = self.is_silent;
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let bytes = Header::command(id, command, false, payload);
        let sent = self.send(bytes, descriptors, command, &deadline);
        sent.map_err(LostReply::Failed)?;
        for strangers in 0..MAX_STRANGERS {
            // It answers again, late: this request has the usual time.
            if strangers == 1 && was_silent {
                deadline = self.deadline();
            }
            let message = self
                .receive(command, &deadline)
                .map_err(LostReply::Failed)?;
            let header = message.header;
            if header.flags.kind() != KIND_REPLY {
                let refused = self.refuse(&header, command, &deadline);
                refused.map_err(LostReply::Failed)?;
                continue;
            }
            if header.id != id || header.command != command.code() {
                continue;
            }
            if let Some(fault @ (Fault::TooShort(_) | Fault::TooLong(_))) = message.fault {
                return Err(LostReply::Failed(self.not_ours(&fault.to_string())));
            }
            if header.flags.error() {
                return Err(LostReply::Refused(errno(header.error), message.body));
            }
            return Ok(message);
        }
        let reason = format!("{MAX_STRANGERS} messages that answer nothing");
        Err(LostReply::Failed(self.not_ours(&reason)))
    }

    /// The deadline of a request that begins now.
    fn deadline(&self) -> Deadline {
        let limit = match self.is_silent {
            true => self.limit.min(SILENT_ANSWER),
            false => self.limit,
        };
        Deadline::after(&*self.clock, limit)
    }

    /// Sends a command that has no answer.
    pub(super) fn post(&mut self, command: Command, payload: &[u8]) -> Result<(), FunctionError> {
        let deadline = self.deadline();
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let bytes = Header::command(id, command, true, payload);
        self.send(bytes, &[], command, &deadline)
    }

    /// Refuses a request of the server for memory by message: it has descriptors for all memory.
    fn refuse(
        &mut self,
        question: &Header,
        command: Command,
        deadline: &Deadline,
    ) -> Result<(), FunctionError> {
        if question.flags.no_reply() {
            return Ok(());
        }
        let errno = Errno::OPNOTSUPP.raw_os_error().unsigned_abs();
        self.send(question.refusal(errno), &[], command, deadline)
    }

    fn send(
        &mut self,
        bytes: Vec<u8>,
        descriptors: &[BorrowedFd<'_>],
        command: Command,
        deadline: &Deadline,
    ) -> Result<(), FunctionError> {
        if let Some(reason) = &self.dead {
            return Err(self.gone(reason.clone()));
        }
        // the rest of a message that an earlier deadline interrupted is sent first
        self.drain(command, deadline)?;
        let sent = self.stream.send(bytes, descriptors);
        self.or_dead(sent)?;
        self.drain(command, deadline)
    }

    fn drain(&mut self, command: Command, deadline: &Deadline) -> Result<(), FunctionError> {
        loop {
            let flushed = self.stream.flush();
            if self.or_dead(flushed)? {
                return Ok(());
            }
            self.wait(true, command, deadline)?;
        }
    }

    fn receive(&mut self, command: Command, deadline: &Deadline) -> Result<Message, FunctionError> {
        loop {
            let received = self.stream.receive();
            match self.or_dead(received)? {
                Received::Message(message) => {
                    self.is_silent = false;
                    return Ok(message);
                }
                Received::Closed => {
                    self.dead = Some("the server closed the connection".into());
                    return Err(self.gone("the server closed the connection".into()));
                }
                Received::Nothing => self.wait(false, command, deadline)?,
            }
        }
    }

    fn wait(
        &mut self,
        for_room: bool,
        command: Command,
        deadline: &Deadline,
    ) -> Result<(), FunctionError> {
        let now = self.clock.now();
        if now >= deadline.end {
            self.is_silent = true;
            return Err(FunctionError::TimedOut {
                device: self.device.clone(),
                request: format!("{command:?}"),
                waited_ms: u64::try_from(deadline.limit().as_millis()).unwrap_or(u64::MAX),
            });
        }
        if now.since(deadline.start) < SPIN {
            std::hint::spin_loop();
            return Ok(());
        }
        let nap = deadline.end.since(now).min(NAP);
        let waited = self.stream.wait(for_room, nap);
        waited.map_err(|error| self.gone(error.to_string()))
    }

    fn or_dead<T>(&mut self, outcome: Result<T, StreamError>) -> Result<T, FunctionError> {
        outcome.map_err(|error| {
            self.dead = Some(error.to_string());
            self.gone(error.to_string())
        })
    }

    fn gone(&self, reason: String) -> FunctionError {
        FunctionError::Gone {
            device: self.device.clone(),
            reason,
        }
    }

    /// The server sent something that no vfio-user server for a PCI function sends.
    pub(super) fn not_ours(&self, reason: &str) -> FunctionError {
        FunctionError::System {
            operation: format!("speaking vfio-user with {}", self.device),
            error: reason.to_owned(),
            remedy: "check that the socket is that of a vfio-user server for a PCI function".into(),
        }
    }
}

/// The errno of a refusal; some servers refuse without one.
fn errno(error: u32) -> Errno {
    let sound = i32::try_from(error)
        .ok()
        .filter(|code| (1..4096).contains(code));
    sound.map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Connects within the limit, also if the server does not accept.
fn connect(path: &Path, clock: &dyn Clock, limit: Duration) -> Result<UnixStream, FunctionError> {
    let refuse = |error: Errno| no_server(path, &error.into());
    let address = SocketAddrUnix::new(path).map_err(refuse)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::STREAM;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
    let socket = socket.map_err(refuse)?;
    let connected = wait_for(
        clock,
        limit,
        Duration::from_millis(1),
        || match rustix::net::connect(&socket, &address) {
            Ok(()) => Ok(Some(())),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(refuse(error)),
        },
    )?;
    match connected {
        Some(()) => Ok(socket.into()),
        None => Err(FunctionError::TimedOut {
            device: DeviceAddress::VfioUser(path.to_owned()),
            request: "a connection".into(),
            waited_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        }),
    }
}

fn no_server(path: &Path, error: &std::io::Error) -> FunctionError {
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "the socket does not exist; start the server, or check the path"
        }
        std::io::ErrorKind::ConnectionRefused => {
            "no process listens there, or it is not a socket; start the server again"
        }
        std::io::ErrorKind::PermissionDenied => "ask for permission to write to the socket",
        _ => "check the path, which has at most 107 bytes",
    };
    FunctionError::NoServer {
        path: path.display().to_string(),
        errno: error.raw_os_error().unwrap_or_default(),
        error: error.to_string(),
        remedy,
    }
}
