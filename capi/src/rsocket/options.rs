//! Options of sockets.

use super::link::Sizes;
use super::socket::{Core, Options, Phase, Socket};
use super::wire::{scaled, unscaled};
use crate::channel::last_error;
use crate::cm::ringside_rdma_set_option;
use std::ffi::{c_int, c_void};

/// `SOL_RDMA`.
const RDMA: c_int = 0x10000;
const SEND_REQUESTS: c_int = 0;
const RECEIVES: c_int = 1;
const INLINE: c_int = 2;
const MAPPINGS: c_int = 3;

/// Fewest and most sends of a queue: as many as a queue pair takes, whatever their inline bytes
/// (`max_qp_wr`). Source: as rdma-core cuts them.
const SENDS: std::ops::RangeInclusive<u32> = 16..=4_094;
/// Fewest and most receives of a queue, each of one fragment.
const RECEIVED: std::ops::RangeInclusive<u32> = 16..=16_384;
/// Fewest and most bytes of a buffer.
const BUFFER: std::ops::RangeInclusive<u32> = 8192..=1 << 28;
/// Bytes of a socket's buffer for each datagram that it holds.
const DATAGRAM_BYTES: u32 = 2048;
/// The most bytes that the card takes in a request.
const MAX_INLINE: u32 = ringside_spec::rdma::limits::MAX_INLINE_BYTES;
/// Seconds before a question whether the peer is there, as Linux has them.
const KEEP_ALIVE_SECONDS: u32 = 7200;

/// The folder of rdma-core's defaults.
const FOLDER: &str = "/etc/rdma/rsocket";

/// A default that the administrator may have changed.
fn default_of(file: &str, otherwise: u32) -> u32 {
    let text = std::fs::read_to_string(format!("{FOLDER}/{file}")).unwrap_or_default();
    let number = text.trim().parse().ok();
    number.filter(|number| *number > 0).unwrap_or(otherwise)
}

fn clamped(value: u32, range: &std::ops::RangeInclusive<u32>) -> u32 {
    value.clamp(*range.start(), *range.end())
}

impl Options {
    /// The options of a new socket whose type has these flags.
    pub(super) fn new(flags: c_int) -> Self {
        let is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let closes = flags & libc::SOCK_CLOEXEC != 0;
        let requests = |file, range| clamped(default_of(file, 384), range) as u16;
        // The buffer has two halves, each of whole words.
        let bytes = |file| clamped(default_of(file, 1 << 17), &BUFFER) & !15;
        let entries = default_of("iomap_size", 0).min(u16::MAX.into()) as u16;
        Self {
            is_nonblocking,
            status_flags: libc::O_RDWR | if is_nonblocking { libc::O_NONBLOCK } else { 0 },
            descriptor_flags: if closes { libc::FD_CLOEXEC } else { 0 },
            sizes: Sizes {
                send_requests: requests("sqsize_default", &SENDS),
                receives: requests("rqsize_default", &RECEIVED),
                inline_bytes: default_of("inline_default", 64).min(MAX_INLINE),
                send_bytes: bytes("wmem_default"),
                receive_bytes: bytes("mem_default"),
                mappings: unscaled(scaled(entries)),
            },
            keep_alive_seconds: KEEP_ALIVE_SECONDS,
            type_of_service: 0,
            receive_wait: None,
            send_wait: None,
            // A close waits for what was sent, unless the program asks for something else.
            on: vec![(libc::SOL_SOCKET, libc::SO_LINGER)],
        }
    }

    pub(super) fn switch(&mut self, option: (c_int, c_int), is_on: bool) {
        self.on.retain(|known| *known != option);
        if is_on {
            self.on.push(option);
        }
    }

    /// Sizes are fixed once memory is made: later changes of buffers are ignored, as TCP's may be.
    fn set_size(&mut self, phase: Phase, name: c_int, value: u32) -> Result<(), c_int> {
        if !matches!(phase, Phase::Made | Phase::Listening) {
            return Err(libc::EINVAL);
        }
        let sizes = &mut self.sizes;
        match name {
            SEND_REQUESTS => sizes.send_requests = clamped(value, &SENDS) as u16,
            RECEIVES => sizes.receives = clamped(value, &RECEIVED) as u16,
            INLINE => sizes.inline_bytes = value.min(MAX_INLINE),
            MAPPINGS => {
                let entries = value.min(u16::MAX.into()) as u16;
                sizes.mappings = unscaled(scaled(entries));
            }
            _ => return Err(libc::ENOTSUP),
        }
        Ok(())
    }

    fn set_buffer(&mut self, phase: Phase, name: c_int, value: u32) {
        if matches!(phase, Phase::Made | Phase::Listening) {
            // As the kernel does with those of TCP.
            let bytes = clamped(value.saturating_mul(2), &BUFFER) & !15;
            match name {
                libc::SO_SNDBUF => self.sizes.send_bytes = bytes,
                _ => self.sizes.receive_bytes = bytes,
            }
        }
    }

