//! Recovery without restart: a failed device is brought up again in the same process, on the same
//! [`Function`](ringside_bus::Function).
//!
//! [`Device::poll_events`] (or [`Device::check`], [`Device::probe`]) detects a failure: a reset by
//! other software, an error of the host memory cache, a critical error, a firmware or control queue
//! that does not answer within its deadline, a function that reads all ones. Bus mastering is then
//! switched off at once, every outstanding request completes as flushed exactly once, and
//! [`Event::DeviceFailed`](crate::rdma::Event::DeviceFailed) is reported once, with the cause. If
//! the device does not answer, it may still write: its requests then complete once it answers, is
//! reset or is gone ([`Device::is_contained`]), which each of these calls tries again. Then
//! [`Device::recover`] resets the function, frees the memory that was kept until then, and brings
//! the device up. Objects from before the recovery refuse all calls with an error; destroying them
//! ends at once. [`Device::supervise`] does all of that in one call:
//!
//! ```no_run
//! # fn example(device: &mut ringside_pmd::Device) -> Result<(), Box<dyn std::error::Error>> {
//! use ringside_pmd::recovery::{Supervised, Supervision};
//! let (mut supervision, mut events) = (Supervision::default(), Vec::new());
//! loop {
//!     match device.supervise(&mut supervision, &mut events)? {
//!         Supervised::InService => {} // look at `events`
//!         Supervised::Recovered(report) => println!("{} after {:?}", report.cause, report.took),
//!         Supervised::Failing(error) => eprintln!("{error}"),
//!         Supervised::Waiting(_) => {}
//!     }
//!     events.clear();
//! #   break;
//! }
//! # Ok(())
//! # }
//! ```

mod report;
mod reset;
mod supervise;

pub use crate::failure::FailureCause;
pub use report::{RecoverError, RecoveryReport, RecoveryStage};
pub use supervise::{Supervised, Supervision};

use crate::Device;
use crate::bring_up::{self, BringUpOptions};
use crate::health;
use crate::rdma::RdmaError;
use crate::rdma::containment::carry;
use crate::rdma::engine::Engine;
use ringside_bus::Clock;
use ringside_bus::clock::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Shows any thread, by one load, if the device failed. Cheap to clone. It covers one period of
/// service: after a recovery, get another.
#[derive(Clone, Debug)]
pub struct Watch(Arc<AtomicBool>);

impl Watch {
    /// True if the device has failed since this was made.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The access of a device that failed to the memory of one period of service. Cheap to clone; may
/// outlive the device.
#[derive(Clone, Debug)]
pub struct Containment(Arc<Engine>);

impl Containment {
    /// Waits until a device that failed is known to write nothing more to memory: its DMA was
    /// stopped, it was reset, or it is gone. A program calls it before it uses memory for something
    /// else that a request or a peer could reach.
    ///
    /// Waits until `limit` after the failure at most, for all calls together, plus one attempt to
    /// stop the DMA. False if the device may still write: call it again later. True at once while
    /// the device is in service. Control path.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        self.0.await_silence(limit)
    }
}

/// Times the stages of a recovery.
struct Stopwatch {
    clock: Arc<dyn Clock>,
    since: Instant,
    stages: Vec<RecoveryStage>,
}

impl Stopwatch {
    fn start(clock: Arc<dyn Clock>) -> Self {
        let since = clock.now();
        Self {
            clock,
            since,
            stages: Vec::new(),
        }
    }

    fn lap(&mut self, stage: &'static str) {
        let now = self.clock.now();
        let took = now.since(self.since);
        self.since = now;
        self.stages.push(RecoveryStage { stage, took });
    }

    fn total(&self) -> Duration {
        self.stages.iter().map(|stage| stage.took).sum()
    }
}

impl Device {
    /// The cause for which the device must be recovered; `None` while it is in service, and in a
    /// child of a fork. Reads no register.
    #[must_use]
    pub fn failure(&self) -> Option<FailureCause> {
        let engine = self.context().engine.as_ref();
        engine
            .filter(|engine| !engine.is_elsewhere())
            .and_then(|engine| engine.state().service.end.cause)
            .or(self.down)
    }

