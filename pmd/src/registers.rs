//! Registers of BAR 0; "all ones" means that the device does not respond.

use crate::trace::{Exchange, Recorder, RegisterAccess};
use parking_lot::RwLock;
use ringside_bus::clock::{Clock, wait_for};
use ringside_bus::{Function, FunctionError};
use std::sync::Arc;
use std::time::Duration;

/// The BAR that holds all registers.
const BAR: u8 = 0;
/// `PF_FUNC_RID`: bits [31:16] are zero on a device that answers.
const IDENTITY: u64 = 0x09_E880;

/// The result of a wait for a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// The last value read.
    pub value: u32,
    /// True if it is the awaited one; false: the deadline passed.
    pub ready: bool,
    /// The number of reads.
    pub reads: u32,
    /// The duration of the wait.
    pub took: Duration,
}

/// Access to the registers of one function. Cheap to clone.
#[derive(Clone)]
pub struct Registers {
    function: Arc<dyn Function>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    gate: Option<Arc<Gate>>,
}

/// Ends the writes of the clones that share it.
#[derive(Debug, Default)]
struct Gate {
    closed: RwLock<bool>,
}

impl Registers {
    /// Registers of `function`; reads and writes are recorded by `recorder`.
    #[must_use]
    pub fn new(function: Arc<dyn Function>, recorder: Recorder) -> Self {
        let clock = function.clock();
        Self {
            function,
            clock,
            recorder,
            gate: None,
        }
    }

    /// The same registers, whose writes [`Registers::close`] ends.
    #[must_use]
    pub(crate) fn gated(&self) -> Self {
        Self {
            gate: Some(Arc::default()),
            ..self.clone()
        }
    }

    /// Ends the writes through these registers and their clones: those under way are done when it
    /// returns, and later ones are refused. Only for [`Registers::gated`] ones.
    pub(crate) fn close(&self) {
        if let Some(gate) = &self.gate {
            *gate.closed.write() = true;
        }
    }

    /// The function behind.
    #[must_use]
    pub fn function(&self) -> &Arc<dyn Function> {
        &self.function
    }

    /// The clock to wait by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The recorder of exchanges.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Reads the register at `offset` (bytes).
    ///
    /// Errors: [`FunctionError::Gone`] also if the register and then the identity register read all
    /// ones, as they do when the device does not respond on the bus.
    pub fn read(&self, offset: u64) -> Result<u32, FunctionError> {
        let value = self.read_quietly(offset)?;
        self.recorder.record(|| Exchange::Register {
            access: RegisterAccess::Read,
            offset,
            value,
            reads: 1,
            took: Duration::ZERO,
        });
        Ok(value)
    }

    /// Like [`Registers::read`], without a record: for polling loops.
    pub fn read_quietly(&self, offset: u64) -> Result<u32, FunctionError> {
        let value = self.function.read32(BAR, offset)?;
        match value {
            u32::MAX => self.unless_gone(offset).map(|()| value),
            _ => Ok(value),
        }
    }

    /// Reads the 64 bits at `offset` at once, for a counter: between two reads of its halves the
    /// low one could wrap. Without a record; errors as for [`Registers::read`].
    pub fn read64_quietly(&self, offset: u64) -> Result<u64, FunctionError> {
        let value = self.function.read64(BAR, offset)?;
        match value {
            u64::MAX => self.unless_gone(offset).map(|()| value),
            _ => Ok(value),
        }
    }

    /// Decides about a register that reads all ones.
    #[cold]
    fn unless_gone(&self, offset: u64) -> Result<(), FunctionError> {
        match self.function.read32(BAR, IDENTITY)? {
            u32::MAX => Err(FunctionError::Gone {
                device: self.function.address().clone(),
                reason: format!("register {offset:#08x} and the identity register read all ones"),
            }),
            _ => Ok(()),
        }
    }

    /// Writes the register at `offset` (bytes).
    pub fn write(&self, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.recorder.record(|| Exchange::Register {
            access: RegisterAccess::Write,
            offset,
            value,
            reads: 0,
            took: Duration::ZERO,
        });
        self.write_quietly(offset, value)
    }

    /// Like [`Registers::write`], without a record: for registers that are written once a command.
    pub fn write_quietly(&self, offset: u64, value: u32) -> Result<(), FunctionError> {
        match &self.gate {
            None => self.function.write32(BAR, offset, value),
            Some(gate) => {
                let closed = gate.closed.read();
                if *closed {
                    let device = self.function.address().clone();
                    return Err(FunctionError::Ended { device });
                }
                self.function.write32(BAR, offset, value)
            }
        }
    }

    /// Reads the register every `step` until `ready` accepts the value or `limit` has passed.
    ///
    /// An expired deadline is not an error here: its meaning depends on the caller.
    pub fn poll(
        &self,
        offset: u64,
        limit: Duration,
        step: Duration,
        ready: impl Fn(u32) -> bool,
    ) -> Result<Polled, FunctionError> {
        let start = self.clock.now();
        let (mut value, mut reads) = (0, 0u32);
        let found = wait_for(&*self.clock, limit, step, || {
            value = self.read_quietly(offset)?;
            reads = reads.saturating_add(1);
            Ok::<_, FunctionError>(ready(value).then_some(()))
        })?;
        let took = self.clock.now().since(start);
        self.recorder.record(|| Exchange::Register {
            access: RegisterAccess::Poll,
            offset,
            value,
            reads,
            took,
        });
        Ok(Polled {
            value,
            ready: found.is_some(),
            reads,
            took,
        })
    }
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registers({})", self.function.address())
    }
}

#[cfg(test)]
mod tests;
