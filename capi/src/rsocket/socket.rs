//! Stream sockets: their phases, and waiting for them.

use super::arrivals::Arrivals;
use super::bell::{Bell, Sleep};
use super::directions::Directions;
use super::link::{Link, News, Sizes};
use super::turns::Turns;
use super::wire::{Greeting, Message};
use crate::channel::last_error;
use crate::cm::abi::{event, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use crate::cm::{
    abandon, retire, ringside_rdma_ack_cm_event, ringside_rdma_connect,
    ringside_rdma_create_event_channel, ringside_rdma_create_id,
    ringside_rdma_destroy_event_channel, ringside_rdma_destroy_id, ringside_rdma_disconnect,
    ringside_rdma_get_cm_event, ringside_rdma_resolve_route, space,
};
use crate::device::lock;
use crate::giving_way::MaySleep;
use crate::signals::Held;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longest wait between two looks: bounds what a lost wakeup costs.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// The time for which a call polls completions before it sleeps.
pub(super) const SPIN: Duration = Duration::from_micros(10);
/// Silence after which a call that waits asks whether the peer is still there.
const SILENCE: Duration = Duration::from_secs(2);
/// Longest wait of a close for the peer to take what was sent.
const FLUSH: Duration = Duration::from_secs(10);
/// The same for a socket that was closed by close(2), for which a call for another one waits.
const FLUSH_DISPLACED: Duration = Duration::from_millis(100);

/// Options that are kept for the program, or used when it connects.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) is_nonblocking: bool,
    pub(super) status_flags: c_int,
    pub(super) descriptor_flags: c_int,
    pub(super) sizes: Sizes,
    pub(super) keep_alive_seconds: u32,
    pub(super) type_of_service: c_int,
    /// longest wait of a receive, and of a send
    pub(super) receive_wait: Option<Duration>,
    pub(super) send_wait: Option<Duration>,
    /// level and number of options that are on
    pub(super) on: Vec<(c_int, c_int)>,
}

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Made,
    Listening,
    /// address, route or connection are on their way
    Connecting,
    /// the peer has not confirmed yet
    Accepting,
    Connected {
        reads: bool,
        writes: bool,
    },
    /// ended in order, by either side
    Ended,
    /// an errno value, which calls give
    Failed(c_int),
}

/// State that calls change.
pub(super) struct Core {
    pub(super) phase: Phase,
    /// for `SO_ERROR`
    pub(super) error: c_int,
    pub(super) link: Option<Link>,
    pub(super) options: Options,
    /// the program has ended its direction, also after the connection ended
    pub(super) writes_ended: bool,
    /// news from before the connection stood
    early: Option<News>,
    pub(super) turns: Turns,
    pub(super) bell: Bell,
    heard: Instant,
    /// of a listener
    pub(super) arrivals: Arrivals<Socket>,
}

/// A stream socket.
pub(super) struct Socket {
    pub(super) channel: *mut rdma_event_channel,
    pub(super) id: *mut rdma_cm_id,
    pub(super) descriptor: c_int,
    pub(super) family: c_int,
    core: Mutex<Core>,
}

// SAFETY: the pointers are to objects of the connection manager that belong to this socket alone;
// they are used under the lock of `core`, or by calls that are safe for threads.
unsafe impl Send for Socket {}
// SAFETY: as above.
unsafe impl Sync for Socket {}
// SAFETY: it is behind the socket's lock.
unsafe impl Send for Core {}

impl Socket {
    /// A socket without address. Errors: an errno value.
    pub(super) fn make(family: c_int, options: Options) -> Result<Self, c_int> {
        let channel = ringside_rdma_create_event_channel();
        if channel.is_null() {
            return Err(last_error());
        }
        let mut id = std::ptr::null_mut();
        let nothing: *mut c_void = std::ptr::null_mut();
        // SAFETY: the channel that was just made; a live place.
        let made = unsafe { ringside_rdma_create_id(channel, &raw mut id, nothing, space::TCP) };
        if made != 0 {
            let error = last_error();
            // SAFETY: it has no id.
            unsafe { ringside_rdma_destroy_event_channel(channel) };
            return Err(error);
        }
        // SAFETY: just made; an own name without address has the socket's family.
        unsafe { (*id).route.addr.src_storage.ss_family = family as libc::sa_family_t };
        Ok(Self::of(channel, id, Phase::Made, family, options))
    }

