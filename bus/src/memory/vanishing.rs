//! Files of other processes whose pages may vanish while they are mapped here.
//!
//! A seal prevents that a file is truncated. It does not prevent a hole that is punched into a file
//! of huge pages, and if no huge page is free then, the next access here is a SIGBUS. So is one to
//! a file that could not be sealed and was truncated. A process that serves others handles that
//! signal: the page is replaced by one of zeros, which the other process does not see. Only that
//! process lacks its data.
#![allow(unsafe_code)] // handles a signal, and maps memory in the handler

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Mappings of other processes' files at a time; further ones are refused.
pub const MAX_FOREIGN_MAPPINGS: usize = 65_536;
/// A place that is being filled: no range starts there.
const TAKEN: usize = usize::MAX;

/// One mapping. `start` is written last, and is 0 in a free place.
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    page_bytes: AtomicUsize,
}

static PLACES: [Place; MAX_FOREIGN_MAPPINGS] = [const {
    Place {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        page_bytes: AtomicUsize::new(0),
    }
}; MAX_FOREIGN_MAPPINGS];

/// Places that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A mapping that is looked after, until it is dropped.
pub(super) struct Vanishing(&'static Place);

impl Vanishing {
    /// Looks after `length` bytes from `base`, on pages of `page_bytes`. Nothing without a free
    /// place.
    pub(super) fn new(base: NonNull<u8>, length: usize, page_bytes: usize) -> Option<Self> {
        let start = base.as_ptr() as usize;
        let (index, place) = PLACES.iter().enumerate().find(|(_, place)| {
            let start = &place.start;
            // Only looked at first: most places before a free one are taken.
            start.load(Ordering::Relaxed) == 0
                && start
                    .compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        })?;
        USED.fetch_max(index + 1, Ordering::AcqRel);
        place.end.store(start + length, Ordering::Relaxed);
        place.page_bytes.store(page_bytes, Ordering::Relaxed);
        place.start.store(start, Ordering::Release);
        Some(Self(place))
    }
}

impl Drop for Vanishing {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
    }
}

/// The page that an address is in, and its bytes, if a mapping has it that is looked after.
fn page_of(address: usize) -> Option<(usize, usize)> {
    let used = USED.load(Ordering::Acquire);
    let places = PLACES.get(..used).unwrap_or(&[]);
    places.iter().find_map(|place| {
        let start = place.start.load(Ordering::Acquire);
        let is_in = start != 0 && start <= address && address < place.end.load(Ordering::Relaxed);
        let bytes = place.page_bytes.load(Ordering::Relaxed);
        is_in.then_some((address & !(bytes - 1), bytes))
    })
}

/// Replaces the page. Calls nothing that a signal handler may not call.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a valid structure, and the address of the access in it.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: the page is of a mapping that this process made, and its content is lost already;
    // views of it tolerate any change. Without such a page the access fails again, and ends the
    // process.
    unsafe {
        let error = *libc::__errno_location();
        let replaced = page_of(address).is_some_and(|(page, bytes)| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let at = page as *mut c_void;
            libc::mmap(at, bytes, protection, flags, -1, 0) == at
        });
        if !replaced {
            libc::signal(signal, libc::SIG_DFL);
        }
        *libc::__errno_location() = error;
    }
}

/// Has this process survive pages of other processes' files that vanish. For servers; others keep
/// the default, which ends the process.
pub fn survive_vanished_pages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the structure is valid, and the handler calls nothing that it may not call.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ForeignFile;
    use rustix::fs::MemfdFlags;

    #[test]
    fn pages_that_their_owner_takes_away_are_read_as_zeros() {
        survive_vanished_pages();
        let owner = rustix::fs::memfd_create("test", MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&owner, 16384).unwrap();
        let sent = owner.try_clone().unwrap();
        let memory = ForeignFile::inspect(sent, true).unwrap().map().unwrap();
        assert!(memory.write(5000, b"here"));
        rustix::fs::ftruncate(&owner, 4096).unwrap();
        let mut bytes = [1; 4];
        assert!(memory.read(5000, &mut bytes));
        assert_eq!(bytes, [0; 4]);
        assert!(memory.write(12288, b"lost"), "another page");
        assert!(memory.write(0, b"kept"));
        rustix::io::pread(&owner, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"kept");
        let first = memory.virtual_address() as usize;
        assert_eq!(page_of(first + 4097), Some((first + 4096, 4096)));
        drop(memory);
        assert_eq!(page_of(first + 4097), None);
    }
}
