//! A stack on a thread of its own.

mod served;
mod sleeper;

use crate::route::Routes;
use crate::{LocalAddress, ResolveError, Stack, StackError};
use ringside_clock::Clock;
use ringside_config::Within;
use ringside_pmd::Birth;
use ringside_pmd::rdma::Destination;
use ringside_pmd::worker::{
    Handle, Policy, Polled, Request, SendError, Statistics, StopError, Worker,
};
use served::Served;
use sleeper::{ARMED_SLEEP, BLIND_SLEEP, StackSleeper};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Requests of other threads that wait at once.
const REQUESTS: usize = 64;
/// The time without frames and requests after which the thread sleeps.
const IDLE: Duration = Duration::from_micros(100);
/// The time between two looks for what the stack does meanwhile.
const LOOK: Duration = Duration::from_micros(200);
/// The longest wait for the thread: for the end of a request or of the thread itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time in which a stack that ends delivers what was written to its TCP connections.
const LINGER: Duration = Duration::from_secs(2);
/// The virtual time that passes in a poll that finds nothing.
const STEP: Duration = Duration::from_micros(20);

/// A stack that answers, resolves and keeps its leases on a thread of its own.
pub struct StackThread {
    worker: Option<Worker<Served>>,
    /// of the worker, for resolvers
    handle: Arc<Handle<Served>>,
    routes: Arc<Routes>,
    clock: Arc<dyn Clock>,
    birth: Birth,
}

/// The way to a stack on another thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Resolver {
    /// goes with the thread, which may end long before this
    handle: Weak<Handle<Served>>,
    routes: Arc<Routes>,
    /// A child of a fork has the queue but not the thread.
    birth: Birth,
}

impl StackThread {
    /// Runs `stack` until this is dropped. It then still delivers, for 2 s at most, what was
    /// written to TCP connections, and tells routers and switches that the port leaves the groups
    /// that queue pairs are in.
    ///
    /// An idle thread sleeps until the interrupt of the stack's receive queue, if the function has
    /// a vector left for it; otherwise it looks for frames each millisecond.
    ///
    /// Errors: [`StackError::Thread`]; the stack is dropped.
    pub fn start(stack: Stack, clock: Arc<dyn Clock>) -> Result<Self, StackError> {
        let interrupt = stack.port().receive_interrupt(&[stack.queue()]);
        let interrupt = interrupt
            .inspect_err(|error| tracing::debug!(%error, "the IP stack polls"))
            .ok();
        let policy = Policy::BusyThenSleep {
            idle: IDLE,
            longest: match interrupt {
                Some(_) => ARMED_SLEEP,
                None => BLIND_SLEEP,
            },
            sleeper: Box::new(StackSleeper::default()),
        };
        let of_thread = Arc::clone(&clock);
        let poll = move |served: &mut Served| match guarded(&mut served.stack, |stack| {
            stack.poll(of_thread.now())
        }) {
            0 => {
                of_thread.pause(STEP);
                Polled::Idle
            }
            _ => Polled::Worked,
        };
        let groups = stack.groups();
        let routes = Arc::clone(&stack.routes);
        let make = move || Served { interrupt, stack };
        let worker = Worker::start_named("ringside-stack", policy, None, REQUESTS, make, poll);
        let worker = worker.map_err(|error| StackError::Thread(error.to_string()))?;
        let started = Self {
            handle: Arc::new(worker.handle()),
            worker: Some(worker),
            routes,
            clock,
            birth: Birth::now(),
        };
        if let Some(groups) = groups {
            let resolver = started.resolver();
            groups.notify_by(move || resolver.wake());
        }
        Ok(started)
    }

    /// A handle for other threads.
    #[must_use]
    pub fn resolver(&self) -> Resolver {
        Resolver {
            handle: Arc::downgrade(&self.handle),
            routes: Arc::clone(&self.routes),
            birth: self.birth,
        }
    }

