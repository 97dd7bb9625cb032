//! `rpoll` and `rselect`: sockets and other descriptors together.

use super::bell::Sleep;
use super::datagram::Datagram;
use super::link::Link;
use super::socket::{LOOK, Phase, SPIN, Socket};
use super::table::{self, Entry};
use crate::channel::last_error;
use crate::giving_way::MaySleep;
use crate::signals::Held;
use std::ffi::{c_int, c_short};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Socket {
    /// The requested events for which the socket is ready; hang-up and errors are always reported.
    fn ready(&self, asked: c_short) -> c_short {
        let mut core = self.core();
        self.progress(&mut core);
        core.ask_for_life(Instant::now());
        let both = asked & (libc::POLLIN | libc::POLLOUT);
        match core.phase {
            // What was received before the end is read first: many programs take a hang-up for the
            // end of everything. One that does not wait for data is told at once.
            Phase::Ended if core.has_data() && asked & libc::POLLIN != 0 => libc::POLLIN,
            Phase::Made => (asked & libc::POLLIN) | libc::POLLHUP,
            // A send returns at once, too: with the error that names the end.
            Phase::Ended => both | (asked & libc::POLLRDHUP) | libc::POLLHUP,
            Phase::Failed(_) => both | libc::POLLERR,
            Phase::Connecting | Phase::Accepting => 0,
            Phase::Listening if core.arrivals.has_one() => asked & libc::POLLIN,
            Phase::Listening => 0,
            Phase::Connected { reads, writes } => {
                let mut found = if reads { 0 } else { libc::POLLRDHUP };
                if core.can_receive() {
                    found |= libc::POLLIN;
                }
                let can_send = core.can_write() && core.link.as_mut().is_some_and(Link::can_send);
                if !writes || can_send {
                    found |= libc::POLLOUT;
                }
                found & asked
            }
        }
    }

    /// The events of the connection manager's descriptor: `POLLIN` if one waits.
    pub(super) fn has_event(&self) -> c_short {
        let mut source = entry(self.descriptor, libc::POLLIN);
        // SAFETY: one live entry.
        unsafe { libc::poll(&raw mut source, 1, 0) };
        source.revents
    }

    /// Adds the descriptors that report events. True if completions must be polled once more, and
    /// the call that sleeps.
    fn arm(&self, asked: c_short, into: &mut Vec<libc::pollfd>) -> (bool, Sleep) {
        let mut core = self.core();
        let sleep = core.enter();
        into.extend(sleep.bell.map(|bell| entry(bell, libc::POLLIN)));
        if core.phase == Phase::Listening {
            // The library's thread takes its events, and rings.
            let has_come = asked & libc::POLLIN != 0 && core.arrivals.has_one();
            return (has_come, sleep);
        }
        into.push(entry(self.descriptor, libc::POLLIN));
        let Some(link) = &mut core.link else {
            return (false, sleep);
        };
        into.push(entry(link.descriptor(), libc::POLLIN));
        (link.arm(), sleep)
    }
}

impl Entry {
    /// The requested events for which the socket is ready, and errors and hang-ups.
    pub(super) fn ready(&self, asked: c_short) -> c_short {
        match self {
            Self::Stream(stream) => stream.ready(asked),
            Self::Datagram(datagram) => datagram.ready(asked),
        }
    }
}

/// A socket on which a call sleeps.
enum Asleep {
    Stream(Arc<Socket>, Sleep),
    Datagram(Arc<Datagram>),
}

impl Asleep {
    /// True if it took an event, which other calls that sleep may have waited for: those of the
    /// same socket know.
    fn rouse(self) -> bool {
        match self {
            Self::Stream(stream, sleep) => stream.core().leave(&sleep),
            Self::Datagram(datagram) => {
                datagram.rouse();
                false
            }
        }
    }
}

/// Sockets that are armed for a sleep. They are roused after it, also if the thread is cancelled.
#[derive(Default)]
pub(super) struct Armed {
    sockets: Vec<Asleep>,
}

impl Armed {
    /// Adds the descriptors that report events of a socket. True if it must be looked at once more.
    pub(super) fn add(
        &mut self,
        socket: &Entry,
        asked: c_short,
        sources: &mut Vec<libc::pollfd>,
    ) -> bool {
        let (is_new, asleep) = match socket {
            Entry::Stream(stream) => {
                let (is_new, sleep) = stream.arm(asked, sources);
                (is_new, Asleep::Stream(Arc::clone(stream), sleep))
            }
            Entry::Datagram(datagram) => {
                let is_new = datagram.arm(asked, sources);
                (is_new, Asleep::Datagram(Arc::clone(datagram)))
            }
        };
        self.sockets.push(asleep);
        is_new
    }

    /// Ends the sleep. True if an event was taken that other calls may wait for.
    pub(super) fn rouse(&mut self) -> bool {
        let roused = self.sockets.drain(..);
        roused.fold(false, |is_taken, socket| socket.rouse() | is_taken)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.rouse();
    }
}

