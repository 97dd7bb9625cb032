//! Errors of system calls that are made through `libc`.

use rustix::io::Errno;

/// The end of a system call of this thread that has just returned `result`: negative for an error.
pub(crate) fn errno_of(result: libc::c_int) -> Result<(), Errno> {
    if result >= 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
