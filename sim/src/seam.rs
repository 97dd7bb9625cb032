//! The points between the parts of a run at which a test can intervene, to plant an error and check
//! that it is found.

use crate::oracle::Seen;
use ringside_bus::{Function, Iova};
use ringside_model::Stepped;
use ringside_pmd::Device;
use std::sync::Arc;

/// Intervenes between driver and device, between driver and its user, and in the world. By default
/// the methods change nothing.
pub trait Interference {
    /// Called before the devices are brought up.
    fn begin(&mut self, _world: &Stepped) {}

    /// Returns the function that a driver gets in place of this one.
    fn function(&mut self, _index: u16, function: Arc<dyn Function>) -> Arc<dyn Function> {
        function
    }

    /// Called before each step, and once after the last with a number above all others. `ungranted`
    /// is memory of each side to which no device has access.
    fn between(
        &mut self,
        _step: u32,
        _world: &Stepped,
        _devices: [&Device; 2],
        _ungranted: [Iova; 2],
    ) {
    }

    /// Called with the completions that the driver of a side returned to its user.
    fn seen(&mut self, _side: usize, _seen: &mut Vec<Seen>) {}

    /// Called with memory of a side that its driver returned in trouble, and that has a new owner
    /// now.
    fn reused(&mut self, _side: usize, _at: Iova, _world: &Stepped) {}

    /// Returns the bit to change in the payload of a frame, whose invariant CRC is then corrected.
    fn forges(&self) -> Option<Box<dyn FnMut(u64) -> Option<u32> + Send>> {
        None
    }
}

/// Changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untouched;

impl Interference for Untouched {}