    /// A socket of an id and its own channel, which it owns from now on.
    pub(super) fn of(
        channel: *mut rdma_event_channel,
        id: *mut rdma_cm_id,
        phase: Phase,
        family: c_int,
        options: Options,
    ) -> Self {
        // SAFETY: the caller's channel.
        let descriptor = unsafe { (*channel).fd };
        // SAFETY: its descriptor. Calls wait by themselves.
        unsafe { libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK) };
        Self {
            channel,
            id,
            descriptor,
            family,
            core: Mutex::new(Core {
                phase,
                error: 0,
                link: None,
                options,
                writes_ended: false,
                early: None,
                turns: Turns::default(),
                bell: Bell::default(),
                heard: Instant::now(),
                arrivals: Arrivals::new(),
            }),
        }
    }

    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// Takes what has happened: events of the connection manager and completions.
    pub(super) fn progress(&self, core: &mut Core) {
        if core.phase != Phase::Listening {
            while let Some(read) = self.take_event() {
                // SAFETY: just read; acknowledged below.
                self.heard(core, unsafe { &*read });
                // SAFETY: as above.
                unsafe { ringside_rdma_ack_cm_event(read) };
            }
        }
        core.poll();
    }

    /// The next event of the connection manager; null descriptors never wait.
    pub(super) fn take_event(&self) -> Option<*mut rdma_cm_event> {
        let mut read = std::ptr::null_mut();
        // SAFETY: the socket's channel, which does not wait; a live place.
        let result = unsafe { ringside_rdma_get_cm_event(self.channel, &raw mut read) };
        (result == 0).then_some(read)
    }

    fn heard(&self, core: &mut Core, read: &rdma_cm_event) {
        core.tell();
        core.heard = Instant::now();
        let is_opening = matches!(core.phase, Phase::Connecting | Phase::Accepting);
        match read.event {
            event::ADDR_RESOLVED if is_opening => {
                // SAFETY: the socket's id has an address now.
                if unsafe { ringside_rdma_resolve_route(self.id, 0) } != 0 {
                    core.fail(last_error());
                }
            }
            event::ROUTE_RESOLVED if is_opening => {
                if let Err(error) = self.ask(core) {
                    core.fail(error);
                }
            }
            event::ESTABLISHED if core.phase == Phase::Connecting => core.established(read),
            event::ESTABLISHED if core.phase == Phase::Accepting => core.is_connected(),
            event::REJECTED if core.phase == Phase::Connecting => core.fail(libc::ECONNREFUSED),
            // It ended before it knew that the connection stood.
            event::REJECTED => core.fail(libc::ECONNRESET),
            event::DISCONNECTED => {
                // What was acknowledged before is here: it is taken first.
                core.poll();
                core.end();
                // SAFETY: the socket's id; answers the peer.
                unsafe { ringside_rdma_disconnect(self.id) };
            }
            event::TIMEWAIT_EXIT => {}
            event::DEVICE_REMOVAL if core.phase == Phase::Made => {}
            _ if read.status < 0 => core.fail(-read.status),
            _ => core.fail(libc::ECONNABORTED),
        }
    }

    /// Asks the peer for a connection. The id has a route.
    fn ask(&self, core: &mut Core) -> Result<(), c_int> {
        // SAFETY: the socket's id has a route and no queue pair, and outlives the link.
        let link = unsafe { Link::make(self.id, core.options.sizes) }?;
        let greeting = link.greeting().bytes();
        core.link = Some(link);
        let wanted = rdma_conn_param {
            private_data: greeting.as_ptr().cast(),
            private_data_len: greeting.len() as u8,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: 1,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: 0,
            qp_num: 0,
        };
        // SAFETY: the socket's id; live parameters.
        match unsafe { ringside_rdma_connect(self.id, &raw const wanted) } {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }

    /// Waits until `is_ready`, a limit, or the end of the connection makes it so. Errors: `EAGAIN`
    /// without waiting, `ETIMEDOUT` at the limit, `EINTR` after a handler without `SA_RESTART`.
    pub(super) fn wait<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        waits: bool,
        limit: Option<Instant>,
        mut is_ready: impl FnMut(&mut Core) -> bool,
    ) -> Result<MutexGuard<'a, Core>, c_int> {
        let _sleeps = waits.then(MaySleep::begin);
        let began = Instant::now();
        let mut held = None;
        let mut is_interrupted = false;
        loop {
            self.progress(&mut core);
            if is_ready(&mut core) {
                return Ok(core);
            }
            if !waits {
                // Programs that look again and again never wait here.
                core.ask_for_life(began);
                return Err(libc::EAGAIN);
            }
            if is_interrupted {
                return Err(libc::EINTR);
            }
            let now = Instant::now();
            if limit.is_some_and(|limit| now > limit) {
                return Err(libc::ETIMEDOUT);
            }
            core.ask_for_life(now);
            if now < began + SPIN || core.link.as_mut().is_some_and(Link::arm) {
                continue;
            }
            let held = held.get_or_insert_with(Held::new);
            (core, is_interrupted) = self.sleep(core, held);
        }
    }

    /// The same for a call that signals do not end.
    fn wait_through(
        &self,
        limit: Instant,
        is_ready: impl Fn(&mut Core) -> bool,
    ) -> Result<MutexGuard<'_, Core>, c_int> {
        loop {
            match self.wait(self.core(), true, Some(limit), &is_ready) {
                Err(libc::EINTR) => {}
                result => return result,
            }
        }
    }

    /// Sleeps until an event, or a little while. True if a signal ends the call.
    ///
    /// Each call that sleeps waits for all events of the socket, and rings for the others with the
    /// one that it takes. The lock is held since the call has looked: what happens after that
    /// wakes it.
    fn sleep<'a>(
        &'a self,
        core: MutexGuard<'a, Core>,
        held: &Held,
    ) -> (MutexGuard<'a, Core>, bool) {
        let link = core.link.as_ref().map(Link::descriptor);
        let asleep = Asleep::new(self, core);
        let descriptors = [Some(self.descriptor), link, asleep.sleep.bell];
        let mut sources =
            descriptors.map(|descriptor| self.source(descriptor.unwrap_or(self.descriptor)));
        // The link stays while a call uses the socket.
        let is_interrupted = held.sleep(&mut sources, LOOK);
        drop(asleep);
        (self.core(), is_interrupted)
    }

    fn source(&self, fd: c_int) -> libc::pollfd {
        libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }
    }

    /// Waits until the connection stands. Errors: `EAGAIN` while it does not and the call must not
    /// wait, else why it never will.
    pub(super) fn connected<'a>(
        &'a self,
        core: MutexGuard<'a, Core>,
        waits: bool,
    ) -> Result<MutexGuard<'a, Core>, c_int> {
        let is_open = |core: &mut Core| !matches!(core.phase, Phase::Connecting | Phase::Accepting);
        let core = self.wait(core, waits, None, is_open)?;
        match core.phase {
            Phase::Made | Phase::Listening => Err(libc::ENOTCONN),
            _ => Ok(core),
        }
    }

    /// The program closed it: calls that wait in other threads come back.
    pub(super) fn close(&self) {
        let mut core = self.core();
        core.end();
        core.tell();
        let arrivals = std::mem::take(&mut core.arrivals.waiting);
        drop(core);
        // Connections that were not accepted end here.
        drop(arrivals);
    }

    /// The program closed it by close(2): the peer is told, and the port is free. The descriptor
    /// has another owner. The socket must not be dropped after this.
    pub(super) fn retire(&self) {
        // SAFETY: the socket's own, which lives on.
        unsafe { abandon(self.channel) };
        let limit = Instant::now() + FLUSH_DISPLACED;
        if let Err(error) = self.shut_until(Directions::Both, limit) {
            tracing::debug!(error, "a socket was closed without a farewell");
        }
        self.close();
        // SAFETY: the socket's id, which lives on.
        unsafe { retire(self.id) };
    }

    /// Ends one direction or both, and waits until the peer has what was sent.
    pub(super) fn shut(&self, ending: Directions) -> Result<(), c_int> {
        self.shut_until(ending, Instant::now() + FLUSH)
    }

    fn shut_until(&self, ending: Directions, limit: Instant) -> Result<(), c_int> {
        let mut core = self.core();
        self.progress(&mut core);
        if core.phase == Phase::Accepting {
            // The peer confirms in a moment: without that there is no end in order. rdma-core's
            // raccept waits for it itself.
            drop(core);
            core = self.wait_through(limit, |core| core.phase != Phase::Accepting)?;
        }
        let Phase::Connected { reads, writes } = core.phase else {
            // Without a connection there is nothing to end, as for rdma-core.
            return Ok(());
        };
        if !reads && !writes {
            return Ok(());
        }
        let reads = reads && !ending.has_reads();
        let writes = writes && !ending.has_writes();
        core.phase = Phase::Connected { reads, writes };
        core.writes_ended |= ending.has_writes();
        core.tell();
        let message = match (reads, writes) {
            (false, false) => Message::Disconnect,
            (true, false) if ending.has_writes() => Message::Shutdown,
            _ => return Ok(()),
        };
        let can_tell = |core: &mut Core| core.is_over() || core.link_is(Link::can_control);
        drop(core);
        let mut core = self.wait_through(limit, can_tell)?;
        if !core.is_over()
            && let Some(link) = &mut core.link
        {
            link.control(message)?;
        }
        let all_sent = |core: &mut Core| core.is_over() || core.link_is(Link::is_idle);
        drop(core);
        self.wait_through(limit, all_sent).map(drop)
    }
}

