//! A device in service.

mod affinity;
mod firmware;
mod port;
mod series;
mod verbs;

use crate::Registers;
use crate::bring_up::{self, BringUpError, BringUpOptions, Context, Facts, Undo, UndoFailure};
use crate::failure::FailureCause;
use crate::rdma::Event;
use crate::release::ReleaseRequest;
use crate::trace::Trace;
use ringside_bus::process::Birth;
use ringside_bus::{DmaPool, Function, FunctionError, OneProcess};
use ringside_config::Config;
use series::Series;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The result of a shutdown.
#[derive(Clone, Debug, Default)]
pub struct ShutdownReport {
    /// The undos performed, in that order.
    pub undone: Vec<Undo>,
    /// The undos that failed; empty: the device is as it was found.
    pub failures: Vec<UndoFailure>,
    /// Memory given up because the device may still write to it, bytes.
    pub leaked_bytes: usize,
}

/// A device that has been brought up. Dropping it shuts it down.
pub struct Device {
    context: Context,
    trace: Trace,
    /// why it is out of service
    pub(crate) down: Option<FailureCause>,
    /// times that it was brought up
    pub(crate) life: u32,
    /// its recoveries, one after the other
    pub(crate) series: Series,
    /// the original values, to be restored after the last period of service
    pub(crate) originals: Vec<Undo>,
    /// the firmware has reported a change of the link, and no further one until it is asked again
    link_events_due: AtomicBool,
    late_phy: firmware::LatePhy,
    birth: Birth,
    /// `None` if the backend has none
    release: Option<ReleaseRequest>,
}

impl Device {
    /// Brings `function` up with the settings of `config`.
    ///
    /// Takes some milliseconds to some seconds; each wait has its deadline. After an error every
    /// effect has been undone, except those that [`BringUpError::undo_failures`] lists.
    pub fn bring_up(
        function: Arc<dyn Function>,
        config: &Config,
        options: BringUpOptions<'_>,
    ) -> Result<Self, Box<BringUpError>> {
        let function = OneProcess::new(function);
        let (context, trace) = bring_up::run(function, config, options)?;
        Ok(Self {
            release: ReleaseRequest::connect(context.function()),
            context,
            trace,
            down: None,
            life: 1,
            series: Series::default(),
            originals: Vec::new(),
            link_events_due: AtomicBool::new(false),
            late_phy: firmware::LatePhy::default(),
            birth: Birth::now(),
        })
    }

    /// Refuses calls in a child by fork of the process that brought the device up.
    ///
    /// # Errors
    /// [`FunctionError::OtherProcess`]
    pub fn check_process(&self) -> Result<(), FunctionError> {
        self.birth.check(self.context.function().address())
    }

    /// The known facts about the device.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.context.facts
    }

    /// The result of the bring-up.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The function beneath.
    #[must_use]
    pub fn function(&self) -> &Arc<dyn Function> {
        self.context.function()
    }

    /// The configuration it was brought up with.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.context.config()
    }

    /// Registers of BAR 0.
    #[must_use]
    pub fn registers(&self) -> &Registers {
        self.context.registers()
    }

    /// Its DMA memory; `None` only after a shutdown.
    #[must_use]
    pub fn pool(&self) -> Option<&Arc<DmaPool>> {
        self.context.pool().ok()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn context_mut(&mut self) -> &mut Context {
        &mut self.context
    }

    pub(crate) fn set_trace(&mut self, trace: Trace) {
        self.trace = trace;
    }

    /// The undos that a shutdown would perform, in that order.
    pub fn undos(&self) -> impl Iterator<Item = &Undo> {
        self.context.undos()
    }

    /// A descriptor that is readable while the host asks the program to release the device, for
    /// threads that sleep; the next call of [`Device::poll_events`] reports
    /// [`Event::ReleaseRequested`](crate::rdma::Event::ReleaseRequested). `None` if the backend has
    /// no request.
    #[must_use]
    pub fn release_request(&self) -> Option<BorrowedFd<'_>> {
        self.release.as_ref().map(ReleaseRequest::as_fd)
    }

    /// Appends the host's request to release the device, if there is one; returns their number. In
    /// a child by fork the request is the parent's.
    fn take_release_request(&self, events: &mut Vec<Event>) -> usize {
        let here = self.release.as_ref().filter(|_| self.birth.is_here());
        let is_asked = here.is_some_and(ReleaseRequest::take);
        events.extend(is_asked.then_some(Event::ReleaseRequested));
        usize::from(is_asked)
    }

    /// Takes the device down: queues and objects, firmware configuration, a reset, bus mastering
    /// off, and only then its memory.
    ///
    /// Outstanding requests complete as flushed, unless the device may still write to memory, which
    /// [`ShutdownReport::leaked_bytes`] then says: those never complete.
    ///
    /// A function of a card or of a socket stays claimed as long as the program keeps an object,
    /// packet or pool of the device: another process cannot claim it before those are dropped, nor
    /// can this one. Packets that are dropped after their pool count for a while: see
    /// [`PacketPool`](ringside_lan::PacketPool), whose `free_dropped` ends that.
    pub fn shutdown(mut self) -> ShutdownReport {
        self.take_down()
    }

    fn take_down(&mut self) -> ShutdownReport {
        // In a child by fork: the device is its parent's.
        if !self.birth.is_here() {
            return ShutdownReport::default();
        }
        self.release = None;
        let flag = self.context.shut_down_flag();
        flag.store(true, Ordering::Release);
        self.begin_shutdown();
        self.context.ports.shut_down();
        ringside_lan::PacketPool::free_dropped();
        let unwound = self.context.unwind();
        self.context.recorder().switch(false);
        let _ = self.context.recorder().take();
        ShutdownReport {
            undone: unwound.undone,
            failures: unwound.failures,
            leaked_bytes: unwound.leaked_bytes,
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let report = self.take_down();
        for failure in &report.failures {
            tracing::error!(device = %self.context.function().address(), %failure, "shutdown");
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("address", self.context.function().address())
            .finish_non_exhaustive()
    }
}
