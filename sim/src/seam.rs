//! The points between the parts of a run at which a test can intervene, plant an error and see it
//! found.

use crate::oracle::Seen;
use ringside_bus::{Function, Iova};
use ringside_model::Stepped;
use ringside_pmd::Device;
use std::sync::Arc;

/// Stands at the seams: between driver and device, between driver and its user, and beside the
/// world. Each method leaves everything as it is by default.
pub trait Interference {
    /// Before the devices are brought up.
    fn begin(&mut self, _world: &Stepped) {}

    /// The function that a driver gets in place of this one.
    fn function(&mut self, _index: u16, function: Arc<dyn Function>) -> Arc<dyn Function> {
        function
    }

    /// Before each step, and once after the last with a number behind all others. `ungranted` is
    /// memory of each side that no device was told of.
    fn between(
        &mut self,
        _step: u32,
        _world: &Stepped,
        _devices: [&Device; 2],
        _ungranted: [Iova; 2],
    ) {
    }

    /// The completions that the driver of a side gave to its user.
    fn seen(&mut self, _side: usize, _seen: &mut Vec<Seen>) {}

    /// Memory of a side that its driver gave back in trouble, and that has a new owner now.
    fn reused(&mut self, _side: usize, _at: Iova, _world: &Stepped) {}

    /// Bit that changes in the payload of this frame, with an invariant CRC that fits.
    fn forges(&self) -> Option<Box<dyn FnMut(u64) -> Option<u32> + Send>> {
        None
    }
}

/// Nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untouched;

impl Interference for Untouched {}
