//! The state that the stages share.

use super::facts::{Facts, Missing, require};
use super::{StageError, Undo};
use crate::Registers;
use crate::admin::AdminQueue;
use crate::health::Baseline;
use crate::rdma::carried::Carried;
use crate::rdma::engine::Engine;
use crate::trace::{Exchange, Recorder};
use rand::SeedableRng;
use rand::rngs::StdRng;
use ringside_bus::clock::wait_for;
use ringside_bus::dma_pool::Placement;
use ringside_bus::{Clock, DmaPool, Function, FunctionError};
use ringside_config::Config;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Names one entry of the list of undos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "keep it to amend or discharge the undo, or drop it on purpose with `let _ =`"]
pub struct UndoToken(u64);

/// A function that is being brought up, in service, or being taken down.
pub struct Context {
    function: Arc<dyn Function>,
    config: Config,
    registers: Registers,
    pool: Option<Arc<DmaPool>>,
    admin: Option<Arc<AdminQueue>>,
    /// The facts that the stages found out.
    pub facts: Facts,
    /// the RDMA engine, from the stage `rdma-control-queue` on
    pub(crate) engine: Option<Arc<Engine>>,
    /// the port with packet queues, if one is open
    pub(crate) ports: Arc<crate::lan::port::PortRegistry>,
    undos: Vec<(UndoToken, Undo)>,
    next_token: u64,
    warnings: Vec<String>,
    /// set when bus mastering is known to be off
    silent: bool,
    leaked_bytes: usize,
    /// the warning about pages that are smaller than configured was given
    told_page_size: bool,
    /// resets that the device had seen when this bring-up had reset it
    baseline: Option<Baseline>,
    /// values that pass from one period of service to the next
    carried: Option<Carried>,
    placement: Placement,
    /// a shutdown of the device has begun: shared by its engines, one for each bring-up
    shut_down: Arc<AtomicBool>,
}

impl Context {
    pub(crate) fn new(function: Arc<dyn Function>, config: Config) -> Self {
        let registers = Registers::new(Arc::clone(&function), Recorder::new());
        Self {
            function,
            config,
            registers,
            pool: None,
            admin: None,
            facts: Facts::default(),
            engine: None,
            ports: Arc::default(),
            undos: Vec::new(),
            next_token: 0,
            warnings: Vec::new(),
            silent: false,
            leaked_bytes: 0,
            told_page_size: false,
            baseline: None,
            carried: None,
            placement: Placement::Unpredictable,
            shut_down: Arc::default(),
        }
    }

    /// True once a shutdown has begun; for the objects of all periods of service.
    pub(crate) fn shut_down_flag(&self) -> &Arc<AtomicBool> {
        &self.shut_down
    }

    /// The function.
    #[must_use]
    pub fn function(&self) -> &Arc<dyn Function> {
        &self.function
    }

    /// Interrupt vectors that the function may use: those of its MSI-X table, as far as the
    /// firmware has granted them. A table may have more.
    pub(crate) fn granted_vectors(&self) -> Result<u16, StageError> {
        let table = self.function.interrupt_vectors()?;
        let granted = self.facts.capabilities()?.vectors.count;
        Ok(table.min(u16::try_from(granted).unwrap_or(u16::MAX)))
    }

