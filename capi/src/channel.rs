//! Queues of events behind real descriptors: completion channels and asynchronous events.

use crate::cancel::{is_readable, read_byte, sleep_in_pause, sleep_in_read, write_byte};
use crate::device::lock;
use ringside_bus::process::Birth;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// Events and a descriptor that is readable while there are some.
///
/// The descriptor is the reading end of a pipe with one byte for each event: programs poll it, and
/// set it non-blocking themselves. Like those of the kernel it is never writable: programs
/// (infinistore) that wait for both would find it ready at all times.
///
/// A child of a fork has the same pipe and a list of its own. It leaves both alone: a byte that it
/// reads is its parent's, and a thread of the parent may have held the lock when it was copied.
pub(crate) struct EventQueue<T> {
    /// the process whose events it has; nothing before it has a source
    birth: OnceLock<Birth>,
    reader: OwnedFd,
    /// The writing end, opened anew for both directions if /proc is there: then bytes of withdrawn
    /// events are read here, with the lock held. It never waits, even if the program sets it to.
    writer: OwnedFd,
    /// `writer` also reads
    drains: bool,
    /// the program has closed the reading end, whose number is another descriptor's now
    is_abandoned: AtomicBool,
    waiting: Mutex<Waiting<T>>,
}

/// Events that were not read.
struct Waiting<T> {
    events: VecDeque<T>,
    /// The number of events without a byte: the pipe was full.
    unannounced: usize,
}

/// Descriptors of a queue. One more is open for a moment while it is made.
pub(crate) const DESCRIPTORS: usize = 2;

/// A pipe of one page, so that the pipes of many channels stay below the limit of a user.
const PIPE_BYTES: c_int = 4096;

impl<T> EventQueue<T> {
    /// An empty queue of this process, or an errno value.
    pub(crate) fn new() -> Result<Self, c_int> {
        let made = Self::unused()?;
        made.begin();
        Ok(made)
    }

