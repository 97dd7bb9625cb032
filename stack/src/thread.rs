//! A stack on a thread of its own.

mod sleep;

use crate::{ResolveError, Stack, StackError};
use ringside_clock::Clock;
use ringside_config::Within;
use ringside_pmd::Birth;
use ringside_pmd::rdma::Destination;
use sleep::{Bell, IDLE, Inbox, Request, Sleeper};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests of other threads that wait at once.
const REQUESTS: usize = 64;
/// The time in which a stack that ends delivers what was written to its TCP connections.
const LINGER: Duration = Duration::from_secs(2);
/// The virtual time that passes in a poll that finds nothing.
const STEP: Duration = Duration::from_micros(20);

/// A stack that answers, resolves and keeps its leases on a thread of its own.
#[derive(Debug)]
pub struct StackThread {
    resolver: Resolver,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Stack>>,
    birth: Birth,
}

/// The way to a stack on another thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Resolver {
    requests: SyncSender<Request>,
    /// wakes the thread after a request; goes with the thread, which may end long before this
    bell: Weak<Bell>,
    /// A child of a fork has the queue but not the thread.
    birth: Birth,
}

impl StackThread {
    /// Runs `stack` until this is dropped. It then still delivers, for 2 s at most, what was
    /// written to TCP connections.
    ///
    /// An idle thread sleeps until the interrupt of the stack's receive queue, if the function has
    /// a vector left for it; otherwise it looks for frames each millisecond.
    ///
    /// Errors: [`StackError::Thread`]; the stack is dropped.
    pub fn start(stack: Stack, clock: Arc<dyn Clock>) -> Result<Self, StackError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (requests, receiver) = sync_channel(REQUESTS);
        let awaited = Arc::new(Bell::new()?);
        let bell = Arc::downgrade(&awaited);
        let sleeper = Sleeper::new(&stack);
        let inbox = Inbox {
            requests: receiver,
            bell: awaited,
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("ringside-stack".to_owned())
            .spawn(move || run(stack, sleeper, &*clock, &inbox))
            .map_err(|error| StackError::Thread(error.to_string()))?;
        let birth = Birth::now();
        Ok(Self {
            resolver: Resolver {
                requests,
                bell,
                birth,
            },
            stop,
            thread: Some(thread),
            birth,
        })
    }

    /// A handle for other threads.
    #[must_use]
    pub fn resolver(&self) -> Resolver {
        self.resolver.clone()
    }

    /// Ends the thread and gives the stack back; `None` if it panicked.
    pub fn stop(mut self) -> Option<Stack> {
        self.request_stop();
        self.thread.take()?.join().ok()
    }

    fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.resolver.ring();
    }
}

impl Drop for StackThread {
    fn drop(&mut self) {
        if !self.birth.is_here() {
            // In a child by fork: the thread stayed in the process that started it.
            std::mem::forget(self.thread.take());
            return;
        }
        self.request_stop();
        if let Some(thread) = self.thread.take()
            && let Ok(stack) = thread.join()
        {
            drop(stack.into_queues());
        }
    }
}

fn run(mut stack: Stack, mut sleeper: Sleeper, clock: &dyn Clock, inbox: &Inbox) -> Stack {
    let mut woken_by = None;
    while !inbox.stop.load(Ordering::Acquire) {
        let arrived = stack.poll(clock.now());
        let waiting = inbox.requests.try_iter().take(REQUESTS);
        let mut asked = 0;
        for request in woken_by.take().into_iter().chain(waiting) {
            request(&mut stack);
            asked += 1;
        }
        if arrived > 0 {
            sleeper.frames_came(&mut stack);
        } else if asked > 0 {
            sleeper.was_asked();
        }
        if arrived + asked > 0 {
            continue;
        }
        clock.pause(STEP);
        woken_by = sleeper.found_nothing(&mut stack, inbox);
    }
    // Its interrupt goes before its queue.
    drop(sleeper);
    take_leave(&mut stack, clock);
    stack
}

/// Delivers what programs have written to connections before they dropped them, and resets the
/// connections that they still have.
fn take_leave(stack: &mut Stack, clock: &dyn Clock) {
    let end = clock.now().plus(LINGER);
    stack.end_tcp();
    while stack.is_ending_tcp() && clock.now() < end {
        if stack.poll(clock.now()) == 0 {
            // A virtual clock moves by as much as real time passes.
            clock.pause(IDLE);
            std::thread::sleep(IDLE);
        }
    }
}

impl Resolver {
    /// Calls `look` on the stack's thread, and returns the result.
    ///
    /// Errors: [`StackError::Ended`], also in a child of a fork, which does not have the thread.
    pub fn with<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Stack) -> T + Send + 'static,
    ) -> Result<T, StackError> {
        if !self.birth.is_here() {
            return Err(StackError::Ended);
        }
        let (sender, receiver) = sync_channel(1);
        let request: Request = Box::new(move |stack| {
            // A caller that has ended needs no result.
            let _ = sender.send(look(stack));
        });
        let sent = self.requests.send(request);
        sent.map_err(|_| StackError::Ended)?;
        self.ring();
        receiver.recv().map_err(|_| StackError::Ended)
    }

    /// Ends a sleep of the stack's thread, which was given something to do.
    fn ring(&self) {
        if let Some(bell) = self.bell.upgrade() {
            bell.ring();
        }
    }

    /// Wakes the stack's thread, so that it polls at once. Does not wait.
    pub(crate) fn wake(&self) {
        if self.birth.is_here() {
            // A queue that is full wakes it too, and a thread that has ended moves nothing.
            let _ = self.requests.try_send(Box::new(|_| {}));
            self.ring();
        }
    }

    /// Announces the addresses again, see [`Stack::announce_again`]. Does not wait; a stack with
    /// too many requests of other threads, or that has ended, announces nothing.
    pub fn announce_again(&self, clock: &Arc<dyn Clock>) {
        if !self.birth.is_here() {
            return;
        }
        let on_its_thread = Arc::clone(clock);
        let request: Request = Box::new(move |stack| stack.announce_again(on_its_thread.now()));
        if self.requests.try_send(request).is_err() {
            tracing::debug!("the addresses are not announced again");
            return;
        }
        self.ring();
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
            std::thread::sleep(IDLE);
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
        found.map_err(|_| ResolveError::Ended)?
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