    /// The polls, requests and sleeps of the thread so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.handle.statistics()
    }

    /// True once the thread has ended by a panic: the stack answers nothing more, and another one
    /// can be started in its place. Does not wait. False in a child of a fork, which does not have
    /// the thread.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        let is_stopped = || matches!(self.handle.send(|_| {}), Err(SendError::Stopped(_)));
        self.birth.is_here() && is_stopped()
    }

    /// Ends the thread and gives the stack back; `None` if it panicked or did not end in about a
    /// minute, and in a child of a fork, which does not have the thread.
    pub fn stop(mut self) -> Option<Stack> {
        self.end()
    }

    fn end(&mut self) -> Option<Stack> {
        if !self.birth.is_here() {
            // In a child by fork: the thread stayed in the process that started it.
            std::mem::forget(self.worker.take());
            return None;
        }
        let served = match self.worker.take()?.stop(PATIENCE) {
            Ok(served) => served,
            Err(StopError::Panicked { .. }) => return None,
            Err(error @ StopError::Late { .. }) => {
                tracing::error!(%error, "the IP stack's thread is given up");
                return None;
            }
        };
        let Served {
            interrupt,
            mut stack,
        } = served;
        drop(interrupt);
        let leave = AssertUnwindSafe(|| take_leave(&mut stack, &*self.clock));
        match catch_unwind(leave) {
            Ok(()) => Some(stack),
            Err(_) => {
                tracing::error!("the IP stack panicked while its connections ended");
                None
            }
        }
    }
}

impl std::fmt::Debug for StackThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackThread")
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

impl Drop for StackThread {
    fn drop(&mut self) {
        let Some(mut stack) = self.end() else {
            return;
        };
        let leave = AssertUnwindSafe(|| leave_groups(&mut stack, &*self.clock));
        if catch_unwind(leave).is_err() {
            tracing::error!("the IP stack panicked while it left its groups");
        }
        drop(stack.into_queues());
    }
}

/// Calls `work`. If it panics, the thread ends: then the stack's connections and listeners end
/// first, so that no program waits for them.
fn guarded<T>(stack: &mut Stack, work: impl FnOnce(&mut Stack) -> T) -> T {
    catch_unwind(AssertUnwindSafe(|| work(stack))).unwrap_or_else(|panic| {
        stack.end_tcp();
        resume_unwind(panic)
    })
}

/// Delivers what programs have written to connections before they dropped them, and resets the
/// connections that they still have.
fn take_leave(stack: &mut Stack, clock: &dyn Clock) {
    let end = clock.now().plus(LINGER);
    stack.end_tcp();
    while stack.is_ending_tcp() && clock.now() < end {
        if stack.poll(clock.now()) == 0 {
            // A virtual clock moves by as much as real time passes.
            clock.pause(LOOK);
            std::thread::sleep(LOOK);
        }
    }
}

/// Reports departures of all groups, and waits until the device has sent them.
fn leave_groups(stack: &mut Stack, clock: &dyn Clock) {
    let end = clock.now().plus(LINGER);
    while !stack.leave_groups(clock.now()) && clock.now() < end {
        clock.pause(LOOK);
        std::thread::sleep(LOOK);
    }
}

/// The error of a question to which the stack's thread has not answered.
fn without_answer(error: StackError) -> ResolveError {
    match error {
        StackError::Late { limit } => ResolveError::Late { limit },
        _ => ResolveError::Ended,
    }
}

impl Resolver {
    /// The stack's thread; `None` once it has ended, and in a child of a fork.
    fn thread(&self) -> Option<Arc<Handle<Served>>> {
        self.handle.upgrade().filter(|_| self.birth.is_here())
    }

