//! The bytes of a session, in both directions.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// The time for bytes of a socket that the system calls readable.
const SPURIOUS: Duration = Duration::from_millis(100);

/// A connection that carries a session, such as a TCP connection of the kernel's or of another
/// stack.
///
/// An operation that needs longer than its limit fails with [`ErrorKind::TimedOut`] or
/// [`ErrorKind::WouldBlock`]; a limit of zero does not wait. A peer that has reset the connection
/// is [`ErrorKind::ConnectionReset`].
pub trait Stream: Send {
    /// Reads at least one byte; 0 at the end.
    ///
    /// # Errors
    /// The limit has passed, or the connection broke.
    fn read(&mut self, into: &mut [u8], limit: Duration) -> io::Result<usize>;

    /// Reads bytes as [`Stream::read`] does, and leaves them for the next read.
    ///
    /// # Errors
    /// As above.
    fn peek(&mut self, into: &mut [u8], limit: Duration) -> io::Result<usize>;

    /// Writes at least one byte.
    ///
    /// # Errors
    /// As above.
    fn write(&mut self, from: &[u8], limit: Duration) -> io::Result<usize>;

    /// Ends this side's direction. Reading goes on.
    fn finish(&mut self);
}

/// A TCP connection of the kernel.
pub(crate) struct Kernel(pub(crate) TcpStream);

impl Stream for Kernel {
    fn read(&mut self, into: &mut [u8], limit: Duration) -> io::Result<usize> {
        self.0.set_read_timeout(Some(positive(limit)?))?;
        self.0.read(into)
    }

    fn peek(&mut self, into: &mut [u8], limit: Duration) -> io::Result<usize> {
        let timeout = Timespec::try_from(limit).ok();
        let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref());
        match ready {
            Ok(0) | Err(rustix::io::Errno::INTR) => Err(ErrorKind::WouldBlock.into()),
            Ok(_) => {
                // A socket that is readable may have nothing after all.
                self.0.set_read_timeout(Some(SPURIOUS))?;
                self.0.peek(into)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self, from: &[u8], limit: Duration) -> io::Result<usize> {
        self.0.set_write_timeout(Some(positive(limit)?))?;
        self.0.write(from)
    }

    fn finish(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// Zero is an error, because the system treats zero as "no limit".
fn positive(limit: Duration) -> io::Result<Duration> {
    match limit.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(limit),
    }
}
