//! Standard error of the program, which may be a pipe without a reader, or a file on a full disk.

use std::io::{self, Write};

/// Writes without a lock and without a point of cancellation.
pub(crate) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (from, count) = (bytes.as_ptr(), bytes.len());
        let _unbroken = Unbroken::new();
        // SAFETY: the kernel reads `count` bytes of a live slice.
        let done = unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, from, count) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The calling thread while it gets no `SIGPIPE` for what it writes: without a handler, that ends
/// the program.
struct Unbroken {
    before: libc::sigset_t,
    was_pending: bool,
}

fn of_broken_pipes() -> libc::sigset_t {
    // SAFETY: the set is a live value, which the calls fill.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        set
    }
}

impl Unbroken {
    fn new() -> Self {
        let set = of_broken_pipes();
        // SAFETY: the sets are live values, which the calls fill.
        unsafe {
            let (mut pending, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigpending(&raw mut pending);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            Self {
                before,
                was_pending: libc::sigismember(&raw const pending, libc::SIGPIPE) == 1,
            }
        }
    }
}

impl Drop for Unbroken {
    /// Takes the signal back, unless one of the program's own waited before.
    fn drop(&mut self) {
        // SAFETY: reads and writes the thread's own value.
        let error = unsafe { *libc::__errno_location() };
        let set = of_broken_pipes();
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let nothing = std::ptr::null_mut::<libc::siginfo_t>();
        // SAFETY: live sets and a live time; the kernel's sets have eight bytes, as those of the C
        // library begin. Not by its function, which is a point of cancellation.
        unsafe {
            if !self.was_pending {
                let (set, at_once) = (&raw const set, &raw const at_once);
                libc::syscall(libc::SYS_rt_sigtimedwait, set, nothing, at_once, 8);
            }
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
            *libc::__errno_location() = error;
        }
    }
}

/// Writes a line. It is lost if standard error takes nothing: `eprintln!` would panic, which ends
/// the program.
pub(crate) fn write_line(line: &str) {
    let _ = StandardError.write_all(format!("{line}\n").as_bytes());
}
