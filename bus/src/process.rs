//! The process that made an object, and the object's state in a child process made by `fork`.
//!
//! A device belongs to the process that opened it. In a child of a fork
//! - calls fail with [`FunctionError::OtherProcess`]: [`Birth::check`];
//! - memory that the device can reach, registers and doorbells are not inherited
//!   (`MADV_DONTFORK`). Private zeroed pages lie in their place, so that a store of the child
//!   reaches neither the device nor the parent, and an access is no fault: `Hidden`;
//! - objects of the data path are notified: [`tell_in_child`];
//! - connections to a server are closed: `Severed`.
//!
//! `vfork` and `posix_spawn` do not count as forks: the child shares the parent's memory until it
//! executes another program.
#![allow(unsafe_code)] // handlers of fork, advice for mappings, pages in their place

use crate::DeviceAddress;
use crate::error::FunctionError;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Once, Weak};

/// Forks between the start of the program and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process in which an object was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    forks: u32,
    process: u32,
}

impl Birth {
    /// This process.
    #[must_use]
    pub fn now() -> Self {
        install();
        Self {
            forks: FORKS.load(Ordering::Relaxed),
            process: std::process::id(),
        }
    }

    /// True in the process that made it, false in a child of a fork. One load.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Refuses a call for `device` in another process.
    ///
    /// # Errors
    /// [`FunctionError::OtherProcess`]
    pub fn check(&self, device: &DeviceAddress) -> Result<(), FunctionError> {
        match self.is_here() {
            true => Ok(()),
            false => Err(FunctionError::OtherProcess {
                device: device.clone(),
                made_in: self.process,
                this: std::process::id(),
            }),
        }
    }
}

/// An object that is notified in a child process made by `fork`.
pub trait Inherited: Send + Sync {
    /// Called in the child before `fork` returns there. Takes no lock, allocates nothing, and makes
    /// no call that is not allowed between fork and exec (signal-safety(7)).
    fn found_in_child(&self);
}

impl Inherited for AtomicBool {
    fn found_in_child(&self) {
        self.store(true, Ordering::Relaxed);
    }
}

/// Calls [`Inherited::found_in_child`] in each child that is forked as long as `object` exists.
pub fn tell_in_child(object: Weak<dyn Inherited>) {
    install();
    with_inheritance(|all| {
        if all.objects.len() >= all.prune_at {
            all.objects.retain(|known| known.strong_count() > 0);
            all.prune_at = (all.objects.len() * 2).max(64);
        }
        all.objects.push(object);
    });
}

/// Calls [`Inherited::found_in_child`] in each child that is forked while `object` has an owner.
pub fn tell_in_child_of<T: Inherited + 'static>(object: &Arc<T>) {
    let object: Arc<dyn Inherited> = Arc::clone(object) as _;
    tell_in_child(Arc::downgrade(&object));
}

/// A descriptor that a child of a fork must not keep open, so that its other end notices when this
/// process closes it or ends. In the child its number then names `/dev/null`.
///
/// Dropped before the descriptor is closed.
#[derive(Debug)]
pub(crate) struct Severed(RawFd);

impl Severed {
    pub(crate) fn new(descriptor: BorrowedFd<'_>) -> Arc<Self> {
        let severed = Arc::new(Self(descriptor.as_raw_fd()));
        tell_in_child_of(&severed);
        severed
    }
}

impl Inherited for Severed {
    fn found_in_child(&self) {
        // SAFETY: the number is that of a descriptor whose owner is only used in the parent; calls
        //         that are allowed between fork and exec.
        unsafe {
            let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if nothing >= 0 {
                libc::dup3(nothing, self.0, libc::O_CLOEXEC);
                libc::close(nothing);
            }
        }
    }
}

/// A mapping that a child of a fork must not share. Dropped before the mapping is removed.
#[derive(Debug)]
pub(crate) struct Hidden {
    base: usize,
}

