//! The sleeps of a stack's thread that has nothing to do.

use crate::sleeps::Sleeps;
use crate::{Stack, StackError};
use ringside_lan::Arming;
use ringside_pmd::lan::port::ReceiveInterrupt;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The time for which an idle stack sleeps: the delay of an answer. Requests of other threads wake
/// it.
pub(super) const IDLE: Duration = Duration::from_micros(200);
/// The time for which it sleeps after [`POLLS_OF_LONG_IDLE`] if it has no interrupt.
const LONG_IDLE: Duration = Duration::from_millis(1);
/// The time for which it sleeps after [`POLLS_BEFORE_ARMING`] if a frame ends the sleep: the delay
/// of what the stack does by itself, such as a request that it repeats.
const ARMED_IDLE: Duration = Duration::from_millis(20);
/// Polls in turn that find nothing before the sleeps become long.
const POLLS_OF_LONG_IDLE: u32 = 1024;
/// Polls in turn that find nothing before the interrupt is armed.
const POLLS_BEFORE_ARMING: u32 = 256;
/// Polls that find nothing before the thread sleeps.
const IDLE_POLLS: u32 = 64;

pub(super) type Request = Box<dyn FnOnce(&mut Stack) + Send>;

/// What other threads ask of the stack's.
pub(super) struct Inbox {
    pub(super) requests: Receiver<Request>,
    pub(super) bell: Arc<Bell>,
    /// the stack ends
    pub(super) stop: Arc<AtomicBool>,
}

/// Ends a sleep of the thread.
#[derive(Debug)]
pub(super) struct Bell {
    event: OwnedFd,
    /// the thread sleeps, or is about to
    is_awaited: AtomicBool,
}

/// Decides when and how long the thread sleeps.
#[derive(Debug)]
pub(super) struct Sleeper {
    /// of the stack's receive queue; `None` on a function with few vectors
    interrupt: Option<ReceiveInterrupt>,
    /// the next frame raises the interrupt
    is_armed: bool,
    /// polls in turn that found nothing
    idle: u32,
}

impl Bell {
    /// Errors: [`StackError::Thread`], no descriptor.
    pub(super) fn new() -> Result<Self, StackError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| StackError::Thread(error.to_string()))?;
        Ok(Self {
            event,
            is_awaited: AtomicBool::new(false),
        })
    }

    /// Ends the sleep, after the thread was given something to do.
    pub(super) fn ring(&self) {
        // Pairs with the fence of `Sleeper::sleep`: the thread finds what it was given, or this
        // finds it asleep.
        fence(Ordering::SeqCst);
        if self.is_awaited.swap(false, Ordering::Relaxed) {
            // A descriptor that is full is readable, too.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl Sleeper {
    /// Connects an interrupt to the receive queue of `stack`, if the function has one left.
    pub(super) fn new(stack: &Stack) -> Self {
        let interrupt = stack.port().receive_interrupt(&[stack.queue()]);
        Self {
            interrupt: interrupt
                .inspect_err(|error| tracing::debug!(%error, "the IP stack polls"))
                .ok(),
            is_armed: false,
            idle: 0,
        }
    }

    /// A poll found frames: more may follow.
    pub(super) fn frames_came(&mut self, stack: &mut Stack) {
        self.idle = 0;
        if std::mem::take(&mut self.is_armed) {
            stack.disarm();
        }
    }

    /// Another thread asked for something. An answer of the network to it raises the interrupt, or
    /// is looked for often.
    pub(super) const fn was_asked(&mut self) {
        if !self.is_armed {
            self.idle = 0;
        }
    }

    /// A poll found nothing: sleeps if it was one of many. Returns a request that came meanwhile.
    pub(super) fn found_nothing(&mut self, stack: &mut Stack, inbox: &Inbox) -> Option<Request> {
        self.idle = self.idle.saturating_add(1);
        if self.idle < IDLE_POLLS {
            return None;
        }
        let limit = match self.idle >= POLLS_BEFORE_ARMING && self.arm(stack) {
            true => ARMED_IDLE,
            false if self.idle >= POLLS_OF_LONG_IDLE => LONG_IDLE,
            false => IDLE,
        };
        self.sleep(limit, inbox, &mut stack.counters.sleeps)
    }

    /// True if the next frame raises the interrupt, and none has come.
    fn arm(&mut self, stack: &mut Stack) -> bool {
        if !self.is_armed && self.interrupt.is_some() {
            self.is_armed = stack.arm() == Ok(Arming::Armed);
        }
        self.is_armed
    }

    fn sleep(&mut self, limit: Duration, inbox: &Inbox, sleeps: &mut Sleeps) -> Option<Request> {
        let bell = &inbox.bell;
        bell.is_awaited.store(true, Ordering::Relaxed);
        // A request whose sender found the thread awake is here.
        fence(Ordering::SeqCst);
        let found = inbox.requests.try_recv().ok();
        if found.is_none() && !inbox.stop.load(Ordering::Relaxed) {
            *self.wait(limit, bell, sleeps) += 1;
        }
        if !bell.is_awaited.swap(false, Ordering::Relaxed) {
            // It was rung. The next sleep ends at once if the signal comes after this.
            let _ = rustix::io::read(&bell.event, &mut [0; 8]);
        }
        found
    }

    /// Waits for the bell and, if it is armed, the interrupt. Signals end it, too. Returns the
    /// count of what ended it.
    fn wait<'s>(&mut self, limit: Duration, bell: &Bell, sleeps: &'s mut Sleeps) -> &'s mut u64 {
        let of_bell = || PollFd::new(&bell.event, PollFlags::IN);
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: limit.subsec_nanos().into(),
        };
        let interrupt = self.interrupt.as_ref().filter(|_| self.is_armed);
        let mut waited = [of_bell(), of_bell()];
        let mut count = 1;
        if let Some(interrupt) = interrupt {
            waited[1] = PollFd::from_borrowed_fd(interrupt.as_fd(), PollFlags::IN);
            count = 2;
        }
        let is_over = poll(&mut waited[..count], Some(&limit)).is_ok();
        let has_come = |waited: &PollFd<'_>| is_over && !waited.revents().is_empty();
        match (interrupt, has_come(&waited[1])) {
            (Some(interrupt), true) => {
                self.is_armed = false;
                // An error is one of the device; its queues are not armed again.
                let _ = interrupt.take();
                &mut sleeps.by_frames
            }
            _ if has_come(&waited[0]) => &mut sleeps.by_requests,
            _ => &mut sleeps.timed_out,
        }
    }
}
