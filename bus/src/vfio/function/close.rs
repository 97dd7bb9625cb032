//! Releasing a function.
#![allow(unsafe_code)] // dropping what must not drop itself

use super::super::owner::Owner;
use super::VfioFunction;
use crate::config_space::{COMMAND, Command};
use crate::{Function, FunctionError};
use rustix::io::Errno;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl VfioFunction {
    /// Switches bus mastering off and reads it back: the first step of every teardown.
    fn silence(&self) -> Result<(), FunctionError> {
        let mut bytes = [0; 2];
        self.config_read(COMMAND, &mut bytes)?;
        let off = Command(u16::from_le_bytes(bytes)).with_bus_master(false);
        self.config_write(COMMAND, &off.0.to_le_bytes())?;
        self.config_read(COMMAND, &mut bytes)?;
        if Command(u16::from_le_bytes(bytes)).bus_master() {
            let error = Errno::IO;
            return Err(self.failed("switching bus mastering off", error));
        }
        Ok(())
    }
}

impl Drop for VfioFunction {
    /// Switches off bus mastering and interrupts, unmaps registers, and then releases the device.
    ///
    /// In a child by fork nothing of this happens. Its copies of the descriptors stay open until it
    /// ends or executes another program.
    fn drop(&mut self) {
        if !self.birth.is_here() {
            return;
        }
        let silenced = self.silence();
        if let Err(error) = &silenced {
            tracing::warn!(%error, "the kernel resets the function when it is closed");
        }
        let off = self.interrupts().disable(self.fd());
        if let Err(error) = off {
            tracing::warn!(%error, device = %self.address, "interrupts stay connected until the device is closed");
        }
        self.regions.clear();
        // SAFETY: taken exactly once, here, and not used afterwards.
        let device = Closing(Some(unsafe { ManuallyDrop::take(&mut self.owner) }));
        let folder = self.sysfs.function_path(&self.address.to_string());
        let linked = folder.join("iommu_group").read_link().is_ok();
        if !linked {
            tracing::warn!(device = %self.address, "the device was removed: its descriptor is kept until this process ends");
            std::mem::forget(device);
            return;
        }
        if silenced.is_ok() {
            return;
        }
        // Closing a device that does not respond takes the kernel more than a minute, because it
        // waits for a reset to finish. A thread of its own does it.
        let name = format!("close-{}", self.address);
        let closing = std::thread::Builder::new()
            .name(name)
            .spawn(move || drop(device));
        if let Err(error) = closing {
            tracing::warn!(%error, "a removed device was closed on this thread");
        }
    }
}

/// A device that is being released. The crate's own drop reads the group from sysfs and panics if
/// it cannot.
struct Closing(Option<Owner>);

impl Drop for Closing {
    fn drop(&mut self) {
        let device = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(device))).is_err() {
            tracing::warn!("a device was removed while it was being released");
        }
    }
}