/// A call that sleeps; it wakes also if its thread is cancelled.
struct Asleep<'a> {
    socket: &'a Socket,
    sleep: Sleep,
}

impl<'a> Asleep<'a> {
    fn new(socket: &'a Socket, mut core: MutexGuard<'a, Core>) -> Self {
        let sleep = core.enter();
        Self { socket, sleep }
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.socket.core().leave(&self.sleep);
    }
}

impl Core {
    /// A call goes to sleep. [`Self::leave`] follows.
    pub(super) fn enter(&mut self) -> Sleep {
        self.bell.enter()
    }

    /// Tells the calls that sleep that something has changed.
    pub(super) fn tell(&mut self) {
        self.bell.ring();
    }

    /// The library's thread takes events of the socket from now on, or no longer.
    pub(super) const fn share(&mut self, is_shared: bool) {
        self.bell.is_shared = is_shared;
    }

    /// True while the library's thread takes events of the socket.
    pub(super) const fn is_shared(&self) -> bool {
        self.bell.is_shared
    }

    /// A call has woken. Takes the event; the others that sleep look then. True if it was there.
    pub(super) fn leave(&mut self, sleep: &Sleep) -> bool {
        let is_taken = self.take_event();
        self.bell.leave(sleep, is_taken);
        is_taken
    }