    pub(super) fn is_on(&self, option: (c_int, c_int)) -> bool {
        self.on.contains(&option)
    }

    /// Changes an option of a socket in a phase.
    pub(super) fn set(
        &mut self,
        phase: Phase,
        level: c_int,
        name: c_int,
        number: c_int,
    ) -> Result<(), c_int> {
        let size = u32::try_from(number).unwrap_or(0);
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) => {
                self.set_buffer(phase, name, size);
            }
            (
                libc::SOL_SOCKET,
                libc::SO_REUSEADDR | libc::SO_KEEPALIVE | libc::SO_LINGER | libc::SO_OOBINLINE,
            )
            | (libc::IPPROTO_TCP, libc::TCP_NODELAY)
            | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.switch((level, name), number != 0),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) if number <= 0 => return Err(libc::EINVAL),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => self.keep_alive_seconds = size,
            // Accepted without effect: a reliable connection has its own values.
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => {}
            (libc::IPPROTO_IP, libc::IP_TOS) => self.type_of_service = number,
            (RDMA, _) => self.set_size(phase, name, size)?,
            _ => return Err(libc::ENOTSUP),
        }
        Ok(())
    }

    /// The value of an option that is kept here.
    pub(super) fn value(&self, level: c_int, name: c_int) -> Result<c_int, c_int> {
        let sizes = self.sizes;
        let found = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.receive_bytes,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_bytes,
            (
                libc::SOL_SOCKET,
                libc::SO_REUSEADDR
                | libc::SO_KEEPALIVE
                | libc::SO_LINGER
                | libc::SO_OOBINLINE
                | libc::SO_BROADCAST,
            )
            | (libc::IPPROTO_TCP, libc::TCP_NODELAY)
            | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => u32::from(self.is_on((level, name))),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => self.keep_alive_seconds,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_CONGESTION) => {
                1
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => return Ok(self.type_of_service),
            (RDMA, SEND_REQUESTS) => sizes.send_requests.into(),
            (RDMA, RECEIVES) => sizes.receives.into(),
            (RDMA, INLINE) => sizes.inline_bytes,
            (RDMA, MAPPINGS) => sizes.mappings.into(),
            _ => return Err(libc::ENOTSUP),
        };
        Ok(found as c_int)
    }

    /// Derives how many datagrams a socket holds from the buffer that was set.
    pub(super) fn count_datagrams(&mut self, name: c_int) {
        let count = |bytes: u32, range| clamped(bytes / DATAGRAM_BYTES, range) as u16;
        let sizes = &mut self.sizes;
        match name {
            libc::SO_RCVBUF => sizes.receives = count(sizes.receive_bytes, &RECEIVED),
            libc::SO_SNDBUF => sizes.send_requests = count(sizes.send_bytes, &SENDS),
            _ => {}
        }
    }

    /// `fcntl` of a socket: its flags.
    pub(super) fn control(&mut self, command: c_int, argument: c_int) -> Result<c_int, c_int> {
        match command {
            libc::F_GETFL => Ok(self.status_flags),
            libc::F_SETFL => {
                self.is_nonblocking = argument & libc::O_NONBLOCK != 0;
                self.status_flags = libc::O_RDWR | (argument & libc::O_NONBLOCK);
                Ok(0)
            }
            libc::F_GETFD => Ok(self.descriptor_flags),
            libc::F_SETFD => {
                self.descriptor_flags = argument & libc::FD_CLOEXEC;
                Ok(0)
            }
            _ => Err(libc::ENOTSUP),
        }
    }
}

/// Bytes of `struct tcp_info` in the C library's headers. The kernel's has more at its end.
const TCP_INFORMATION: usize = 104;
/// The state of the connection in it, and its values.
const TCP_STATE: usize = 0;
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;
/// The window of what may be sent.
const TCP_WINDOW: usize = 80;

/// The value of an option, as a program reads it.
pub(super) enum Value {
    Number(c_int),
    /// a switch; the time behind it is none
    Linger(c_int),
    TcpInformation([u8; TCP_INFORMATION]),
}

impl Value {
    pub(super) fn of(level: c_int, name: c_int, number: c_int) -> Self {
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => Self::Linger(number),
            _ => Self::Number(number),
        }
    }

    /// Writes the value to a place of the program, and how long it is. Errors: `EINVAL` for a place
    /// too short for a number; a longer value is cut.
    ///
    /// # Safety
    /// `value` and `length` are a place of that length.
    pub(super) unsafe fn write(
        &self,
        value: *mut c_void,
        length: *mut libc::socklen_t,
    ) -> Result<(), c_int> {
        let bytes = match self {
            Self::Number(number) => number.to_ne_bytes().to_vec(),
            Self::Linger(number) => [number.to_ne_bytes(), [0; 4]].concat(),
            Self::TcpInformation(bytes) => bytes.to_vec(),
        };
        // SAFETY: the caller's promise.
        unsafe {
            if (*length as usize) < size_of::<c_int>() {
                return Err(libc::EINVAL);
            }
            let cut = bytes.len().min(*length as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), cut);
            *length = cut as libc::socklen_t;
        }
        Ok(())
    }
}

