//! The userfaultfd of this process.
//!
//! Ranges are registered for write protection, and no page is ever protected: so no page fault is
//! held up, and the kernel reports changes of the mappings only.
//!
//! Source: `linux/userfaultfd.h`; Linux `Documentation/admin-guide/mm/userfaultfd.rst`.
#![allow(unsafe_code)] // a system call and two ioctls that no crate of ours wraps

use super::error::UnmapsError;
use super::journal::ROUND;
use crate::process::Inherited;
use std::io::Error;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// UFFD_USER_MODE_ONLY: what a process without privileges may ask for. No fault is handled here.
const USER_MODE_ONLY: libc::c_int = 1;
/// UFFD_API
const API: u64 = 0xAA;
/// UFFDIO_API, UFFDIO_REGISTER
const SET_API: libc::Ioctl = 0xC018_AA3F_u32 as libc::Ioctl;
const REGISTER: libc::Ioctl = 0xC020_AA00_u32 as libc::Ioctl;
/// UFFDIO_REGISTER_MODE_WP
const MODE_WRITE_PROTECT: u64 = 2;
/// UFFD_FEATURE_PAGEFAULT_FLAG_WP
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
/// UFFD_FEATURE_EVENT_REMAP, _REMOVE, _UNMAP
const FEATURE_EVENTS: u64 = 1 << 2 | 1 << 3 | 1 << 6;
/// UFFD_EVENT_REMAP, _REMOVE, _UNMAP
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

/// Reports that are read at once.
const REPORTS: usize = ROUND as usize;
/// Bytes of struct uffd_msg.
const REPORT_BYTES: usize = 32;
/// Page sizes that a watched range has to be a multiple of, depending on its mapping.
const PAGES: [u64; 3] = [4096, 2 << 20, 1 << 30];

/// The number of a descriptor that is closed.
const CLOSED: RawFd = -1;

/// The descriptor.
pub(super) struct Descriptor(AtomicI32);

impl Descriptor {
    /// # Errors
    /// [`UnmapsError::Denied`]
    pub(super) fn open() -> Result<Self, UnmapsError> {
        let number = opened(|flags| {
            // SAFETY: the call takes one number and returns a descriptor or an error.
            let opened = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
            let number = i32::try_from(opened).ok().filter(|number| *number >= 0);
            number.ok_or_else(Error::last_os_error)
        });
        let number = number.map_err(|error| denied_by("userfaultfd", &error))?;
        // SAFETY: the kernel has just made this descriptor for this call.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        let mut api = [API, FEATURE_WRITE_PROTECT | FEATURE_EVENTS, 0];
        // SAFETY: the request takes struct uffdio_api, three words, which it reads and writes.
        let done = unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_API, &raw mut api) };
        match done {
            0 => Ok(Self(AtomicI32::new(descriptor.into_raw_fd()))),
            _ => Err(denied("UFFDIO_API")),
        }
    }

    /// The open descriptor, which only the thread that reads reports may borrow, since only that
    /// thread closes it while others may use it.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        let number = self.0.load(Ordering::Relaxed);
        // SAFETY: the number is that of an open descriptor, see above.
        (number != CLOSED).then(|| unsafe { BorrowedFd::borrow_raw(number) })
    }

    /// Ends the watch of every range. Threads that the kernel holds go on. Allocates nothing.
    pub(super) fn close(&self) {
        let number = self.0.swap(CLOSED, Ordering::Relaxed);
        if number != CLOSED {
            // SAFETY: the number was taken out, so nothing closes it again.
            unsafe { libc::close(number) };
        }
    }

    /// Registers a range, in whole pages of the size that its mapping has.
    pub(super) fn watch(&self, range: Range<u64>) -> Result<(), UnmapsError> {
        let mut error = std::io::Error::from_raw_os_error(libc::EINVAL);
        for page in PAGES {
            let start = range.start / page * page;
            let Some(end) = range.end.checked_next_multiple_of(page) else {
                break;
            };
            let mut register = [start, end - start, MODE_WRITE_PROTECT, 0];
            let number = self.0.load(Ordering::Relaxed);
            // SAFETY: the request takes struct uffdio_register, four words, which it reads and
            //         writes. It changes no page: the range is only marked.
            let done = unsafe { libc::ioctl(number, REGISTER, &raw mut register) };
            if done == 0 {
                return Ok(());
            }
            error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINVAL) {
                break;
            }
        }
        Err(UnmapsError::NotWatched {
            address: range.start,
            length: range.end - range.start,
            error: error.to_string(),
        })
    }

    /// Reads what has been reported. Allocates nothing.
    pub(super) fn read(&self, put: &mut dyn FnMut(Range<u64>)) {
        let mut bytes = [0; REPORTS * REPORT_BYTES];
        let Some(file) = self.file() else {
            return;
        };
        let Ok(count) = rustix::io::read(file, &mut bytes) else {
            return;
        };
        let read = bytes.get(..count).unwrap_or(&[]);
        read.chunks_exact(REPORT_BYTES)
            .filter_map(range)
            .for_each(put);
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inherited for Descriptor {
    /// A copy in the child would keep the parent's ranges watched after the parent has closed its
    /// own, without a thread that reads the reports.
    fn found_in_child(&self) {
        self.close();
    }
}

/// The range that a report is about.
fn range(report: &[u8]) -> Option<Range<u64>> {
    let word = |at: usize| Some(u64::from_ne_bytes(*report.get(at..)?.first_chunk()?));
    match *report.first()? {
        // from, to, length
        EVENT_REMAP => Some(word(8)?..word(8)?.saturating_add(word(24)?)),
        // start, end
        EVENT_REMOVE | EVENT_UNMAP => Some(word(8)?..word(16)?),
        _ => None,
    }
}

fn denied(operation: &'static str) -> UnmapsError {
    denied_by(operation, &Error::last_os_error())
}

fn denied_by(operation: &'static str, error: &Error) -> UnmapsError {
    let error = error.to_string();
    UnmapsError::Denied { operation, error }
}

/// Calls with the flags of the descriptor. A kernel before 5.11 refuses the one that it does not
/// know, and asks for no privilege because of it.
fn opened(mut call: impl FnMut(libc::c_int) -> Result<RawFd, Error>) -> Result<RawFd, Error> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    match call(flags | USER_MODE_ONLY) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => call(flags),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_know_a_flag_is_asked_without_it() {
        let old = |flags: libc::c_int| match flags & USER_MODE_ONLY {
            0 => Ok(flags),
            _ => Err(Error::from_raw_os_error(libc::EINVAL)),
        };
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        assert_eq!(opened(old).unwrap(), flags);
        assert_eq!(opened(Ok).unwrap(), flags | USER_MODE_ONLY);
        let mut calls = 0;
        let denied = opened(|_| {
            calls += 1;
            Err(Error::from_raw_os_error(libc::EPERM))
        });
        let denied = denied.unwrap_err().raw_os_error();
        assert_eq!((denied, calls), (Some(libc::EPERM), 1));
    }
}