    /// Takes completions, and tells the peer what it may send.
    fn poll(&mut self) {
        let Some(link) = &mut self.link else {
            return;
        };
        let mut news = link.poll();
        if matches!(self.phase, Phase::Connected { .. })
            && news.is_none()
            && let Err(error) = link.give_credits()
        {
            news = Some(News::Failed(error));
        }
        let Some(news) = news else {
            return;
        };
        self.tell();
        self.process(news);
    }

    /// Takes news of the link. The peer's may come before the connection manager says that the
    /// connection stands: they are kept until then.
    fn process(&mut self, news: News) {
        match (news, self.phase) {
            (_, Phase::Connecting | Phase::Accepting) => {
                self.early = Some(News::later(self.early, news));
            }
            (News::Shutdown, Phase::Connected { writes: true, .. }) => {
                self.phase = Phase::Connected {
                    reads: false,
                    writes: true,
                };
            }
            (News::Shutdown | News::Disconnect, Phase::Connected { .. }) => self.end(),
            (News::Failed(error), Phase::Connected { .. }) => self.fail(error),
            _ => {}
        }
    }

    fn is_connected(&mut self) {
        self.phase = Phase::Connected {
            reads: true,
            writes: true,
        };
        if let Some(news) = self.early.take() {
            self.process(news);
        }
    }

