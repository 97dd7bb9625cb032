//! Undo as data: what takes each effect back.

use super::stages::rdma_state::RdmaUndo;
use super::{Context, StageError, UndoFailure};
use ringside_bus::config_space::{COMMAND, Command};
use std::fmt;

/// Takes one effect back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Writes the command register of configuration space as it was found.
    RestoreCommand {
        /// As found.
        found: u16,
    },
    /// Unmaps the DMA memory and gives it back; leaks it if the device is not known to be silent.
    CloseDmaPool,
    /// Takes bus mastering away and reads back that it is off.
    DisableBusMastering,
    /// What an RDMA stage did.
    Rdma(RdmaUndo),
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RestoreCommand { found } => {
                write!(f, "restore the PCI command register to {found:#06x}")
            }
            Self::CloseDmaPool => f.write_str("give the DMA memory back"),
            Self::DisableBusMastering => f.write_str("take bus mastering away"),
            Self::Rdma(undo) => undo.fmt(f),
        }
    }
}

/// What an unwinding did.
#[derive(Clone, Debug, Default)]
pub struct Unwound {
    /// What was undone, in that order.
    pub undone: Vec<Undo>,
    /// What could not be undone.
    pub failures: Vec<UndoFailure>,
    /// Memory given up because the device may still write to it, bytes.
    pub leaked_bytes: usize,
}

impl Undo {
    /// Takes the effect back. It may never have come: that is no error.
    pub(crate) fn perform(&self, context: &mut Context) -> Result<(), StageError> {
        match self {
            Self::RestoreCommand { found } => restore_command(context, *found),
            Self::CloseDmaPool => close_pool(context),
            Self::DisableBusMastering => disable_bus_mastering(context),
            Self::Rdma(undo) => undo.perform(context),
        }
    }
}

fn restore_command(context: &Context, found: u16) -> Result<(), StageError> {
    let now = context.read_config16(COMMAND)?;
    Ok(context.write_config16(COMMAND, now, found)?)
}

fn disable_bus_mastering(context: &mut Context) -> Result<(), StageError> {
    let now = context.read_config16(COMMAND)?;
    let off = Command(now).with_bus_master(false).0;
    context.write_config16(COMMAND, now, off)?;
    let after = Command(context.read_config16(COMMAND)?);
    if after.bus_master() {
        return Err(StageError::Unusable {
            what: "bus mastering is still on after it was taken away".to_owned(),
            remedy: "reset or unplug the device; the memory it was given is not reused".to_owned(),
        });
    }
    context.set_silent(true);
    Ok(())
}

fn close_pool(context: &mut Context) -> Result<(), StageError> {
    let Ok(pool) = context.pool().cloned() else {
        return Ok(());
    };
    if !context.silent() {
        let bytes = pool.usage().mapped_bytes;
        context.leaked(bytes);
        return Err(StageError::Unusable {
            what: format!(
                "the device could not be silenced, so its {bytes} bytes of DMA memory stay mapped"
            ),
            remedy: "end this process to free them".to_owned(),
        });
    }
    let result = pool.close();
    context.leaked(pool.usage().leaked_bytes);
    context.set_pool(None);
    Ok(result?)
}