#[derive(Clone, Copy)]
struct Piece {
    base: usize,
    length: usize,
    /// the kernel does not copy it into a child
    is_left_out: bool,
}

impl Hidden {
    /// Hides `length` bytes at `base` from children: whole pages of a mapping that the caller made.
    pub(crate) fn new(base: NonNull<u8>, length: usize) -> Self {
        install();
        let at: *mut c_void = base.as_ptr().cast();
        // SAFETY: the advice changes nothing in this process.
        let advised = unsafe { rustix::mm::madvise(at, length, rustix::mm::Advice::LinuxDontFork) };
        if let Err(error) = &advised {
            tracing::warn!(%error, length, "a child of a fork shares this memory until the fork's handler has replaced it");
        }
        let base = base.as_ptr().addr();
        let is_left_out = advised.is_ok();
        with_inheritance(|all| {
            all.pieces.push(Piece {
                base,
                length,
                is_left_out,
            });
        });
        Self { base }
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        with_inheritance(|all| {
            if let Some(at) = all.pieces.iter().position(|one| one.base == self.base) {
                all.pieces.swap_remove(at);
            }
        });
    }
}

/// Resources that a child must not reach.
struct Inheritance {
    pieces: Vec<Piece>,
    objects: Vec<Weak<dyn Inherited>>,
    prune_at: usize,
}

/// A lock that one fork handler takes and another one releases. The guard of a standard lock does
/// not allow that.
struct Locked {
    taken: AtomicBool,
    all: UnsafeCell<Inheritance>,
}

// SAFETY: `all` is only accessed between `take` and `give`, by one thread at a time.
unsafe impl Sync for Locked {}

static INHERITANCE: Locked = Locked {
    taken: AtomicBool::new(false),
    all: UnsafeCell::new(Inheritance {
        pieces: Vec::new(),
        objects: Vec::new(),
        prune_at: 64,
    }),
};

impl Locked {
    fn take(&self) {
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn give(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

fn with_inheritance(change: impl FnOnce(&mut Inheritance)) {
    INHERITANCE.take();
    // SAFETY: `take` returned, so no other thread has a reference until `give`; `change` is one of
    //         the closures of this module, none of which comes back here or panics but for want of
    //         memory, which ends the process.
    change(unsafe { &mut *INHERITANCE.all.get() });
    INHERITANCE.give();
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the three functions have the right type, last as long as the program, and do only
        //         what is allowed between fork and exec: stores, `mmap`, and calls of
        //         `Inherited::found_in_child`, which promise as much.
        let refused =
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        if refused != 0 {
            tracing::warn!("no memory for a handler of fork: do not use devices in a child");
        }
    });
}

/// Takes the lock, so that no thread changes the list while the process is copied.
unsafe extern "C" fn before() {
    INHERITANCE.take();
}

unsafe extern "C" fn in_parent() {
    INHERITANCE.give();
}

unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `before` took the lock in this thread, the only one of the child.
    let all = unsafe { &*INHERITANCE.all.get() };
    for piece in &all.pieces {
        put_zeroes(piece);
    }
    for object in &all.objects {
        if let Some(object) = object.upgrade() {
            object.found_in_child();
        }
    }
    INHERITANCE.give();
}

/// Maps private zeroed pages in place of the mapping. If the kernel refuses, an access is a fault.
fn put_zeroes(piece: &Piece) {
    let place = match piece.is_left_out {
        // Unmapped in the child: the kernel did not copy the mapping.
        true => libc::MAP_FIXED_NOREPLACE,
        false => libc::MAP_FIXED,
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | place;
    let at = std::ptr::with_exposed_provenance_mut::<c_void>(piece.base);
    // SAFETY: the range is that of a mapping which a `Hidden` stands for, so its owner expects
    //         memory there; nothing else of this process is replaced.
    let _ = unsafe {
        libc::mmap(
            at,
            piece.length,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
}

#[cfg(test)]
pub(crate) mod tests;