    /// An empty queue of the process that calls [`Self::begin`] first, or an errno value.
    pub(crate) fn unused() -> Result<Self, c_int> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(last_error());
        }
        // SAFETY: the call above made both for these owners alone.
        let [reader, writer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: flags and size of a descriptor that is owned here. A pipe of the usual size does,
        // too.
        unsafe {
            libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
            if libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) < 0 {
                return Err(last_error());
            }
        }
        let (writer, drains) = match both_ways(reader.as_raw_fd()) {
            Some(both) => (both, true),
            None => (writer, false),
        };
        Ok(Self {
            birth: OnceLock::new(),
            reader,
            writer,
            drains,
            is_abandoned: AtomicBool::new(false),
            waiting: Mutex::new(Waiting {
                events: VecDeque::new(),
                unannounced: 0,
            }),
        })
    }

    pub(crate) fn descriptor(&self) -> c_int {
        self.reader.as_raw_fd()
    }

    /// Uses the descriptor no more: the program has closed it, and its number is another's. The
    /// queue must not be dropped after that.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// True in a child of a fork. See [`EventQueue`].
    pub(crate) fn is_inherited(&self) -> bool {
        self.birth.get().is_some_and(|birth| !birth.is_here())
    }

    /// Events of this process are added from now on. A queue that a daemon made before its fork is
    /// the child's, if it has the first source.
    pub(crate) fn begin(&self) {
        self.birth.get_or_init(Birth::now);
    }

    /// Writes the byte of an event; false if the pipe is full, or nothing reads it.
    fn announce(&self) -> bool {
        !self.is_abandoned() && write_byte(self.writer.as_raw_fd())
    }

    /// Adds an event. Does nothing in a child of a fork.
    pub(crate) fn push(&self, event: T) {
        if self.is_inherited() {
            return;
        }
        let mut waiting = lock(&self.waiting);
        waiting.events.push_back(event);
        if !self.announce() {
            waiting.unannounced += 1;
        }
    }

    /// Takes an event: waits for one unless the program made the descriptor non-blocking. `count`
    /// is called before the event can no longer be withdrawn, so that the destruction of its object
    /// finds it either here or counted.
    ///
    /// Errors: an errno value, `EAGAIN` and `EINTR` among them; `EBADF` once it is abandoned;
    /// `EIO` in a child of a fork.
    pub(crate) fn take(&self, count: impl Fn(&T)) -> Result<T, c_int> {
        if self.is_inherited() {
            return Err(libc::EIO);
        }
        loop {
            if self.is_abandoned() {
                return Err(libc::EBADF);
            }
            let read = sleep_in_read(self.descriptor());
            if read == 0 {
                return Err(stay());
            }
            if read != 1 {
                return Err(last_error());
            }
            let mut waiting = lock(&self.waiting);
            if waiting.unannounced > 0 && self.announce() {
                waiting.unannounced -= 1;
            }
            // Events that were withdrawn took their bytes along, but a reader may have been faster:
            // then the next one is waited for.
            if let Some(event) = waiting.events.pop_front() {
                count(&event);
                return Ok(event);
            }
        }
    }

    /// Events that were not read yet; none in a child of a fork.
    pub(crate) fn unread(&self) -> usize {
        if self.is_inherited() {
            return 0;
        }
        lock(&self.waiting).events.len()
    }

    /// Takes events back that were not read, and returns them; none in a child of a fork.
    pub(crate) fn withdraw(&self, is_gone: impl Fn(&T) -> bool) -> Vec<T> {
        if self.is_inherited() {
            return Vec::new();
        }
        let mut waiting = lock(&self.waiting);
        let all = std::mem::take(&mut waiting.events);
        let mut gone = Vec::new();
        for event in all {
            if is_gone(&event) {
                gone.push(event);
            } else {
                waiting.events.push_back(event);
            }
        }
        for _ in &gone {
            if waiting.unannounced > 0 {
                waiting.unannounced -= 1;
                continue;
            }
            if !self.is_abandoned() {
                self.discard();
            }
        }
        gone
    }

    /// Reads the byte of a withdrawn event, unless a reader that waits for the lock has taken it.
    fn discard(&self) {
        if self.drains {
            read_byte(self.writer.as_raw_fd());
        } else if is_readable(self.descriptor()) {
            read_byte(self.descriptor());
        }
    }
}

/// A description of a pipe that reads and writes, and does not wait: its flags are not those of the
/// program's descriptor. `None` without /proc.
fn both_ways(reader: c_int) -> Option<OwnedFd> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{reader}")).ok()?;
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: a terminated path; the descriptor is new.
    unsafe {
        let opened = libc::open(path.as_ptr(), flags);
        (opened >= 0).then(|| OwnedFd::from_raw_fd(opened))
    }
}

/// Waits for a signal on behalf of a thread whose queue was destroyed while it waited there: in the
/// kernel such a thread stays asleep, and programs (rping) take any return for a failure.
/// Returns `EINTR`.
fn stay() -> c_int {
    sleep_in_pause();
    last_error()
}

