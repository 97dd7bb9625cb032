//! Finding and claiming the device that `RINGSIDE_DEVICE` names.

use crate::environment::variable;
use ringside_bus::sysfs::Sysfs;
use ringside_bus::vfio::ClaimError;
use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_bus::{DeviceAddress, Function, FunctionError, TscClock, VfioFunction};
use ringside_config::Config;
use ringside_model::{Threaded, WorldSettings};
use std::ffi::c_int;
use std::sync::Arc;

/// Most completion vectors without a configuration: each takes memory for the events of all
/// completion queues. Some virtual functions and machines have fewer.
const MAX_VECTORS: u16 = 32;

/// The reason why there is no device.
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn of(errno: c_int, error: impl std::fmt::Display) -> Self {
        let text = error.to_string();
        Self { errno, text }
    }
}

/// The number for a function that its server did not give.
fn of_server(error: &FunctionError) -> c_int {
    match error {
        FunctionError::InUse { .. } => libc::EBUSY,
        FunctionError::NoServer { errno, .. } if matches!(*errno, libc::EACCES | libc::EPERM) => {
            *errno
        }
        _ => libc::ENODEV,
    }
}

/// The number for a function that could not be claimed. Only `EBUSY` passes by waiting.
fn of_claim(error: &ClaimError) -> c_int {
    match error {
        ClaimError::Busy { .. } => libc::EBUSY,
        ClaimError::Permission { .. } => libc::EACCES,
        ClaimError::NoInterruptRemapping => libc::EPERM,
        ClaimError::NoSuchFunction { .. }
        | ClaimError::NotBound { .. }
        | ClaimError::NoIommuGroup { .. }
        | ClaimError::NoVfio { .. }
        | ClaimError::GroupNotViable { .. }
        | ClaimError::NoType1 { .. } => libc::ENODEV,
        ClaimError::NotPci { .. } => libc::EINVAL,
        ClaimError::System { .. } => libc::EIO,
    }
}

/// Claims a device. A model in this process is started.
pub(crate) fn claim(
    address: &DeviceAddress,
    config: &Config,
) -> Result<(Arc<dyn Function>, Option<Threaded>), Failure> {
    let clock = Arc::new(TscClock::new());
    match address {
        DeviceAddress::VfioUser(path) => {
            let function = VfioUserFunction::connect(path, clock, ClientLimits::default());
            let function = function.map_err(|error| Failure::of(of_server(&error), error))?;
            Ok((Arc::new(function), None))
        }
        DeviceAddress::Pci { .. } => {
            let function = VfioFunction::claim(address, clock);
            let function = function.map_err(|error| Failure::of(of_claim(&error), error))?;
            Ok((Arc::new(function), None))
        }
        DeviceAddress::Model(index) => {
            let functions = u16::try_from(config.model.functions).unwrap_or(u16::MAX);
            let model = Threaded::start(&WorldSettings::with_functions(functions), None);
            let model = model.map_err(|error| Failure::of(libc::EIO, error))?;
            let function = model.function(*index);
            let missing =
                || Failure::of(libc::ENODEV, format!("the model has no function {index}"));
            Ok((function.ok_or_else(missing)?, Some(model)))
        }
    }
}

/// The configuration without a file, and the values of keys that a file does not name: programs of
/// verbs expect more objects than an application that makes its own configuration, and a completion
/// vector for each core. A model has them at no cost; a card's firmware wants memory for each.
fn sized_for_programs(address: &DeviceAddress) -> Config {
    let mut config = Config::default();
    let rdma = &mut config.rdma;
    if matches!(address, DeviceAddress::Pci { .. }) {
        rdma.queue_pairs = 512;
        rdma.completion_queues = 1024;
        rdma.memory_regions = 16_384;
        rdma.address_handles = 512;
        // As many peers, groups and addresses of the port.
        rdma.arp_entries = 640;
    } else {
        rdma.queue_pairs = 2000;
        rdma.completion_queues = 4000;
        rdma.memory_regions = 32_000;
        rdma.address_handles = 800;
        rdma.arp_entries = 1000;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    rdma.event_queues = u16::try_from(cores).map_or(MAX_VECTORS, |cores| cores.min(MAX_VECTORS));
    config
}

/// The address that `name` is, and the configuration that the environment names.
pub(crate) fn named(name: &str) -> Result<(DeviceAddress, Config), Failure> {
    let invalid = |error: &dyn std::fmt::Display| Failure::of(libc::EINVAL, error);
    let address = name.parse().map_err(|error| invalid(&error))?;
    let sized = sized_for_programs(&address);
    let config = match variable("RINGSIDE_CONFIG") {
        Some(path) => Config::load_over(path, &sized).map_err(|error| invalid(&error))?,
        None => sized,
    };
    Ok((address, config))
}

/// Looks whether there is a device of that name, and opens nothing.
///
/// A program that only looks for devices keeps no descriptor: it may close all it knows of, as
/// daemons do, and open the device afterwards.
pub(crate) fn look_for(name: &str) -> Result<(), Failure> {
    look_in(&Sysfs::default(), name)
}

fn look_in(sysfs: &Sysfs, name: &str) -> Result<(), Failure> {
    let (address, config) = named(name)?;
    let missing = |text: String| Err(Failure::of(libc::ENODEV, text));
    match &address {
        DeviceAddress::VfioUser(path) if !path.exists() => missing(format!(
            "there is no socket at {}: start its server (ringside model serve)",
            path.display()
        )),
        DeviceAddress::Model(index) if u32::from(*index) >= config.model.functions => {
            missing(format!("the model has no function {index}"))
        }
        // Not more: the opening says whether it can be claimed.
        DeviceAddress::Pci { .. } if !sysfs.function_path(&address.to_string()).exists() => {
            let address = address.to_string();
            missing(ClaimError::NoSuchFunction { address }.to_string())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