    fn established(&mut self, read: &rdma_cm_event) {
        // SAFETY: an event of a connection; its private data lives as long as it.
        let greeting = unsafe {
            let given = read.param.conn;
            greeting(given.private_data, given.private_data_len)
        };
        match (greeting, &mut self.link) {
            (Some(greeting), Some(link)) => {
                link.begin(greeting);
                self.is_connected();
            }
            _ => self.fail(libc::EPROTONOSUPPORT),
        }
    }

    pub(super) fn fail(&mut self, error: c_int) {
        tracing::debug!(error, phase = ?self.phase, "a socket failed");
        if !self.is_over() {
            self.phase = Phase::Failed(error);
            self.error = error;
        }
    }

    fn end(&mut self) {
        if !self.is_over() {
            self.phase = Phase::Ended;
        }
    }

    /// True once nothing can be sent or received any more.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended | Phase::Failed(_))
    }

    /// True while the connection stands and the link says so.
    pub(super) fn link_is(&self, what: impl Fn(&Link) -> bool) -> bool {
        self.link.as_ref().is_some_and(what)
    }

    pub(super) fn has_data(&self) -> bool {
        self.link_is(|link| link.incoming.has_data())
    }

    /// True if a receive gives something now: data, the end, or a failure.
    pub(super) fn can_receive(&self) -> bool {
        self.has_data() || !matches!(self.phase, Phase::Connected { reads: true, .. })
    }

    pub(super) const fn can_write(&self) -> bool {
        matches!(self.phase, Phase::Connected { writes: true, .. })
    }

    /// Takes the event of completions, which may have news for other calls. True if there was one.
    pub(super) fn take_event(&mut self) -> bool {
        self.link.as_mut().is_some_and(Link::take_event)
    }

    /// Asks whether the peer is still there, after a silence.
    pub(super) fn ask_for_life(&mut self, now: Instant) {
        if now < self.heard + SILENCE || !matches!(self.phase, Phase::Connected { .. }) {
            return;
        }
        self.heard = now;
        if let Some(link) = &mut self.link
            && let Err(error) = link.probe()
        {
            self.fail(error);
        }
    }
}

/// The private data of the peer.
///
/// # Safety
/// `data` is null or has `length` bytes.
pub(super) unsafe fn greeting(data: *const c_void, length: u8) -> Option<Greeting> {
    if data.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Greeting::of(unsafe { std::slice::from_raw_parts(data.cast(), length.into()) })
}

impl Drop for Socket {
    fn drop(&mut self) {
        let core = self.core.get_mut();
        let core = core.unwrap_or_else(std::sync::PoisonError::into_inner);
        // The queue pair goes before its id.
        core.link = None;
        // SAFETY: the socket's own, which no call uses any more.
        unsafe {
            ringside_rdma_destroy_id(self.id);
            ringside_rdma_destroy_event_channel(self.channel);
        }
    }
}