/// `errno` of the last call.
pub(crate) fn last_error() -> c_int {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::EventQueue;

    fn ready_for(queue: &EventQueue<u32>, what: libc::c_short) -> bool {
        let mut ready = libc::pollfd {
            fd: queue.descriptor(),
            events: what,
            revents: 0,
        };
        // SAFETY: one live poll entry.
        unsafe { libc::poll(&raw mut ready, 1, 0) > 0 }
    }

    fn is_readable(queue: &EventQueue<u32>) -> bool {
        ready_for(queue, libc::POLLIN)
    }

    #[test]
    fn the_descriptor_is_never_writable() {
        let queue = EventQueue::new().unwrap();
        assert!(!ready_for(&queue, libc::POLLIN | libc::POLLOUT));
        queue.push(1);
        assert!(!ready_for(&queue, libc::POLLOUT));
        assert_eq!(queue.take(|_| {}), Ok(1));
        assert!(!ready_for(&queue, libc::POLLIN | libc::POLLOUT));
    }

    #[test]
    fn events_beyond_the_size_of_the_pipe_are_read_in_order() {
        let queue = EventQueue::new().unwrap();
        let all = 2 * super::PIPE_BYTES as u32;
        for event in 0..all {
            queue.push(event);
        }
        let gone = queue.withdraw(|event| event % 3 == 0);
        for event in (0..all).filter(|event| event % 3 != 0) {
            assert!(is_readable(&queue), "event {event}");
            assert_eq!(queue.take(|_| {}), Ok(event));
        }
        assert_eq!(gone.len(), all.div_ceil(3) as usize);
        assert!(!is_readable(&queue));
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_there_are_events() {
        let queue = EventQueue::new().unwrap();
        assert!(!is_readable(&queue));
        queue.push(1);
        queue.push(2);
        queue.push(3);
        assert_eq!(queue.take(|_| {}), Ok(1));
        assert!(is_readable(&queue));
        queue.withdraw(|event| *event == 3);
        assert_eq!(queue.take(|_| {}), Ok(2));
        assert!(
            !is_readable(&queue),
            "a withdrawn event leaves nothing to read"
        );
    }

    #[test]
    fn a_withdrawal_beside_a_waiting_reader_does_not_wait() {
        let queue = EventQueue::<u32>::new().unwrap();
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Events are withdrawn under its eyes; 0 ends it.
                while queue.take(|_| {}) != Ok(0) {}
            });
            scope.spawn(|| {
                for event in 1..200_000 {
                    queue.push(event);
                    queue.withdraw(|_| true);
                }
                let _ = done.send(());
                queue.push(0);
            });
            let limit = std::time::Duration::from_secs(60);
            let in_time = ended.recv_timeout(limit).is_ok();
            if !in_time {
                eprintln!("a withdrawal waits for a byte that a reader has taken");
                std::process::abort(); // its threads would never end
            }
        });
    }

    /// Adds the last event when it goes.
    struct Ending<'a>(&'a EventQueue<u32>);

    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            self.0.push(0);
        }
    }

    #[test]
    fn an_event_is_counted_before_a_withdrawal_can_miss_it() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let (queue, counted) = (EventQueue::<u32>::new().unwrap(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let count = |_: &u32| {
                    std::thread::yield_now();
                    counted.fetch_add(1, Ordering::Relaxed);
                };
                while queue.take(count) != Ok(0) {}
            });
            // The reader ends with 0, also if this thread panics.
            let ending = Ending(&queue);
            for event in 1..20_000 {
                let before = counted.load(Ordering::Relaxed);
                queue.push(event);
                std::thread::yield_now();
                let withdrawn = queue.withdraw(|_| true).len() as u32;
                let read = counted.load(Ordering::Relaxed) - before;
                assert_eq!(withdrawn + read, 1, "event {event}");
            }
            drop(ending);
        });
    }

    #[test]
    fn a_child_of_a_fork_takes_no_event_of_its_parent() {
        let queue = EventQueue::<u32>::new().unwrap();
        queue.push(7);
        let held = super::lock(&queue.waiting); // as if by another thread
        // SAFETY: the child ends without running destructors or other handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            queue.push(8);
            let is_left = queue.withdraw(|_| true).is_empty() && queue.unread() == 0;
            let is_refused = queue.take(|_| {}) == Err(libc::EIO);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!(is_left && is_refused))) };
        }
        drop(held);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let mut status = 0;
        // SAFETY: waits for the child made above, without sleeping; `status` is valid.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if std::time::Instant::now() > deadline {
                // SAFETY: the child that was made above, which waits for the lock.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(status, 0);
        assert!(is_readable(&queue));
        assert_eq!(queue.take(|_| {}), Ok(7));
        assert!(!is_readable(&queue));
    }

    #[test]
    fn a_program_that_wants_no_waiting_gets_eagain() {
        let queue = EventQueue::<u32>::new().unwrap();
        // SAFETY: flags of a descriptor that the queue owns.
        unsafe { libc::fcntl(queue.descriptor(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(queue.take(|_| {}), Err(libc::EAGAIN));
        queue.push(7);
        assert_eq!(queue.take(|_| {}), Ok(7));
    }
}
