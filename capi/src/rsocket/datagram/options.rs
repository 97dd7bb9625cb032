//! Options of datagram sockets.

use super::Datagram;
use crate::rsocket::options::{Value, byte_or_number, number};
use crate::rsocket::socket::Phase;
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// A longest wait: none for zero, which means for ever. Errors: `EINVAL` for a short value, `EDOM`
/// for microseconds beyond a second.
///
/// # Safety
/// `value` has `length` bytes.
unsafe fn longest_wait(
    value: *const c_void,
    length: libc::socklen_t,
) -> Result<Option<Duration>, c_int> {
    if value.is_null() || (length as usize) < size_of::<libc::timeval>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: checked above.
    let given = unsafe { value.cast::<libc::timeval>().read_unaligned() };
    if !(0..1_000_000).contains(&given.tv_usec) {
        return Err(libc::EDOM);
    }
    let Ok(seconds) = u64::try_from(given.tv_sec) else {
        // As Linux has it: no wait at all.
        return Ok(Some(Duration::ZERO));
    };
    let limit = Duration::from_secs(seconds) + Duration::from_micros(given.tv_usec as u64);
    Ok((!limit.is_zero()).then_some(limit))
}

impl Datagram {
    /// Errors: as Linux's sockets for datagrams have them.
    ///
    /// # Safety
    /// `value` has `length` bytes.
    pub(in crate::rsocket) unsafe fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: libc::socklen_t,
    ) -> Result<(), c_int> {
        if level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) {
            // SAFETY: the caller's promise.
            let limit = unsafe { longest_wait(value, length) }?;
            let options = &mut self.core().options;
            match name {
                libc::SO_RCVTIMEO => options.receive_wait = limit,
                _ => options.send_wait = limit,
            }
            return Ok(());
        }
        if (level, name) == (libc::IPPROTO_IP, libc::IP_TTL) {
            // Without effect: the path says how far datagrams go.
            // SAFETY: the caller's promise.
            return match unsafe { byte_or_number(value, length) }? {
                -1 | 1..=255 => Ok(()),
                _ => Err(libc::EINVAL),
            };
        }
        // SAFETY: the caller's promise.
        let number = unsafe { number(value, length) }?;
        let mut core = self.core();
        if (level, name) == (libc::SOL_SOCKET, libc::SO_BROADCAST) {
            core.options.switch((level, name), number != 0);
            return Ok(());
        }
        // Sizes are fixed once there is a queue pair.
        let phase = match core.open {
            Some(_) => Phase::Connecting,
            None => Phase::Made,
        };
        if level == libc::IPPROTO_TCP {
            return Err(libc::ENOPROTOOPT);
        }
        let unknown = |error| match error {
            libc::ENOTSUP if level <= libc::IPPROTO_MAX => libc::ENOPROTOOPT,
            error => error,
        };
        core.options
            .set(phase, level, name, number)
            .map_err(unknown)?;
        if phase == Phase::Made && level == libc::SOL_SOCKET {
            core.options.count_datagrams(name);
        }
        Ok(())
    }

    /// Returns the value of an option.
    pub(in crate::rsocket) fn option(&self, level: c_int, name: c_int) -> Result<Value, c_int> {
        let core = self.core();
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => core.failed.unwrap_or(0),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_DGRAM,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => 0,
            (libc::IPPROTO_TCP, _) => return Err(libc::ENOTSUP),
            _ => core.options.value(level, name)?,
        };
        Ok(Value::of(level, name, number))
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