    /// Reads the device's registers and returns the cause if it failed. [`Device::poll_events`]
    /// reports the event, and reads the registers from time to time itself.
    ///
    /// Control path: three register reads. After a failure, none; it then tries again to switch off
    /// the bus mastering of a device that did not answer, once a second.
    pub fn check(&self) -> Option<FailureCause> {
        let context = self.context();
        self.silence_again();
        if let Some(cause) = self.down {
            return Some(cause);
        }
        match &context.engine {
            Some(engine) => {
                let mut state = engine.state();
                engine.look_after(&mut state, true);
                state.service.end.cause
            }
            None if context.admin().is_ok_and(|admin| admin.has_stopped()) => {
                let seen = health::look(context.registers(), context.baseline()?, false);
                seen.or(Some(FailureCause::FirmwareSilent))
            }
            None => health::look(context.registers(), context.baseline()?, false),
        }
    }

    /// Sends firmware and RDMA engine a command each, and returns the cause if the device failed: a
    /// stall shows only while an answer is awaited.
    ///
    /// Control path: one command to each; takes as long as their deadlines if they do not answer.
    pub fn probe(&self) -> Option<FailureCause> {
        if self.check().is_none() {
            if let Ok(admin) = self.context().admin() {
                // The queue's state shows what is wrong with the answer.
                let _ = admin.get_version();
            }
            if let Some(engine) = &self.context().engine
                && let Ok(mut state) = engine.open_state()
            {
                let _ = state.execute(ringside_spec::rdma::commands::Nop::ZERO);
            }
        }
        self.check()
    }

    /// Takes the device out of service as if it had failed, so that [`Device::recover`] has
    /// something to do.
    pub fn give_up(&self) -> Result<(), RdmaError> {
        self.engine()?.give_up()
    }

    /// True if the device has failed and no longer writes to memory: its outstanding requests have
    /// completed, or complete at the next poll. False while it is in service, and while it gives no
    /// answer after a failure: a completion returns memory, so none is given then. Reads no
    /// register.
    #[must_use]
    pub fn is_contained(&self) -> bool {
        match &self.context().engine {
            Some(engine) => {
                let end = &engine.state().service.end;
                end.cause.is_some() && end.silent
            }
            None => self.down.is_some(),
        }
    }

    /// Shows threads that do not poll events if this period of service has ended.
    pub fn watch(&self) -> Result<Watch, RdmaError> {
        Ok(Watch(Arc::clone(&self.engine()?.over)))
    }

    /// The access of this period of service to memory after a failure, for threads that destroy
    /// objects of it.
    pub fn containment(&self) -> Result<Containment, RdmaError> {
        Ok(Containment(Arc::clone(self.engine()?)))
    }

    /// The number of bring-ups: 1 until the first recovery.
    #[must_use]
    pub const fn life(&self) -> u32 {
        self.life
    }

    /// Brings a failed device up again; one in service is taken out of it first. Objects made
    /// before stay harmless and useless; memory that was allocated stays what it is.
    ///
    /// Control path; each wait in it has its deadline. Errors: [`RecoverError`]: the device stays
    /// out of service, and this can be called again.
    pub fn recover(&mut self) -> Result<RecoveryReport, Box<RecoverError>> {
        if let Err(error) = self.check_process() {
            return Err(Box::new(RecoverError::OtherProcess(error)));
        }
        let mut watch = Stopwatch::start(Arc::clone(self.context().clock()));
        let cause = self.contain();
        watch.lap("contain");
        if let Err(error) = self.context_mut().reset_after_failure() {
            return Err(Box::new(RecoverError::NotReset { cause, error }));
        }
        watch.lap("reset");
        let (queue_pairs, reclaimed_bytes) = self.release();
        watch.lap("release");
        let options = BringUpOptions::default();
        let kept_undos = self.context().undos().count();
        let trace = match bring_up::run_again(self.context_mut(), options, kept_undos) {
            Ok(trace) => trace,
            Err(error) => {
                // The unwinding stopped its DMA: the resources of this attempt are free again.
                if self.context().silent() {
                    self.release();
                }
                return Err(Box::new(RecoverError::NotBroughtUp { cause, error }));
            }
        };
        let originals = std::mem::take(&mut self.originals);
        self.context_mut().keep_originals(originals);
        watch.lap("bring-up");
        self.series.note(self.context().clock().now());
        self.down = None;
        self.life = self.life.saturating_add(1);
        self.set_trace(trace.clone());
        Ok(RecoveryReport {
            cause,
            life: self.life,
            took: watch.total(),
            stages: watch.stages,
            queue_pairs,
            reclaimed_bytes,
            trace,
        })
    }

