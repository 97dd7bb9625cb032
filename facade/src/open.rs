//! Opens a device by its address.

use ringside_bus::address::AddressError;
use ringside_bus::vfio::ClaimError;
use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_bus::{DeviceAddress, Function, FunctionError, TscClock, VfioFunction};
use ringside_config::{Config, Core};
use ringside_model::embedded::ThreadedError;
use ringside_model::{Threaded, WorldSettings};
use ringside_pmd::{BringUpError, BringUpOptions, ShutdownReport};
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A device in service, with everything that must live as long as it does.
///
/// Dereferences to [`ringside_pmd::Device`], which has the verbs. Dropping it shuts the device down;
/// [`Device::shutdown`] does the same and returns the report.
pub struct Device {
    /// `None` only between the last statement of `shutdown` and the end of the value.
    device: Option<ringside_pmd::Device>,
    address: DeviceAddress,
    /// Keeps the thread of the model alive; dropped after the device.
    model: Option<OpenFunction>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Device({})", self.address)
    }
}

/// A device that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The text is not a device address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// VFIO refused the PCI function.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The vfio-user server refused the connection.
    #[error(transparent)]
    Connect(#[from] FunctionError),
    /// The model did not start.
    #[error(transparent)]
    Model(#[from] ThreadedError),
    /// The model has fewer functions.
    #[error(
        "model:{index} does not exist: the model of this process has {functions} functions; set \
         model.functions to at least {} before the first function is opened",
        index + 1
    )]
    NoSuchFunction {
        /// The requested function.
        index: u16,
        /// The number of functions.
        functions: u16,
    },
    /// This process has the function open already.
    #[error(
        "model:{index} is open already; one driver owns a function, so use that device, or drop it first"
    )]
    Busy {
        /// The requested function.
        index: u16,
    },
    /// The device was claimed, and a stage of its bring-up failed.
    #[error(transparent)]
    BringUp(#[from] Box<BringUpError>),
}

/// The model of this process. It ends with the last open function.
struct Shared {
    model: Weak<Threaded>,
    /// the functions that are open, each by one device
    open: BTreeSet<u16>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    model: Weak::new(),
    open: BTreeSet::new(),
});

fn shared() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One open function of the model of this process. Dropping it lets the function be opened again.
struct OpenFunction {
    index: u16,
    model: Arc<Threaded>,
}

impl Drop for OpenFunction {
    fn drop(&mut self) {
        shared().open.remove(&self.index);
    }
}

impl OpenFunction {
    /// Takes the function, and starts the model if no function of it is open.
    fn take(index: u16, config: &Config) -> Result<Self, OpenError> {
        let mut shared = shared();
        let model = match shared.model.upgrade() {
            Some(model) => model,
            None => Arc::new(start_model(config)?),
        };
        shared.model = Arc::downgrade(&model);
        if !shared.open.insert(index) {
            return Err(OpenError::Busy { index });
        }
        Ok(Self { index, model })
    }
}

fn start_model(config: &Config) -> Result<Threaded, OpenError> {
    let functions = u16::try_from(config.model.functions).unwrap_or(u16::MAX);
    let core = match config.model.thread_core {
        Core::Pinned(core) => Some(core as usize),
        Core::Any => None,
    };
    let settings = WorldSettings::with_functions(functions);
    Ok(Threaded::start(&settings, core)?)
}

fn model_function(index: u16, model: &Threaded) -> Result<Arc<dyn Function>, OpenError> {
    model.function(index).ok_or_else(|| {
        let functions = (0..u16::MAX).take_while(|&index| model.function(index).is_some());
        OpenError::NoSuchFunction {
            index,
            functions: u16::try_from(functions.count()).unwrap_or(u16::MAX),
        }
    })
}

/// Opens the device at `address` and brings it up.
///
/// `address` is one of
/// - `0000:3b:00.0`: a PCI function that is bound to vfio-pci (`ringside bind` does that);
/// - `vfio-user:/run/e810.sock`: a function of a model in another process;
/// - `model:0`: a function of the model in this process. All open functions share one model; it ends
///   with the last of them. `config.model` counts when the first one is opened.
///
/// Takes milliseconds to seconds; every wait has its deadline.
///
/// Errors: [`OpenError`] has a variant for each remedy. After an error the device is as it was
/// found, unless [`BringUpError::undo_failures`] says otherwise.
pub fn open(address: &str, config: &Config) -> Result<Device, OpenError> {
    open_with(&address.parse()?, config, BringUpOptions::default())
}

/// Like [`open`], with a parsed address and options for the bring-up.
pub fn open_with(
    address: &DeviceAddress,
    config: &Config,
    options: BringUpOptions<'_>,
) -> Result<Device, OpenError> {
    // The driver waits by this clock too.
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
            let function = model_function(*index, &open.model)?;
            model = Some(open);
            function
        }
    };
    let device = ringside_pmd::Device::bring_up(function, config, options)?;
    Ok(Device {
        device: Some(device),
        address: address.clone(),
        model,
    })
}

impl Device {
    /// The address that the device was opened by.
    #[must_use]
    pub fn address(&self) -> &DeviceAddress {
        &self.address
    }

    /// The model in this process that the function belongs to; `None` for other devices. Tests use
    /// it to inject faults.
    #[must_use]
    pub fn model(&self) -> Option<&Threaded> {
        self.model.as_ref().map(|open| &*open.model)
    }

    /// Shuts the device down and restores the state in which it was found.
    #[must_use]
    pub fn shutdown(mut self) -> ShutdownReport {
        self.device
            .take()
            .map(ringside_pmd::Device::shutdown)
            .unwrap_or_default()
    }
}

impl Deref for Device {
    type Target = ringside_pmd::Device;

    fn deref(&self) -> &Self::Target {
        self.device
            .as_ref()
            .expect("only `shutdown`, which consumes the device, takes it")
    }
}

impl DerefMut for Device {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.device
            .as_mut()
            .expect("only `shutdown`, which consumes the device, takes it")
    }
}