    /// Calls `look` on the stack's thread, and returns the result.
    ///
    /// Errors: [`StackError::Ended`], also in a child of a fork, which does not have the thread;
    /// [`StackError::Late`], after a minute: `look` may still be called.
    pub fn with<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Stack) -> T + Send + 'static,
    ) -> Result<T, StackError> {
        let thread = self.thread().ok_or(StackError::Ended)?;
        let begin = Instant::now();
        let (sender, receiver) = sync_channel(1);
        let mut request: Request<Served> = Box::new(move |served| {
            // A caller that has ended needs no result.
            let _ = sender.send(guarded(&mut served.stack, look));
        });
        while let Err(refused) = thread.send(request) {
            let SendError::Full(back) = refused else {
                return Err(StackError::Ended);
            };
            if begin.elapsed() >= PATIENCE {
                return Err(StackError::Late { limit: PATIENCE });
            }
            request = back.into_inner();
            std::thread::sleep(LOOK);
        }
        drop(thread);
        let left = PATIENCE.saturating_sub(begin.elapsed());
        receiver.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => StackError::Late { limit: PATIENCE },
            RecvTimeoutError::Disconnected => StackError::Ended,
        })
    }

    /// The own address that packets to a peer have: that of the network which holds the peer, else
    /// one that its router forwards; `None` without a way to the peer, and in a child of a fork.
    /// Does not ask the stack's thread.
    #[must_use]
    pub fn source_towards(&self, peer: IpAddr) -> Option<LocalAddress> {
        let is_here = self.birth.is_here();
        is_here.then(|| self.routes.source_towards(peer)).flatten()
    }

    /// The address that a DHCP server granted. Does not ask the stack's thread.
    ///
    /// Errors: [`StackError::Ended`], also in a child of a fork.
    pub fn leased(&self) -> Result<Option<LocalAddress>, StackError> {
        self.thread().ok_or(StackError::Ended)?;
        Ok(self.routes.leased())
    }

    /// Wakes the stack's thread, so that it polls at once. Does not wait.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread() {
            // An inbox that is full wakes it too, and a thread that has ended moves nothing.
            let _ = thread.send(|_| {});
        }
    }

    /// Announces the addresses again, see [`Stack::announce_again`]. Does not wait; a stack with
    /// too many requests of other threads, or that has ended, announces nothing.
    pub fn announce_again(&self, clock: &Arc<dyn Clock>) {
        let Some(thread) = self.thread() else {
            return;
        };
        let on_its_thread = Arc::clone(clock);
        let request = move |served: &mut Served| served.stack.announce_again(on_its_thread.now());
        if thread.send(request).is_err() {
            tracing::debug!("the addresses are not announced again");
        }
    }

    /// Has the stack tell routers and switches that the port leaves the groups of RDMA, for a
    /// process that ends without dropping the [`StackThread`]. The stack reports no groups from
    /// then on. Waits until the device has sent that, 2 s at most.
    pub fn leave_groups(&self, clock: &Arc<dyn Clock>) {
        let Some(thread) = self.thread() else {
            return;
        };
        let on_its_thread = Arc::clone(clock);
        let (sender, receiver) = sync_channel(1);
        let request = move |served: &mut Served| {
            guarded(&mut served.stack, |stack| {
                leave_groups(stack, &*on_its_thread);
            });
            // A caller that has waited long enough needs no result.
            let _ = sender.send(());
        };
        if thread.send(request).is_err() || receiver.recv_timeout(LINGER).is_err() {
            tracing::debug!("routers and switches may not know that groups were left");
        }
    }

    /// The route to an address; waits for the neighbour's answer for the time in the stack's
    /// settings.
    ///
    /// Control path. Errors: [`ResolveError`].
    pub fn resolve(
        &self,
        address: IpAddr,
        within: Within,
        clock: &Arc<dyn Clock>,
    ) -> Result<Destination, ResolveError> {
        loop {
            if let Some(found) = self.lookup(address, within, clock)? {
                return Ok(found);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The route to an address; `None` while the neighbour is being asked: look again later. See
    /// [`Stack::lookup`].
    ///
    /// Control path. Errors: [`ResolveError`].
    pub fn lookup(
        &self,
        address: IpAddr,
        within: Within,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Destination>, ResolveError> {
        let on_its_thread = Arc::clone(clock);
        let found = self.with(move |stack| stack.lookup(address, within, on_its_thread.now()));
        found.map_err(without_answer)?
    }

    /// As [`Self::lookup`], for many addresses in one request to the stack's thread. The results
    /// are in the order of the addresses.
    ///
    /// Control path. Errors: [`ResolveError`], of an address; of all of them if the thread has
    /// ended.
    pub fn lookup_all(
        &self,
        addresses: Vec<(IpAddr, Within)>,
        clock: &Arc<dyn Clock>,
    ) -> Vec<Result<Option<Destination>, ResolveError>> {
        let count = addresses.len();
        let on_its_thread = Arc::clone(clock);
        let found = self.with(move |stack| {
            let now = on_its_thread.now();
            let each = addresses.into_iter();
            each.map(|(address, within)| stack.lookup(address, within, now))
                .collect()
        });
        found.unwrap_or_else(|error| {
            let error = without_answer(error);
            (0..count).map(|_| Err(error.clone())).collect()
        })
    }

    /// True if the stack resolves nothing more: its thread or its queues have ended. Does not wait
    /// for a neighbour: no host has the address that it looks up.
    ///
    /// Control path.
    #[must_use]
    pub fn has_ended(&self, clock: &Arc<dyn Clock>) -> bool {
        let unspecified = IpAddr::from([0, 0, 0, 0]);
        matches!(
            self.lookup(unspecified, Within::All, clock),
            Err(ResolveError::OutOfService | ResolveError::Ended)
        )
    }
}
