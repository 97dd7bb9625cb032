//! Opens a device by its address.

use crate::device::Device;
use crate::error::OpenError;
use crate::functions::{OpenFunction, model_function};
use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_bus::{DeviceAddress, Function, TscClock, VfioFunction};
use ringside_config::Config;
use ringside_pmd::BringUpOptions;
use ringside_stack::host::HostInterface;
use std::sync::Arc;

/// Opens the device at `address` and brings it up.
///
/// `address` is one of
/// - `0000:3b:00.0`: a PCI function that is bound to vfio-pci (`ringside bind` does that);
/// - `vfio-user:/run/e810.sock`: a function of a model in another process;
/// - `model:0`: a function of the model in this process. All open functions share one model; it
///   ends with the last of them. `config.model` takes effect when the first one is opened.
///
/// Starts a housekeeping thread for the device, unless `config.housekeeping.thread` is false: see
/// [`Device`].
///
/// Takes milliseconds to seconds; every wait has a deadline.
///
/// A configuration that [`Config::validate`] refuses is refused here, too.
///
/// Errors: [`OpenError`] has a variant for each remedy. After an error the device is as it was
/// found, unless [`BringUpError::undo_failures`](ringside_pmd::BringUpError::undo_failures) says
/// otherwise.
pub fn open(address: &str, config: &Config) -> Result<Device, OpenError> {
    open_with(&address.parse()?, config, BringUpOptions::default())
}

/// Like [`open`], with a parsed address and options for the bring-up.
pub fn open_with(
    address: &DeviceAddress,
    config: &Config,
    options: BringUpOptions<'_>,
) -> Result<Device, OpenError> {
    config.validate()?;
    // First, so that a missing right is reported before a device is claimed.
    let host = config.network.host_interface.as_deref();
    let host = host.map(HostInterface::open).transpose()?;
    // Packets that were dropped after their pool keep an earlier device claimed.
    ringside_lan::PacketPool::free_dropped();
    // The driver uses the same clock for its waits.
    let clock = Arc::new(TscClock::new());
    let mut model = None;
    let function: Arc<dyn Function> = match address {
        DeviceAddress::Pci { .. } => Arc::new(VfioFunction::claim(address, clock)?),
        DeviceAddress::VfioUser(path) => Arc::new(VfioUserFunction::connect(
            path,
            clock,
            ClientLimits::default(),
        )?),
        DeviceAddress::Model(index) => {
            let open = OpenFunction::take(*index, config)?;
            let function = model_function(*index, open.model())?;
            model = Some(open);
            function
        }
    };
    let device = ringside_pmd::Device::bring_up(function, config, options)?;
    Device::serve(device, address.clone(), model, config, host)
}
