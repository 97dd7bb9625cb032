//! Datagram sockets: their state, waiting for them, and the calls that are no transfers.
//!
//! A socket is a queue pair for datagrams and a port of the connection manager's table. A peer's
//! queue pair is asked for by the connection manager's service resolution (SIDR), which its host
//! answers without its program; each datagram that arrives tells it, too.

mod open;
mod options;
mod pair;
mod peers;
mod transfer;
mod worker;

use super::directions::Directions;
use super::socket::{LOOK, Options, SPIN};
use crate::channel::last_error;
use crate::cm::datagrams::{self, Answer, Place, QuestionId};
use crate::cm::socket_address;
use crate::device::lock;
use crate::giving_way::MaySleep;
use crate::signals::Held;
use open::Open;
use pair::{Arrived, Pair};
use peers::Peers;
use std::collections::VecDeque;
use std::ffi::{c_int, c_short};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Longest wait of a close for what was sent to leave.
const FLUSH: Duration = Duration::from_secs(3);

/// The time for which a call may wait.
#[derive(Clone, Copy)]
enum Waits {
    Not,
    For(Duration),
    ForEver,
}

/// State that calls change.
struct Core {
    options: Options,
    open: Option<Open>,
    /// received and not read
    arrived: VecDeque<Arrived>,
    connected: Option<SocketAddr>,
    /// the device failed, with an errno value
    failed: Option<c_int>,
    reads_ended: bool,
    writes_ended: bool,
    is_closed: bool,
    /// its descriptor is another's now
    is_displaced: bool,
    /// calls that sleep, or are about to
    sleepers: usize,
}

/// A datagram socket.
pub(super) struct Datagram {
    family: c_int,
    /// readable while calls that sleep have to look
    kick: OwnedFd,
    core: Mutex<Core>,
    myself: Weak<Self>,
}

impl worker::Served for Datagram {
    fn answered(&self, asked: (SocketAddr, QuestionId), answer: Answer) {
        let mut core = self.core();
        let (from, _) = asked;
        if let Some(open) = &mut core.open
            && open.peers.answered(asked, answer, Instant::now())
        {
            let local = open.local_for(from).ok();
            if let Some(mac) = local.and_then(|own| datagrams::present_mac(own, from.ip())) {
                open.pair.follow(from.ip(), mac);
            }
        }
        self.kick(&core);
    }

    fn send_waiting(&self) -> bool {
        let mut core = self.core();
        let is_left = self.progress(&mut core);
        self.kick(&core);
        is_left
    }
}

/// A call that sleeps: it wakes up at the end, also if its thread is cancelled.
struct Sleeper<'socket>(&'socket Datagram);

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.rouse();
    }
}

impl Datagram {
    /// A socket without address. Errors: an errno value.
    pub(super) fn make(family: c_int, options: Options) -> Result<Arc<Self>, c_int> {
        // A program without a device learns it here.
        datagrams::shared()?;
        worker::start()?;
        // SAFETY: no memory is involved.
        let kick = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if kick < 0 {
            return Err(last_error());
        }
        Ok(Arc::new_cyclic(|myself| Self {
            family,
            // SAFETY: just made, for this owner alone.
            kick: unsafe { OwnedFd::from_raw_fd(kick) },
            core: Mutex::new(Core {
                options,
                open: None,
                arrived: VecDeque::new(),
                connected: None,
                failed: None,
                reads_ended: false,
                writes_ended: false,
                is_closed: false,
                is_displaced: false,
                sleepers: 0,
            }),
            myself: myself.clone(),
        }))
    }

