//! Cancellation of threads (`pthread_cancel`). A thread is cancelled where a call of the library
//! sleeps, and nowhere else in it: the sleep unwinds through frames that expect that and release
//! their resources.
//!
//! Each call that may reach a function of the C library at which threads are cancelled holds an
//! [`Uncancelled`]: those that control objects, also the ones that write to the log or read a file.
//! Calls of the data path have no instruction for it: what they ask of the kernel they ask by
//! [`write_byte`] and [`read_byte`], which are no such functions.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

const ENABLED: c_int = 0;
const DISABLED: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

// The sleeps. A cancelled thread does not return from them.
unsafe extern "C-unwind" {
    fn ppoll(
        sources: *mut libc::pollfd,
        count: libc::nfds_t,
        limit: *const libc::timespec,
        signals: *const libc::sigset_t,
    ) -> c_int;
    fn read(descriptor: c_int, into: *mut c_void, length: usize) -> isize;
    fn pause() -> c_int;
}

type PollFunction = unsafe extern "C-unwind" fn(
    *mut libc::pollfd,
    libc::nfds_t,
    *const libc::timespec,
    *const libc::sigset_t,
) -> c_int;
type ReadFunction = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize) -> isize;

/// Hides a function from the compiler, which takes those of the C library that it knows for ones
/// that never unwind.
fn opaque<F>(function: F) -> F {
    std::hint::black_box(function)
}

thread_local! {
    /// The program's own state, while a call of the library runs.
    static BEFORE: Cell<Option<c_int>> = const { Cell::new(None) };
}

fn set(state: c_int) -> c_int {
    let mut before = ENABLED;
    // SAFETY: the place is live.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// A call of the library, during which the thread is cancelled in its sleeps only.
pub(crate) struct Uncancelled {
    /// false inside of another call
    is_outermost: bool,
}

impl Uncancelled {
    pub(crate) fn new() -> Self {
        let is_outermost = BEFORE.get().is_none();
        if is_outermost {
            BEFORE.set(Some(set(DISABLED)));
        }
        Self { is_outermost }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        if self.is_outermost
            && let Some(before) = BEFORE.take()
        {
            set(before);
        }
    }
}

/// The program's own state, for the time of a sleep.
struct Cancellable(Option<c_int>);

impl Cancellable {
    fn new() -> Self {
        Self(BEFORE.get().map(set))
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        if let Some(state) = self.0 {
            set(state);
        }
    }
}

/// Returns what `ppoll` returns.
pub(crate) fn sleep_in_ppoll(
    sources: &mut [libc::pollfd],
    limit: &libc::timespec,
    signals: &libc::sigset_t,
) -> c_int {
    let _cancellable = Cancellable::new();
    let (start, count) = (sources.as_mut_ptr(), sources.len() as libc::nfds_t);
    // SAFETY: the references are live.
    unsafe { opaque(ppoll as PollFunction)(start, count, limit, signals) }
}

/// Reads a byte; returns what `read` returns.
pub(crate) fn sleep_in_read(descriptor: c_int) -> isize {
    let _cancellable = Cancellable::new();
    let mut byte = 0_u8;
    // SAFETY: one byte is written to a live value.
    unsafe { opaque(read as ReadFunction)(descriptor, (&raw mut byte).cast(), 1) }
}

/// Writes a zero byte, and is no point of cancellation. False if it was not written.
pub(crate) fn write_byte(descriptor: c_int) -> bool {
    let byte = 0_u8;
    // SAFETY: one byte is read from a live value.
    unsafe { libc::syscall(libc::SYS_write, descriptor, &raw const byte, 1_usize) == 1 }
}

/// Reads and drops a byte, and is no point of cancellation. Waits for one, unless the descriptor is
/// non-blocking.
pub(crate) fn read_byte(descriptor: c_int) {
    let mut byte = 0_u8;
    // SAFETY: one byte is written to a live value.
    unsafe { libc::syscall(libc::SYS_read, descriptor, &raw mut byte, 1_usize) };
}

/// True if there is something to read. No point of cancellation.
pub(crate) fn is_readable(descriptor: c_int) -> bool {
    let mut ready = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (entry, limit) = (&raw mut ready, &raw const at_once);
    let no_signals = std::ptr::null::<libc::sigset_t>();
    // SAFETY: one live entry, and a live time.
    unsafe { libc::syscall(libc::SYS_ppoll, entry, 1_usize, limit, no_signals, 0_usize) > 0 }
}

/// Waits for a signal.
pub(crate) fn sleep_in_pause() {
    let _cancellable = Cancellable::new();
    // SAFETY: no memory is passed.
    unsafe { opaque(pause as unsafe extern "C-unwind" fn() -> c_int)() };
}