/// A value of the program as a number; `EINVAL` if it is shorter.
///
/// # Safety
/// `value` has `length` bytes.
pub(super) unsafe fn number(value: *const c_void, length: libc::socklen_t) -> Result<c_int, c_int> {
    if value.is_null() || (length as usize) < size_of::<c_int>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: checked above.
    Ok(unsafe { value.cast::<c_int>().read_unaligned() })
}

/// The number behind a value of one byte or of four.
///
/// # Safety
/// `value` has `length` bytes.
pub(super) unsafe fn byte_or_number(
    value: *const c_void,
    length: libc::socklen_t,
) -> Result<c_int, c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        match length {
            1..4 if !value.is_null() => Ok((*value.cast::<u8>()).into()),
            _ => number(value, length),
        }
    }
}

/// Options of ids.
const TYPE_OF_SERVICE: c_int = 0;
const REUSE_ADDRESS: c_int = 1;
const FAMILY_ONLY: c_int = 2;

/// The known values of `struct tcp_info`; all others are zero.
fn information(core: &Core) -> Value {
    let mut bytes = [0; TCP_INFORMATION];
    let state = match core.phase {
        Phase::Connected { .. } => TCP_ESTABLISHED,
        _ => TCP_CLOSE,
    };
    let window = u32::from(core.options.sizes.send_requests).to_ne_bytes();
    if let Some(place) = bytes.get_mut(TCP_STATE) {
        *place = state;
    }
    if let Some(place) = bytes.get_mut(TCP_WINDOW..TCP_WINDOW + window.len()) {
        place.copy_from_slice(&window);
    }
    Value::TcpInformation(bytes)
}

impl Socket {
    /// # Safety
    /// `value` has `length` bytes.
    pub(super) unsafe fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: libc::socklen_t,
    ) -> Result<(), c_int> {
        let number = match (level, name) {
            // A name or a segment that is not looked at.
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION | libc::TCP_MAXSEG) => return Ok(()),
            // SAFETY: the caller's promise.
            (libc::IPPROTO_IP, libc::IP_TOS) => unsafe { byte_or_number(value, length) }?,
            // SAFETY: the caller's promise. A linger begins with its switch.
            _ => unsafe { number(value, length) }?,
        };
        let mut core = self.core();
        let phase = core.phase;
        let was_on = core.options.is_on((level, name));
        core.options.set(phase, level, name, number)?;
        drop(core);
        let class = number as u8;
        let (of_id, value, bytes): (c_int, *const c_void, usize) = match (level, name) {
            (libc::IPPROTO_IP, libc::IP_TOS) => (TYPE_OF_SERVICE, (&raw const class).cast(), 1),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                (REUSE_ADDRESS, (&raw const number).cast(), 4)
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => (FAMILY_ONLY, (&raw const number).cast(), 4),
            _ => return Ok(()),
        };
        // SAFETY: the socket's id; a live value of that length.
        let result = unsafe { ringside_rdma_set_option(self.id, 0, of_id, value, bytes) };
        // A port that the socket has stays as it is, and programs set that option late.
        if result != 0 && of_id == FAMILY_ONLY {
            self.core().options.switch((level, name), was_on);
            return Err(last_error());
        }
        Ok(())
    }

    /// Returns the value of an option.
    pub(super) fn option(&self, level: c_int, name: c_int) -> Result<Value, c_int> {
        let mut core = self.core();
        self.progress(&mut core);
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => std::mem::take(&mut core.error),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(core.phase == Phase::Listening),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => self.segment() as c_int,
            (libc::IPPROTO_TCP, libc::TCP_INFO) => return Ok(information(&core)),
            _ => core.options.value(level, name)?,
        };
        Ok(Value::of(level, name, number))
    }

    /// Bytes of a packet of the path.
    fn segment(&self) -> u32 {
        // SAFETY: the path lies in the id, where there is one.
        let mtu = unsafe {
            let route = &(*self.id).route;
            route.path_rec.as_ref().map(|path| path.mtu)
        };
        mtu.map_or(2048, |mtu| 1 << (7 + u32::from(mtu.min(5))))
    }

    /// `fcntl` of a socket: its flags.
    pub(super) fn control(&self, command: c_int, argument: c_int) -> Result<c_int, c_int> {
        self.core().options.control(command, argument)
    }
}
