//! The device of this process through all its failures.

use crate::claim::{Failure, claim, named};
use parking_lot::{RwLock, RwLockReadGuard};
use ringside_bus::DeviceAddress;
use ringside_config::HousekeepingSection;
use ringside_model::Threaded;
use ringside_pmd::recovery::{Supervised, Supervision};
use ringside_pmd::{BringUpOptions, Device};
use ringside_stack::LeasedGid;
use ringside_stack::host::HostInterface;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The longest wait until no call uses the device, before it is recovered.
const EXCLUSIVE_LIMIT: Duration = Duration::from_millis(100);

/// The device while a call uses it. It is not recovered meanwhile.
pub(crate) type InService<'a> = RwLockReadGuard<'a, Device>;

/// The device, in service or not.
pub(crate) struct Machine {
    device: RwLock<Device>,
    /// as `RINGSIDE_DEVICE` names it
    name: String,
    is_model: bool,
    housekeeping: HousekeepingSection,
    /// the host's interface beside the IP stack, through all failures
    host: Option<Arc<Mutex<HostInterface>>>,
    /// the address of a DHCP server in the GID table, through all failures
    leased: Arc<Mutex<LeasedGid>>,
    /// the last recovery did not succeed
    is_failing: AtomicBool,
    /// the model in this process, where there is one
    _model: Option<Threaded>,
}

impl Machine {
    /// Claims and brings up the device that `name` names.
    pub(crate) fn open(name: &str) -> Result<Self, Failure> {
        let (address, config) = named(name)?;
        // First, so that a missing right is reported before a device is claimed.
        let host = config.network.host_interface.as_deref();
        let host = host.map(HostInterface::open).transpose();
        let host = host.map_err(|error| Failure::of(libc::EPERM, error))?;
        let (function, model) = claim(&address, &config)?;
        let options = BringUpOptions {
            fail_at: None,
            progress: None,
            predictable: None,
        };
        let device = Device::bring_up(function, &config, options)
            .map_err(|error| Failure::of(libc::EIO, error))?;
        Ok(Self {
            device: RwLock::new(device),
            name: name.to_owned(),
            is_model: !matches!(address, DeviceAddress::Pci { .. }),
            housekeeping: config.housekeeping,
            host: host.map(|host| Arc::new(Mutex::new(host))),
            leased: Arc::default(),
            is_failing: AtomicBool::new(false),
            _model: model,
        })
    }

    /// The host's interface, if the configuration names one.
    pub(crate) fn host(&self) -> Option<Arc<Mutex<HostInterface>>> {
        self.host.clone()
    }

    /// The address of a DHCP server in the GID table.
    pub(crate) fn leased(&self) -> Arc<Mutex<LeasedGid>> {
        Arc::clone(&self.leased)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The device is a model, which runs on the cores of this machine.
    pub(crate) const fn is_model(&self) -> bool {
        self.is_model
    }

    #[cfg(test)]
    pub(crate) const fn model(&self) -> Option<&Threaded> {
        self._model.as_ref()
    }

    /// The device, unless it is being recovered. Does not wait.
    pub(crate) fn device(&self) -> Option<InService<'_>> {
        self.device.try_read()
    }

    /// The settings of its supervision.
    pub(crate) const fn housekeeping(&self) -> &HousekeepingSection {
        &self.housekeeping
    }

    /// True if the device has failed and its outstanding requests have completed.
    pub(crate) fn is_contained(&self) -> bool {
        self.device().is_some_and(|device| device.is_contained())
    }

    /// True after a recovery that did not succeed, until one does.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Acquire)
    }

    /// Notes if the device could be put into service again.
    pub(crate) fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Release);
    }

    /// Recovers the device from a failure, unless the last attempt is too recent. True if it is in
    /// service.
    pub(crate) fn recover(&self, supervision: &mut Supervision) -> bool {
        let Some(mut device) = self.device.try_write_for(EXCLUSIVE_LIMIT) else {
            return false;
        };
        let Some(cause) = device.failure() else {
            return true;
        };
        match device.recover_in_turn(supervision, cause) {
            Supervised::Recovered(report) => {
                let (life, took) = (report.life, report.took);
                tracing::warn!(%cause, life, ?took, "the device was recovered");
                true
            }
            Supervised::InService => true,
            Supervised::Failing(error) => {
                tracing::error!(%error, "the device was not recovered");
                self.set_failing(true);
                false
            }
            Supervised::Waiting(_) => false,
        }
    }
}