pub(super) const fn entry(fd: c_int, events: c_short) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// Looks at each entry once; returns how many are ready, or an errno value.
fn look(
    entries: &mut [libc::pollfd],
    sockets: &[Option<Entry>],
    others: &mut Vec<libc::pollfd>,
) -> Result<c_int, c_int> {
    others.clear();
    let mut count = 0;
    for (wanted, socket) in entries.iter_mut().zip(sockets) {
        match socket {
            Some(socket) => {
                wanted.revents = socket.ready(wanted.events);
                count += c_int::from(wanted.revents != 0);
            }
            None => others.push(entry(wanted.fd, wanted.events)),
        }
    }
    if others.is_empty() {
        return Ok(count);
    }
    // SAFETY: live entries.
    let found = unsafe { libc::poll(others.as_mut_ptr(), others.len() as libc::nfds_t, 0) };
    if found < 0 {
        return Err(last_error());
    }
    let plain = entries.iter_mut().zip(sockets);
    let plain = plain.filter_map(|(wanted, socket)| socket.is_none().then_some(wanted));
    for (wanted, other) in plain.zip(others.iter()) {
        wanted.revents = other.revents;
    }
    Ok(count + found)
}

/// The time that a call may wait.
pub(super) struct Patience {
    began: Instant,
    limit: Option<Duration>,
}

impl Patience {
    /// Begins now; without a limit if `milliseconds` is negative.
    pub(super) fn new(milliseconds: c_int) -> Self {
        let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        Self::within(limit)
    }

    /// Begins now.
    pub(super) fn within(limit: Option<Duration>) -> Self {
        Self {
            began: Instant::now(),
            limit,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.limit
            .is_some_and(|limit| self.began.elapsed() >= limit)
    }

    /// True at first: the call looks without sleeping.
    pub(super) fn spins(&self) -> bool {
        self.began.elapsed() < SPIN
    }

    /// Longest time for the next sleep.
    pub(super) fn left(&self) -> Duration {
        let left = |limit: Duration| limit.saturating_sub(self.began.elapsed()).min(LOOK);
        self.limit.map_or(LOOK, left)
    }
}

/// Waits until an entry is ready; returns how many are, 0 at the limit, or an errno value.
pub(super) fn wait(entries: &mut [libc::pollfd], patience: &Patience) -> Result<c_int, c_int> {
    let _sleeps = (!patience.is_over()).then(MaySleep::begin);
    let mut held = None;
    let sockets: Vec<Option<Entry>> = entries
        .iter()
        .map(|wanted| table::find(wanted.fd))
        .collect();
    let mut others = Vec::with_capacity(entries.len());
    loop {
        let count = look(entries, &sockets, &mut others)?;
        if count > 0 || patience.is_over() {
            return Ok(count);
        }
        if patience.spins() {
            continue;
        }
        let mut sources = others.clone();
        let mut armed = Armed::default();
        let mut is_new = false;
        for (wanted, socket) in entries.iter().zip(&sockets) {
            if let Some(socket) = socket {
                is_new |= armed.add(socket, wanted.events, &mut sources);
            }
        }
        let held = held.get_or_insert_with(Held::new);
        let slept = if is_new {
            Ok(0)
        } else {
            held.poll(&mut sources, patience.left())
        };
        armed.rouse();
        slept?;
    }
}

/// One set of `rselect`, for the bits `events`.
pub(super) struct Set {
    pub(super) bits: *mut libc::fd_set,
    pub(super) events: c_short,
    /// the condition for keeping its bit
    pub(super) stays: c_short,
}

/// `select` over sockets and other descriptors. Returns the number of bits that stay.
///
/// # Safety
/// The sets are null or valid.
pub(super) unsafe fn select(
    count: c_int,
    sets: &[Set; 3],
    patience: &Patience,
) -> Result<c_int, c_int> {
    let limit_of_sets = c_int::try_from(libc::FD_SETSIZE).unwrap_or(c_int::MAX);
    if !(0..=limit_of_sets).contains(&count) {
        return Err(libc::EINVAL);
    }
    let mut entries = Vec::new();
    for fd in 0..count {
        let wanted = sets.iter().fold(0, |sum, set| {
            // SAFETY: the caller's promise; within the size of a set.
            let is_in = !set.bits.is_null() && unsafe { libc::FD_ISSET(fd, set.bits) };
            if is_in { sum | set.events } else { sum }
        });
        if wanted != 0 {
            entries.push(entry(fd, wanted));
        }
    }
    wait(&mut entries, patience)?;
    if entries
        .iter()
        .any(|found| found.revents & libc::POLLNVAL != 0)
    {
        return Err(libc::EBADF);
    }
    let mut bits = 0;
    for set in sets.iter().filter(|set| !set.bits.is_null()) {
        for found in &entries {
            // SAFETY: as above.
            unsafe {
                if libc::FD_ISSET(found.fd, set.bits) {
                    if found.revents & set.stays == 0 {
                        libc::FD_CLR(found.fd, set.bits);
                    } else {
                        bits += 1;
                    }
                }
            }
        }
    }
    Ok(bits)
}
