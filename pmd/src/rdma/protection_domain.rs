//! Protection domains: what may be used together.

use super::RdmaError;
use super::engine::Engine;
use std::sync::Arc;

/// A protection domain. Regions and queue pairs of one domain work together. Cheap to clone; its
/// number is free again once the last clone and the last object in it are gone.
#[derive(Clone, Debug)]
pub struct ProtectionDomain(Arc<Domain>);

#[derive(Debug)]
struct Domain {
    engine: Arc<Engine>,
    number: u32,
}

impl ProtectionDomain {
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Self, RdmaError> {
        let number = {
            let mut state = engine.open_state()?;
            let state = &mut *state;
            let numbers = state.numbers.as_mut().ok_or(RdmaError::ShutDown)?;
            numbers.protection_domains.take(&mut state.random)?
        };
        Ok(Self(Arc::new(Domain { engine, number })))
    }

    /// Its number, 18 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if let Some(numbers) = &mut self.engine.state().numbers {
            numbers.protection_domains.give(self.number);
        }
    }
}
