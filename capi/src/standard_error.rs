//! Standard error of the program, which may be a pipe without a reader, or a file on a full disk.

use std::io::{self, Write};

/// Writes without a lock and without a point of cancellation.
pub(crate) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (from, count) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the kernel reads `count` bytes of a live slice.
        let done = unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, from, count) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line. It is lost if standard error takes nothing: `eprintln!` would panic, which ends
/// the program.
pub(crate) fn write_line(line: &str) {
    let _ = StandardError.write_all(format!("{line}\n").as_bytes());
}
