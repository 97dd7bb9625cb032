//! The IP stack of a device: who wants it, and whether it runs.

use crate::network::{Network, NetworkError};
use ringside_stack::StackError;

/// The reason why the stack runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Demand {
    /// It does not run, and no recovery starts it.
    #[default]
    Nothing,
    /// The configuration wants it while the program does not open the port itself.
    Offered,
    /// The program called for it.
    Required,
}

/// The stack, and whether a recovery starts it again.
#[derive(Default)]
pub(crate) struct Neighbours {
    running: Option<Network>,
    demand: Demand,
}

impl Neighbours {
    /// The stack if it runs.
    pub(crate) const fn running(&self) -> Option<&Network> {
        self.running.as_ref()
    }

    pub(super) const fn demand(&self) -> Demand {
        self.demand
    }

    /// Drops the stack of a former period of service.
    pub(crate) fn drop_former(&mut self, life: u32) {
        if self.running().is_some_and(|found| found.life() != life) {
            self.running = None;
        }
    }

    /// Drops a stack that resolves nothing more; the next call starts another one.
    pub(crate) fn drop_ended(&mut self) {
        if self.running().is_some_and(Network::has_ended) {
            self.running = None;
        }
    }

    /// Drops the stack; only a call of the program starts it again.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Starts the stack for the program, unless one of this period of service runs.
    ///
    /// Errors: [`NetworkError`]; the demand is then as before.
    pub(crate) fn require(
        &mut self,
        device: &ringside_pmd::Device,
    ) -> Result<&Network, NetworkError> {
        self.start(device, Demand::Required)?;
        Ok(self.running().ok_or(StackError::Ended)?)
    }

    /// Starts the stack, unless one of this period of service runs. A stack can end earlier than
    /// its period of service, with a failure of the device.
    ///
    /// Errors: [`NetworkError`]; the demand is then as before.
    pub(super) fn start(
        &mut self,
        device: &ringside_pmd::Device,
        demand: Demand,
    ) -> Result<(), NetworkError> {
        self.drop_former(device.life());
        self.drop_ended();
        if self.running.is_none() {
            self.running = Some(Network::start(device)?);
        }
        self.demand = demand;
        Ok(())
    }
}
