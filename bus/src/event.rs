//! Signals to event descriptors that other processes share.
//!
//! The flag `O_NONBLOCK` belongs to the open file, which the other process shares: it can clear the
//! flag at any time, fill the counter, and have a `write` here wait for ever. So no `write` is
//! made. The kernel's asynchronous input and output signals an event descriptor when an operation
//! is complete: it adds one to the counter, or leaves a full one as it is, and never waits. The
//! operation is a read of no bytes, which is complete when the call returns.
//!
//! A kernel without it (`CONFIG_AIO`), or a filter of system calls that refuses it, leaves the
//! write: the flag is set just before it.
//!
//! Source: `linux/aio_abi.h`; Linux 6.12 `fs/aio.c` (`__io_submit_one`, `iocb_put`) and
//! `fs/eventfd.c` (`eventfd_signal_mask`, `eventfd_write`).
#![allow(unsafe_code)] // three system calls that no crate of ours wraps

use crate::errno::errno_of;
use crate::memory::beside_standard;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

/// Operations whose results the kernel keeps until they are collected, at least.
const RESULTS: usize = 64;
/// IOCB_CMD_PREAD
const READ: u16 = 0;
/// IOCB_FLAG_RESFD
const SIGNALS: u32 = 1;
/// Tries of one signal. The second finds room, unless many threads signal at once.
const TRIES: u32 = 16;

/// Struct iocb.
#[repr(C)]
#[derive(Default)]
struct Operation {
    data: u64,
    /// the key, which the kernel writes, and flags, in the machine's order
    key_and_flags: u64,
    kind: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

const _: () = assert!(size_of::<Operation>() == 64);

/// Struct io_event.
type Completed = [u64; 4];

/// A context of the kernel, and the empty file that operations read.
struct Context {
    number: libc::c_ulong,
    file: OwnedFd,
}

/// The context of this process, which lasts as long. None if the kernel gives none. Calls of
/// several threads need no lock: the kernel orders them.
static CONTEXT: OnceLock<Option<Context>> = OnceLock::new();

/// Adds one to the counter of an event descriptor, without waiting. A full counter is a signal
/// already.
///
/// # Errors
/// It is no event descriptor that can be signalled.
pub fn signal(event: BorrowedFd<'_>) -> Result<(), Errno> {
    let context = CONTEXT.get_or_init(|| {
        let made = Context::new();
        if let Err(error) = &made {
            tracing::warn!(
                %error,
                "the kernel gives no asynchronous input and output: a process that shares an event \
                 descriptor with this one can stop it"
            );
        }
        made.ok()
    });
    match context.as_ref().map(|context| context.signal(event)) {
        Some(Ok(())) => Ok(()),
        // In a child of a fork the context is unknown.
        None | Some(Err(_)) => write(event),
    }
}

/// Writes to a descriptor whose flag was set just before.
fn write(event: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(event)?;
    if !flags.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(event, flags | OFlags::NONBLOCK)?;
    }
    match rustix::io::write(event, &1u64.to_ne_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Context {
    fn new() -> Result<Self, Errno> {
        let made = rustix::fs::memfd_create("ringside-event", MemfdFlags::CLOEXEC)?;
        let file = beside_standard(made)?;
        let mut number: libc::c_ulong = 0;
        // SAFETY: the call writes one number, which outlives it.
        outcome(unsafe { libc::syscall(libc::SYS_io_setup, RESULTS, &raw mut number) })?;
        Ok(Self { number, file })
    }

    fn signal(&self, event: BorrowedFd<'_>) -> Result<(), Errno> {
        for _ in 0..TRIES {
            match self.submit(event) {
                Err(Errno::AGAIN) => self.collect()?,
                outcome => return outcome,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Has the kernel read no bytes of the empty file, and signal the descriptor after it.
    fn submit(&self, event: BorrowedFd<'_>) -> Result<(), Errno> {
        let number = |descriptor: BorrowedFd<'_>| descriptor.as_raw_fd().unsigned_abs();
        let mut operation = Operation {
            kind: READ,
            file: number(self.file.as_fd()),
            flags: SIGNALS,
            event: number(event),
            ..Operation::default()
        };
        let mut operations = [&raw mut operation];
        // SAFETY: 1. the context is of this process, or unknown to the kernel, which then refuses.
        //         2. the kernel reads one pointer and one operation, and writes its key; all three
        //            outlive the call, and it keeps no pointer to them.
        //         3. the operation has no buffer, and a length of 0.
        outcome(unsafe {
            let first = operations.as_mut_ptr();
            libc::syscall(libc::SYS_io_submit, self.number, 1 as libc::c_long, first)
        })
    }

    /// Discards the results of complete operations, which makes room for as many.
    fn collect(&self) -> Result<(), Errno> {
        let mut results: [Completed; RESULTS] = [[0; 4]; RESULTS];
        let mut no_wait = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (none, most) = (0 as libc::c_long, RESULTS as libc::c_long);
        // SAFETY: the kernel writes at most as many results as there are places; they and the
        // limit of the wait outlive the call.
        outcome(unsafe {
            let (first, limit) = (results.as_mut_ptr(), ptr::from_mut(&mut no_wait));
            libc::syscall(
                libc::SYS_io_getevents,
                self.number,
                none,
                most,
                first,
                limit,
            )
        })
    }
}

fn outcome(result: libc::c_long) -> Result<(), Errno> {
    errno_of(result.signum() as libc::c_int)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::sync::mpsc;
    use std::time::Duration;

    fn value(event: &OwnedFd) -> u64 {
        let mut value = [0; 8];
        rustix::io::read(event, &mut value).unwrap();
        u64::from_ne_bytes(value)
    }

    fn blocking() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    fn is_blocking(event: &OwnedFd) -> bool {
        let flags = rustix::fs::fcntl_getfl(event).unwrap();
        !flags.contains(OFlags::NONBLOCK)
    }

    #[test]
    fn each_signal_adds_one_also_after_many() {
        let event = blocking();
        let context = Context::new().unwrap();
        for _ in 0..5000 {
            context.signal(event.as_fd()).unwrap();
        }
        assert_eq!(value(&event), 5000);
        assert!(is_blocking(&event), "its flag is its owner's");
    }

    #[test]
    fn a_full_counter_is_not_waited_for() {
        let event = blocking();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let shared = event.try_clone().unwrap();
        std::thread::spawn(move || {
            let outcomes = [(); 3].map(|()| signal(shared.as_fd()));
            sender.send((outcomes, is_blocking(&shared)))
        });
        let (outcomes, unchanged) = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(outcomes, [Ok(()); 3]);
        assert!(unchanged, "no write that needs the flag");
        assert!(value(&event) >= u64::MAX - 1);
    }

    #[test]
    fn signals_of_several_threads_all_arrive() {
        let event = blocking();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..2000).for_each(|_| signal(event.as_fd()).unwrap()));
            }
        });
        assert_eq!(value(&event), 8000);
    }

    #[test]
    fn without_the_kernels_help_the_flag_is_set_before_a_write() {
        let event = blocking();
        write(event.as_fd()).unwrap();
        assert_eq!(value(&event), 1);
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(&event, OFlags::empty()).unwrap();
        assert_eq!(write(event.as_fd()), Ok(()), "a signal already");
        assert_eq!(value(&event), u64::MAX - 1);
    }

    #[test]
    fn no_other_descriptor_is_signalled() {
        let memory = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let context = Context::new().unwrap();
        assert_eq!(context.signal(memory.as_fd()), Err(Errno::INVAL));
    }
}
