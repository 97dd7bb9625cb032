//! The program's own memory without a file behind it, of any origin.
//!
//! A device in this process, and the kernel, access it directly. A device in another process
//! accesses it through the file of the address space, `/proc/self/mem`, whose descriptor is sent
//! with the mapping. That works for memory of any kind, needs no right to trace the process, and
//! refers to this address space even if the process id is used again. The kernel lets a process
//! open it that may be traced by its user: not one that has dropped its privileges, or that forbids
//! core dumps. Such a process uses what it opened before.
#![allow(unsafe_code)] // names memory that this crate did not map

use super::mapping::{Mapping, Origin};
use super::{Memory, MemoryError, PageSize, system};
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

/// Bytes that pass through this process at a time between two other processes.
const PIECE: usize = 64 << 10;

/// Kind of the file system that `/proc/self/mem` is in. Source: `linux/magic.h`, PROC_SUPER_MAGIC.
const PROC: u64 = 0x9FA0;

/// Names of the file of the address space. Linux before 3.17 has the second alone, and the second
/// cannot be opened once the first thread of the process has ended.
const OWN: [&str; 2] = ["/proc/thread-self/mem", "/proc/self/mem"];

/// The file of this process' address space, open while memory of it is lent or a device of another
/// process is in use: one descriptor for all of it. A child of a fork opens its own.
pub(crate) fn own_space() -> rustix::io::Result<Arc<OwnedFd>> {
    static OPEN: Mutex<Option<(u32, Weak<OwnedFd>)>> = Mutex::new(None);
    let process = std::process::id();
    // Only tried: another thread may have held the lock when this process was forked.
    let mut open = OPEN.try_lock().ok();
    let known = open.as_deref().and_then(Option::as_ref);
    let same = known.filter(|(owner, _)| *owner == process);
    if let Some(space) = same.and_then(|(_, space)| space.upgrade()) {
        return Ok(space);
    }
    let open_as = |name| rustix::fs::open(name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let [of_thread, of_process] = OWN;
    let space = Arc::new(open_as(of_thread).or_else(|_| open_as(of_process))?);
    if let Some(open) = open.as_deref_mut() {
        *open = Some((process, Arc::downgrade(&space)));
    }
    Ok(space)
}

impl Memory {
    /// The program's own memory: `length` bytes from `address`, both multiples of 4096.
    ///
    /// # Safety
    /// The range is mapped, and stays mapped while this value, a clone of it or a device that was
    /// given it is in use. A device may change it at any time: the program must not rely on its
    /// content meanwhile.
    pub unsafe fn lend(address: usize, length: usize) -> Result<Self, MemoryError> {
        let alignment = PageSize::FourKiB.bytes();
        let whole = address.is_multiple_of(alignment) && length.is_multiple_of(alignment);
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address));
        let Some(base) = base.filter(|_| whole && length > 0) else {
            return Err(MemoryError::BadRequest { length, alignment });
        };
        let space = own_space()
            .inspect_err(|error| tracing::debug!(%error, "no file of the own address space"))
            .ok();
        Ok(Self(Arc::new(Mapping {
            base,
            length,
            page_size: PageSize::FourKiB,
            origin: Origin::Lent {
                space,
                address: address as u64,
            },
        })))
    }

    /// The memory of another process: `length` bytes from `address` of the address space behind
    /// `descriptor`.
    ///
    /// Errors: [`MemoryError::BadRequest`] if the descriptor is not of an address space.
    pub fn of_peer(
        descriptor: Arc<OwnedFd>,
        address: u64,
        length: usize,
    ) -> Result<Self, MemoryError> {
        let alignment = PageSize::FourKiB.bytes();
        let bad = MemoryError::BadRequest { length, alignment };
        let kind = rustix::fs::fstatfs(&*descriptor)
            .map_err(|error| system("fstatfs", length, error))?
            .f_type;
        let inside = address.checked_add(length as u64);
        if kind as u64 != PROC || length == 0 || inside.is_none() {
            return Err(bad);
        }
        Ok(Self(Arc::new(Mapping {
            base: NonNull::dangling(),
            length,
            page_size: PageSize::FourKiB,
            origin: Origin::Peer {
                space: descriptor,
                address,
            },
        })))
    }

    /// True if its descriptor must be read and written at positions, because it cannot be mapped.
    #[must_use]
    pub fn is_positional(&self) -> bool {
        matches!(self.0.origin, Origin::Lent { .. } | Origin::Peer { .. })
    }

    pub(super) fn is_peer(&self) -> bool {
        matches!(self.0.origin, Origin::Peer { .. })
    }

    /// The range was checked. False if the other process no longer has memory there.
    pub(super) fn read_peer(&self, offset: usize, into: &mut [u8]) -> bool {
        let Origin::Peer { space, address } = &self.0.origin else {
            return false;
        };
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = address + (offset + done) as u64;
            match rustix::io::pread(space, rest, at) {
                Ok(count) if count > 0 => done += count,
                Err(rustix::io::Errno::INTR) => {}
                _ => return false,
            }
        }
        true
    }

    /// The range was checked. False if the other process no longer has memory there.
    pub(super) fn write_peer(&self, offset: usize, from: &[u8]) -> bool {
        let Origin::Peer { space, address } = &self.0.origin else {
            return false;
        };
        let mut done = 0;
        while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
            let at = address + (offset + done) as u64;
            match rustix::io::pwrite(space, rest, at) {
                Ok(count) if count > 0 => done += count,
                Err(rustix::io::Errno::INTR) => {}
                _ => return false,
            }
        }
        true
    }

    /// True for memory of another process that has ended, or that runs another program now: the
    /// file of its address space is empty.
    #[must_use]
    pub(crate) fn owner_has_ended(&self) -> bool {
        let Origin::Peer { space, address } = &self.0.origin else {
            return false;
        };
        rustix::io::pread(space, &mut [0], *address) == Ok(0)
    }

    /// True if the range, of memory of another process, can be read. The caller has checked the
    /// range.
    pub(crate) fn is_readable(&self, offset: usize, length: usize) -> bool {
        let mut piece = vec![0; length.min(PIECE)];
        (0..length).step_by(PIECE).all(|done| {
            let count = (length - done).min(PIECE);
            self.read(offset + done, piece.get_mut(..count).unwrap_or(&mut []))
        })
    }

    /// Copies through a buffer of this process. The caller has checked both ranges.
    pub(super) fn copy_by_pieces(
        from: &Self,
        at: usize,
        to: &Self,
        to_at: usize,
        length: usize,
    ) -> bool {
        let mut piece = vec![0; length.min(PIECE)];
        (0..length).step_by(PIECE).all(|done| {
            let count = (length - done).min(PIECE);
            let piece = piece.get_mut(..count).unwrap_or(&mut []);
            from.read(at + done, piece) && to.write(to_at + done, piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// A page of the test, with 4096 bytes before and after it that the test does not touch.
    fn page() -> (Vec<u8>, usize) {
        let bytes = vec![7; 3 * 4096];
        let inside = (bytes.as_ptr() as usize).next_multiple_of(4096);
        (bytes, inside)
    }

    fn peer(memory: &Memory) -> Memory {
        let descriptor = memory.descriptor().unwrap().try_clone_to_owned().unwrap();
        Memory::of_peer(
            Arc::new(descriptor),
            memory.offset_in_file(),
            memory.length(),
        )
        .unwrap()
    }

    #[test]
    fn another_process_reads_and_writes_the_programs_memory() {
        let (bytes, at) = page();
        // SAFETY: `bytes` outlives both values, and is read only afterwards.
        let lent = unsafe { Memory::lend(at, 4096) }.unwrap();
        let peer = peer(&lent);
        assert!(lent.write(100, b"from the program"));
        let mut seen = [0; 16];
        assert!(peer.read(100, &mut seen));
        assert_eq!(&seen, b"from the program");
        assert!(peer.write(4090, &[1; 6]));
        assert!(!peer.write(4090, &[1; 7]), "beyond the end");
        let mut seen = [0; 6];
        assert!(lent.read(4090, &mut seen));
        assert_eq!(seen, [1; 6]);
        assert!(peer.words(0, 64).is_none(), "no view of another process");
        drop((lent, peer));
        assert_eq!(bytes.len(), 3 * 4096);
    }

    #[test]
    fn memory_of_two_processes_is_copied_in_pieces() {
        let from = Memory::allocate(200 << 10, PageSize::FourKiB, None).unwrap();
        let bytes: Vec<u8> = (0..200 << 10).map(|index| (index % 251) as u8).collect();
        assert!(from.write(0, &bytes));
        let target = vec![0_u8; 210 << 10];
        let at = (target.as_ptr() as usize).next_multiple_of(4096);
        // SAFETY: `target` outlives both values, and is read only afterwards.
        let lent = unsafe { Memory::lend(at, 200 << 10) }.unwrap();
        assert!(Memory::copy(&from, 0, &peer(&lent), 0, 200 << 10));
        let mut seen = vec![0; 200 << 10];
        assert!(lent.read(0, &mut seen));
        assert!(seen == bytes);
        drop(lent);
        drop(target);
    }

    #[test]
    fn all_memory_that_is_lent_shares_one_descriptor() {
        let (bytes, at) = page();
        // SAFETY: `bytes` outlives both values.
        let both = unsafe { [Memory::lend(at, 4096), Memory::lend(at, 4096)] };
        let number = |lent: &Memory| lent.descriptor().unwrap().as_raw_fd();
        let [one, two] = both.map(|lent| number(&lent.unwrap()));
        assert_eq!(one, two);
        drop(bytes);
    }

    #[test]
    fn only_an_address_space_is_taken_for_one() {
        let file = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
        let descriptor = file.descriptor().unwrap().try_clone_to_owned().unwrap();
        let refused = Memory::of_peer(Arc::new(descriptor), 0, 4096);
        assert!(matches!(refused, Err(MemoryError::BadRequest { .. })));
    }

    #[test]
    fn unmapped_memory_is_refused_not_fatal() {
        let (bytes, at) = page();
        // SAFETY: `bytes` outlives the value; the peer is asked for an address without memory.
        let lent = unsafe { Memory::lend(at, 4096) }.unwrap();
        let descriptor = lent.descriptor().unwrap().try_clone_to_owned().unwrap();
        let nowhere = Memory::of_peer(Arc::new(descriptor), 4096, 4096).unwrap();
        assert!(!nowhere.read(0, &mut [0; 8]));
        assert!(!nowhere.write(0, &[0; 8]));
        drop(bytes);
    }
}