    /// The clock of all waits.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.registers.clock()
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Registers of BAR 0.
    #[must_use]
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The record of exchanges of the running stage.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        self.registers.recorder()
    }

    /// DMA memory, from the stage `config-space` on.
    pub fn pool(&self) -> Result<&Arc<DmaPool>, Missing> {
        require(self.pool.as_ref(), "DMA memory", "config-space")
    }

    /// The RDMA engine, from the stage `rdma-control-queue` on.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>, Missing> {
        let engine = self.engine.clone();
        require(engine, "the control queue pair", "rdma-control-queue")
    }

    pub(crate) fn set_pool(&mut self, pool: Option<Arc<DmaPool>>) {
        self.pool = pool;
    }

    /// The admin queue, from the stage `admin-queue` on.
    pub fn admin(&self) -> Result<Arc<AdminQueue>, Missing> {
        require(self.admin.clone(), "the admin queue", "admin-queue")
    }

    pub(crate) fn set_admin(&mut self, admin: Option<Arc<AdminQueue>>) {
        self.admin = admin;
    }

    /// Records the undo of an effect. Call it before the effect.
    pub fn record(&mut self, undo: Undo) -> UndoToken {
        let token = UndoToken(self.next_token);
        self.next_token += 1;
        self.undos.push((token, undo));
        token
    }

    /// Replaces a recorded undo, once the effect is known in more detail (for example a number that
    /// the device chose).
    pub fn amend(&mut self, token: UndoToken, undo: Undo) {
        if let Some(entry) = self.undos.iter_mut().find(|entry| entry.0 == token) {
            entry.1 = undo;
        }
    }

    /// Drops a recorded undo: the effect is over, or never came.
    pub fn discharge(&mut self, token: UndoToken) {
        self.undos.retain(|entry| entry.0 != token);
    }

    /// The undos that would be performed, latest first.
    pub fn undos(&self) -> impl Iterator<Item = &Undo> {
        self.undos.iter().rev().map(|(_, undo)| undo)
    }

    /// Tells the user something that is not an error.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        tracing::warn!(device = %self.function.address(), "{text}");
        self.warnings.push(text);
    }

    /// Warns once that memory is on smaller pages than configured, with the remedy.
    pub(crate) fn warn_of_page_size(&mut self) {
        let usage = self.pool.as_ref().map(|pool| pool.usage());
        if let Some(text) = usage.and_then(|usage| usage.fallback)
            && !self.told_page_size
        {
            self.told_page_size = true;
            self.warn(text);
        }
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Waits until `ready` gives a value; `None` once `limit` has passed.
    pub fn wait<T>(
        &self,
        limit: Duration,
        step: Duration,
        ready: impl FnMut() -> Result<Option<T>, StageError>,
    ) -> Result<Option<T>, StageError> {
        wait_for(&**self.clock(), limit, step, ready)
    }

    /// Writes a 16-bit register of configuration space, and keeps that in the trace.
    pub fn write_config16(
        &self,
        offset: u16,
        before: u16,
        after: u16,
    ) -> Result<(), FunctionError> {
        self.recorder().record(|| Exchange::ConfigurationSpace {
            offset,
            before: before.into(),
            after: after.into(),
        });
        self.function.config_write(offset, &after.to_le_bytes())
    }

    /// Reads a 16-bit register of configuration space.
    pub fn read_config16(&self, offset: u16) -> Result<u16, FunctionError> {
        let mut bytes = [0; 2];
        self.function.config_read(offset, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub(crate) fn baseline(&self) -> Option<Baseline> {
        self.baseline
    }

    /// The resets that the device had seen, from the stage `pf-reset` on.
    pub(crate) fn require_baseline(&self) -> Result<Baseline, Missing> {
        require(self.baseline, "what a reset has left", "pf-reset")
    }

    pub(crate) fn set_baseline(&mut self, baseline: Baseline) {
        self.baseline = Some(baseline);
    }

    /// Seeds every random choice.
    pub(crate) fn draw_from(&mut self, seed: u64) {
        self.placement = Placement::Seeded(seed);
        self.carried = Some(Carried {
            random: StdRng::seed_from_u64(seed),
            ..Carried::default()
        });
    }

    /// The source of random memory addresses.
    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// Repeats flushes of queue pairs of a device that failed, for which their completion queues
    /// had no room, and the attempt to silence a device that may still write.
    pub(crate) fn flush_owed(&mut self) {
        if let Some(engine) = &self.engine {
            engine.silence_again();
            engine.state().flush_owed();
        }
        if let Some(carried) = &mut self.carried {
            carried.owed.retain(|owed| !owed.try_again());
        }
    }

    pub(crate) fn set_carried(&mut self, carried: Carried) {
        self.carried = Some(carried);
    }

    /// The state that a period of service inherits from the previous one, or begins with.
    pub(crate) fn take_carried(&mut self) -> Carried {
        self.carried.take().unwrap_or_default()
    }

    /// Discards the results of a bring-up, for another one after a reset: only the undos of memory
    /// and configuration space stay. Returns the discarded undos, oldest first.
    pub(crate) fn begin_again(&mut self) -> Vec<Undo> {
        let all = std::mem::take(&mut self.undos);
        let (stays, goes): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|(_, undo)| undo.outlives_a_reset());
        self.undos = stays;
        self.facts = Facts::default();
        self.engine = None;
        self.admin = None;
        self.baseline = None;
        self.warnings.clear();
        goes.into_iter().map(|(_, undo)| undo).collect()
    }

    /// Replaces the original values that this bring-up found by those of the first one.
    pub(crate) fn keep_originals(&mut self, originals: Vec<Undo>) {
        for original in originals {
            if let Some((_, undo)) = self
                .undos
                .iter_mut()
                .find(|(_, undo)| undo.restores_the_same_as(&original))
            {
                *undo = original;
                continue;
            }
            // After the firmware's own forgetting, so that it is undone before that.
            let after = |(_, undo): &(UndoToken, Undo)| *undo == Undo::ClearFunctionConfig;
            let place = self.undos.iter().position(after);
            let place = place.map_or(self.undos.len(), |place| place + 1);
            let token = UndoToken(self.next_token);
            self.next_token += 1;
            self.undos.insert(place, (token, original));
        }
    }

    /// Discards undos that a reset has performed, or that clearing the function's configuration
    /// performs at once.
    pub(crate) fn forget_what_a_reset_takes(&mut self) {
        self.undos.retain(|(_, undo)| !undo.is_taken_by_a_reset());
    }

    pub(crate) fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    pub(crate) fn silent(&self) -> bool {
        self.silent
    }

    pub(crate) fn leaked_bytes(&self) -> usize {
        self.leaked_bytes
    }

    /// The latest undo, unless only the oldest `keep` are left. It is recorded no more.
    pub(crate) fn take_last_undo(&mut self, keep: usize) -> Option<Undo> {
        let more = self.undos.len() > keep;
        more.then(|| self.undos.pop())
            .flatten()
            .map(|(_, undo)| undo)
    }

    pub(crate) fn leaked(&mut self, bytes: usize) {
        self.leaked_bytes += bytes;
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("device", self.function.address())
            .field("undos", &self.undos)
            .finish_non_exhaustive()
    }
}
