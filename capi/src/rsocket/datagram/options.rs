//! Options of datagram sockets.

use super::Datagram;
use crate::rsocket::socket::Phase;
use std::ffi::{c_int, c_void};

impl Datagram {
    /// # Safety
    /// `value` has `length` bytes.
    pub(in crate::rsocket) unsafe fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: libc::socklen_t,
    ) -> Result<(), c_int> {
        // SAFETY: the caller's promise.
        let number = unsafe { crate::rsocket::options::number(value, length) }?;
        let mut core = self.core();
        // Sizes are fixed once there is a queue pair.
        let phase = match core.open {
            Some(_) => Phase::Connecting,
            None => Phase::Made,
        };
        core.options.set(phase, level, name, number)?;
        if phase == Phase::Made && level == libc::SOL_SOCKET {
            core.options.count_datagrams(name);
        }
        Ok(())
    }

    /// Returns the value of an option.
    pub(in crate::rsocket) fn option(&self, level: c_int, name: c_int) -> Result<c_int, c_int> {
        let core = self.core();
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => Ok(core.failed.unwrap_or(0)),
            (libc::SOL_SOCKET, libc::SO_TYPE) => Ok(libc::SOCK_DGRAM),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => Ok(0),
            (libc::IPPROTO_TCP, _) => Err(libc::ENOPROTOOPT),
            _ => core.options.value(level, name),
        }
    }

    /// `fcntl` of a socket: its flags.
    pub(in crate::rsocket) fn control(
        &self,
        command: c_int,
        argument: c_int,
    ) -> Result<c_int, c_int> {
        self.core().options.control(command, argument)
    }
}