    pub(super) fn descriptor(&self) -> c_int {
        self.kick.as_raw_fd()
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// True if an IPv6 socket does not use IPv4.
    fn family_only(&self, core: &Core) -> bool {
        let only = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        self.family == libc::AF_INET || core.options.is_on(only)
    }

    /// Checks an address of the program. Errors: `EAFNOSUPPORT`.
    fn checked(&self, core: &Core, address: Option<SocketAddr>) -> Result<SocketAddr, c_int> {
        let address = address.ok_or(libc::EAFNOSUPPORT)?;
        let fits = match self.family {
            libc::AF_INET => address.is_ipv4(),
            _ => address.is_ipv6() || !self.family_only(core),
        };
        if fits {
            Ok(address)
        } else {
            Err(libc::EAFNOSUPPORT)
        }
    }

    /// Gives the socket an address and a queue pair.
    fn open(&self, core: &mut Core, wanted: SocketAddr) -> Result<(), c_int> {
        let family_only = self.family_only(core);
        let mut place = Place::take(wanted, family_only)?;
        let pair = Pair::make(&core.options.sizes)?;
        place.serve(family_only, pair.service())?;
        core.open = Some(Open {
            place,
            pair,
            peers: Peers::new(),
        });
        Ok(())
    }

    /// The parts of the socket; one without an address gets a free port.
    fn opened<'a>(&self, core: &'a mut Core) -> Result<&'a mut Open, c_int> {
        if core.open.is_none() {
            let any: IpAddr = match self.family {
                libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
                _ => Ipv6Addr::UNSPECIFIED.into(),
            };
            self.open(core, SocketAddr::new(any, 0))?;
        }
        core.open.as_mut().ok_or(libc::ENOTCONN)
    }

    /// Errors: `EINVAL` if it has an address, and those of the address.
    pub(super) fn bind(&self, address: Option<SocketAddr>) -> Result<(), c_int> {
        let mut core = self.core();
        let address = self.checked(&core, address)?;
        if core.open.is_some() || core.is_closed {
            return Err(libc::EINVAL);
        }
        self.open(&mut core, address)
    }

    /// Names the peer to which datagrams go, and from which they are received; nothing ends that.
    pub(super) fn connect(&self, address: Option<SocketAddr>) -> Result<(), c_int> {
        let mut core = self.core();
        let Some(address) = address else {
            core.connected = None;
            return Ok(());
        };
        let address = datagrams::meant(self.checked(&core, Some(address))?)?;
        check_peer(address)?;
        datagrams::source_for(address.ip())?;
        self.opened(&mut core)?;
        core.connected = Some(address);
        // The first datagram need not wait for the answer.
        self.plan(&mut core, address, Instant::now()).map(drop)
    }

    /// Plans a datagram's way. Asks for the peer's queue pair if that is necessary.
    fn plan(
        &self,
        core: &mut Core,
        to: SocketAddr,
        now: Instant,
    ) -> Result<Option<datagrams::Service>, c_int> {
        let open = self.opened(core)?;
        let plan = open.peers.plan(to, now);
        if plan.asks {
            self.ask(open, to)?;
        }
        Ok(plan.service)
    }

    /// Asks for a peer's queue pair. The question before that ends.
    fn ask(&self, open: &mut Open, to: SocketAddr) -> Result<(), c_int> {
        open.end_questions();
        let socket = self.myself.clone();
        let tell = Box::new(move |question, answer| worker::bring(socket, (to, question), answer));
        let local = open.local_for(to);
        let asked = local.and_then(|local| open.place.ask(local, to, tell));
        let question = asked.inspect_err(|_| open.peers.not_asked(to))?;
        open.peers.asked(to, question);
        Ok(())
    }

    /// Takes what has arrived, and sends what has waited; asks again for peers that have not
    /// answered. True if some of that could not be sent yet.
    fn progress(&self, core: &mut Core) -> bool {
        let is_left = core.progress();
        if let Some(open) = &mut core.open
            && open.peers.waiting() > 0
        {
            for peer in open.peers.overdue(Instant::now()) {
                if let Err(error) = self.ask(open, peer) {
                    tracing::debug!(error, %peer, "the queue pair of a peer is not asked for");
                }
            }
        }
        is_left
    }

    /// Has the calls that sleep look.
    fn kick(&self, core: &Core) {
        if core.sleepers > 0 {
            self.write_kick(core);
        }
    }

    fn write_kick(&self, core: &Core) {
        if core.is_displaced {
            return;
        }
        let one = 1_u64;
        // SAFETY: eight bytes of a live value. It never fills: the value is one for each sleeper.
        unsafe { libc::write(self.descriptor(), (&raw const one).cast(), 8) };
    }

    /// A call wakes up. It takes the event of completions, and leaves word of it for the others.
    fn wake_up(&self, core: &mut Core) {
        core.sleepers -= 1;
        let is_taken = core
            .open
            .as_mut()
            .is_some_and(|open| open.pair.take_event());
        if core.sleepers > 0 {
            if is_taken {
                self.write_kick(core);
            }
        } else if !core.is_closed {
            let mut count = 0_u64;
            // SAFETY: eight bytes of a live value; the descriptor does not wait.
            unsafe { libc::read(self.descriptor(), (&raw mut count).cast(), 8) };
        }
    }

    /// Waits until `is_ready` gives a result, for as long as the call may. Errors: `EAGAIN` after
    /// that, `EBADF` once the socket is closed, `EINTR` after a handler without `SA_RESTART`, and
    /// the failure of the device.
    fn wait<'a, T>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        waits: Waits,
        mut is_ready: impl FnMut(&mut Core) -> Option<Result<T, c_int>>,
    ) -> Result<T, c_int> {
        let _sleeps = (!matches!(waits, Waits::Not)).then(MaySleep::begin);
        let began = Instant::now();
        let mut held = None;
        let mut is_interrupted = false;
        loop {
            if core.is_closed {
                return Err(libc::EBADF);
            }
            self.progress(&mut core);
            if let Some(result) = is_ready(&mut core) {
                return result;
            }
            if let Some(error) = core.failed {
                return Err(error);
            }
            let longest = match waits {
                Waits::Not => return Err(libc::EAGAIN),
                Waits::For(limit) => limit.saturating_sub(began.elapsed()),
                Waits::ForEver => LOOK,
            };
            if longest.is_zero() {
                return Err(libc::EAGAIN);
            }
            if is_interrupted {
                return Err(libc::EINTR);
            }
            let is_new = core.open.as_mut().is_some_and(|open| open.pair.arm());
            if is_new || Instant::now() < began + SPIN {
                continue;
            }
            core.sleepers += 1;
            let mut sources = Vec::with_capacity(2);
            self.sources(&core, &mut sources);
            drop(core);
            let sleeper = Sleeper(self);
            // The queue stays while a call uses the socket.
            let pause = longest.min(LOOK);
            is_interrupted = held
                .get_or_insert_with(Held::new)
                .sleep(&mut sources, pause);
            drop(sleeper);
            core = self.core();
        }
    }

    fn sources(&self, core: &Core, into: &mut Vec<libc::pollfd>) {
        let queue = core.open.as_ref().map(|open| open.pair.descriptor());
        for fd in [Some(self.descriptor()), queue].into_iter().flatten() {
            into.push(libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
        }
    }

    /// The requested events for which the socket is ready; errors are always reported.
    pub(super) fn ready(&self, asked: c_short) -> c_short {
        let mut core = self.core();
        self.progress(&mut core);
        core.ready(asked)
    }

    /// Adds the descriptors that report events, and counts the call as a sleeper until
    /// [`Self::rouse`]. True if the call must look once more before it sleeps.
    pub(super) fn arm(&self, asked: c_short, into: &mut Vec<libc::pollfd>) -> bool {
        let mut core = self.core();
        core.sleepers += 1;
        self.sources(&core, into);
        let is_new = core.open.as_mut().is_some_and(|open| open.pair.arm());
        is_new || core.ready(asked) != 0
    }

    /// A call that was counted by [`Self::arm`] wakes up.
    pub(super) fn rouse(&self) {
        self.wake_up(&mut self.core());
    }

    /// Ends one direction or both; calls that wait come back. Errors: `ENOTCONN`.
    pub(super) fn shut(&self, ending: Directions) -> Result<(), c_int> {
        let mut core = self.core();
        if core.connected.is_none() {
            return Err(libc::ENOTCONN);
        }
        core.reads_ended |= ending.has_reads();
        core.writes_ended |= ending.has_writes();
        self.kick(&core);
        Ok(())
    }

    /// The program closed it. Datagrams that were sent leave, also those that wait for the queue
    /// pair of their peer, which takes [`FLUSH`] at most; calls that wait come back.
    pub(super) fn close(&self) {
        let limit = Instant::now() + FLUSH;
        let sent = |core: &mut Core| {
            let is_done = core.open.as_ref().is_none_or(Open::is_idle);
            (is_done || Instant::now() > limit).then_some(Ok(()))
        };
        let closed = loop {
            match self.wait(self.core(), Waits::ForEver, sent) {
                Err(libc::EINTR) => {}
                result => break result,
            }
        };
        if let Err(error) = closed {
            tracing::debug!(error, "a datagram socket was closed with datagrams unsent");
        }
        let mut core = self.core();
        core.close();
        self.write_kick(&core);
    }

    /// The program closed it by close(2): its port is free, and peers that ask for it learn that.
    /// The descriptor has another owner. The socket must not be dropped after this.
    pub(super) fn retire(&self) {
        let mut core = self.core();
        core.is_displaced = true;
        core.close();
    }

    /// The own address, or nothing but the family before it has one.
    pub(super) fn own(&self) -> SocketAddr {
        let core = self.core();
        let any: IpAddr = match self.family {
            libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
            _ => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = core.open.as_ref().map(|open| open.place.local());
        let local = local.unwrap_or_else(|| SocketAddr::new(any, 0));
        // A connected socket sends from one address.
        let peer = core.connected.filter(|_| local.ip().is_unspecified());
        match peer.and_then(|peer| datagrams::source_for(peer.ip()).ok()) {
            Some(ip) => SocketAddr::new(ip, local.port()),
            None => local,
        }
    }

    /// The address of the peer. Errors: `ENOTCONN`.
    pub(super) fn peer(&self) -> Result<SocketAddr, c_int> {
        self.core().connected.ok_or(libc::ENOTCONN)
    }

    /// An address in the form of the socket's family.
    pub(super) fn shown(&self, address: SocketAddr) -> libc::sockaddr_storage {
        socket_address::shown_to(self.family, address)
    }
}

/// Errors: `EOPNOTSUPP` for groups, `EINVAL` for no port, `ENETUNREACH` for no address.
fn check_peer(address: SocketAddr) -> Result<(), c_int> {
    match (address.ip(), address.port()) {
        (ip, _) if ip.is_multicast() => Err(libc::EOPNOTSUPP),
        (_, 0) => Err(libc::EINVAL),
        (ip, _) if ip.is_unspecified() => Err(libc::ENETUNREACH),
        _ => Ok(()),
    }
}

impl Core {
    /// Takes what has arrived, and sends what has waited. True if some of that could not be sent
    /// yet.
    fn progress(&mut self) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let before = self.arrived.len();
        if let Err(error) = open.pair.poll(&mut self.arrived) {
            self.failed = Some(error);
        }
        let is_new = self.arrived.len() != before;
        if !is_new && open.peers.waiting() == 0 {
            return false;
        }
        let now = Instant::now();
        for datagram in self.arrived.range(before..) {
            open.peers.heard(datagram.from, datagram.service, now);
        }
        if let Some(peer) = self.connected
            && is_new
        {
            self.drop_strangers(peer, before);
        }
        let Some(open) = &mut self.open else {
            return false;
        };
        open.peers.expire(now);
        open.end_questions();
        open.peers.waiting() > 0 && open.send_waiting()
    }

    /// Ends the socket, but for its queue: a call that sleeps still uses that, and the last one
    /// takes it down.
    fn close(&mut self) {
        self.is_closed = true;
        self.arrived.clear();
        if let Some(open) = &mut self.open {
            open.place.end();
        }
    }

    /// A connected socket receives from its peer only. The first `kept` datagrams stay: they
    /// arrived before, and the program may have seen that there is one.
    fn drop_strangers(&mut self, peer: SocketAddr, kept: usize) {
        let Some(open) = &mut self.open else { return };
        let mut failed = None;
        let mut seen = 0;
        self.arrived.retain(|datagram| {
            seen += 1;
            let stays = seen <= kept || datagram.from == peer;
            if !stays && let Err(error) = open.pair.give_back(datagram) {
                failed = Some(error);
            }
            stays
        });
        self.failed = self.failed.or(failed);
    }

    /// True if a send does not wait; to any peer, unless the socket is connected.
    fn can_send(&self, open: &Open) -> bool {
        let has_room = |peer| self.writes_ended || open.peers.takes(peer, Instant::now());
        open.pair.can_send() && self.connected.is_none_or(has_room)
    }

    fn ready(&self, asked: c_short) -> c_short {
        if self.is_closed {
            return libc::POLLNVAL;
        }
        let mut found = 0;
        if !self.arrived.is_empty() || self.reads_ended {
            found |= libc::POLLIN;
        }
        if self.open.as_ref().is_none_or(|open| self.can_send(open)) {
            found |= libc::POLLOUT;
        }
        let failed = match self.failed {
            Some(_) => libc::POLLERR,
            None => 0,
        };
        (found & asked) | failed
    }
}