    /// Before a shutdown: a device that failed is reset, and its firmware spoken to again, so that
    /// what was configured can be taken back in order. What does not work out shows in the
    /// unwinding.
    pub(crate) fn begin_shutdown(&mut self) {
        self.reset_before_shutdown();
        let originals = std::mem::take(&mut self.originals);
        if originals.is_empty() {
            return;
        }
        // The last recovery did not bring the device up: its firmware is needed once more.
        let context = self.context_mut();
        if context.admin().is_err()
            && context.silent()
            && let Err(error) = bring_up::start_firmware(context)
        {
            tracing::error!(%error, "the original settings cannot be restored");
        }
        context.keep_originals(originals);
    }

    fn reset_before_shutdown(&mut self) {
        // A reset that nothing has noticed yet would show as commands without answers, each waited
        // for until its deadline.
        let Some(cause) = self.check() else {
            return;
        };
        self.contain();
        let context = self.context_mut();
        if let Err(error) = context.reset_after_failure() {
            tracing::error!(%cause, %error, "no reset before the shutdown");
            return;
        }
        context.ports.release();
        if let Some(engine) = context.engine.take() {
            engine.release();
        }
        context.forget_what_a_reset_takes();
        if let Err(error) = context.resume_admin() {
            tracing::error!(%cause, %error, "the firmware does not answer after the reset");
        }
    }

    /// Tries again to stop the DMA of a failed device that may still write.
    pub(crate) fn silence_again(&self) {
        if self.check_process().is_ok()
            && let Some(engine) = &self.context().engine
        {
            engine.silence_again();
        }
    }

    /// Ends the period of service if it has not ended: no thread writes registers of the engine
    /// afterwards, and no request is outstanding unless the device may still write.
    fn contain(&mut self) -> FailureCause {
        let cause = self.failure().unwrap_or(FailureCause::Requested);
        if let Some(engine) = &self.context().engine {
            let mut state = engine.state();
            engine.fail(&mut state, cause);
            drop(state);
            engine.silence_again();
            engine.begin_reset();
        }
        self.context().ports.fail();
        self.down = Some(cause);
        cause
    }

    /// Frees the resources of the ended period of service, after the function was reset. Returns
    /// the number of its queue pairs, and the bytes that had been kept from reuse.
    fn release(&mut self) -> (usize, usize) {
        let context = self.context_mut();
        let engine = context.engine.take();
        let (mut queue_pairs, mut reclaimed) = (0, 0);
        if let Some(engine) = engine {
            reclaimed = engine.release();
            let carried = carry(&engine);
            queue_pairs = engine.state().service.end.queue_pairs;
            context.set_carried(carried);
        }
        context.ports.release();
        if let Ok(admin) = context.admin() {
            admin.release();
        }
        let fell_away = context.begin_again();
        if let Ok(pool) = context.pool() {
            reclaimed += pool.reclaim_leaked();
        }
        // The last period of service restores the values that the first one found.
        let found = fell_away.into_iter().filter(bring_up::Undo::restores);
        for undo in found {
            let known = |other: &bring_up::Undo| other.restores_the_same_as(&undo);
            if !self.originals.iter().any(known) {
                self.originals.push(undo);
            }
        }
        (queue_pairs, reclaimed)
    }
}
