//! Serves every device of a registry with one client, and takes one away while it works.
//!
//! Run: `cargo run --example devices`. It injects faults into the model, so it takes no addresses.

use ringside::driver::recovery::FailureCause;
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use ringside::registry::{
    Cause, Client, ClientError, DeviceHandle, DeviceState, DeviceUse, Registry, RegistrySettings,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

/// The client's objects on one device.
struct Served {
    /// Dropped first, because it belongs to the device.
    region: MemoryRegion,
    device: DeviceUse,
}

impl Served {
    fn new(device: DeviceUse) -> Result<Self, ClientError> {
        let domain = device.protection_domain()?;
        let region = domain.register(device.allocate(1 << 20)?, Access::LOCAL_WRITE)?;
        Ok(Self { region, device })
    }
}

/// A part of the program that works with all devices. Its methods run on one thread.
#[derive(Default)]
struct Storage {
    served: BTreeMap<u32, Served>,
}

impl Client for Storage {
    fn initialise(&mut self, device: &DeviceHandle) -> Result<(), ClientError> {
        let served = Served::new(device.device()?)?;
        println!(
            "{}: serving {} bytes",
            device.name(),
            served.region.length()
        );
        self.served.insert(device.index(), served);
        Ok(())
    }

    fn uninitialise(&mut self, device: &DeviceHandle, cause: Cause) {
        println!("{}: uninitialised: {cause}", device.name());
        // The registry shuts the device down once this `DeviceUse` is dropped.
        self.served.remove(&device.index());
    }

    fn failed(&mut self, device: &DeviceHandle, cause: FailureCause) {
        println!("{}: failed: {cause}", device.name());
    }

    fn recovered(&mut self, device: &DeviceHandle, life: u32) {
        // Objects from before the failure are unusable; the client makes new ones.
        let Some(old) = self.served.remove(&device.index()) else {
            return;
        };
        match Served::new(old.device) {
            Ok(served) => {
                println!("{}: serving again, life {life}", device.name());
                self.served.insert(device.index(), served);
            }
            // It failed once more; another call of `failed` or `uninitialise` follows.
            Err(error) => eprintln!("{}: {error}", device.name()),
        }
    }
}

/// Waits until the device is in the state.
fn wait_for(device: &DeviceHandle, state: DeviceState) -> Result<(), Error> {
    let end = Instant::now() + Duration::from_secs(20);
    while device.state() != state {
        if Instant::now() >= end {
            return Err(format!("{device:?} was not {state:?} within 20 s").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// On a card this is the work of an operator, or of an error.
fn inject(device: &DeviceHandle, index: usize, fault: Fault) -> Result<(), Error> {
    let device = device.device()?;
    let model = device.model().ok_or("this example needs the model")?;
    model.with(move |world| world.inject(index, fault));
    Ok(())
}

fn main() -> Result<(), Error> {
    let settings = RegistrySettings {
        removal_after: Duration::from_millis(200),
        ..RegistrySettings::default()
    };
    let registry = Registry::new(&settings)?;
    registry.register("storage", Storage::default())?;
    let config = Config::default();
    let first = registry.open("model:0", &config)?;
    let second = registry.open_as("backup", "model:1", &config)?;
    for (device, port) in registry.ports() {
        println!(
            "{} at {}: port {}",
            device.name(),
            device.address(),
            port.name()
        );
    }

    inject(&first, 0, Fault::Reset(ResetKind::Function))?;
    wait_for(&first, DeviceState::InService { life: 2 })?;

    // The second device is pulled out. The program does not call `remove`.
    inject(&second, 1, Fault::FunctionDead)?;
    wait_for(&second, DeviceState::Removed(Cause::Gone))?;

    // It is put back: the same name and index.
    let model_of = first.device()?;
    let model = model_of.model().ok_or("this example needs the model")?;
    model.with(|world| world.clear_faults(1));
    drop(model_of);
    let back = registry.open("model:1", &config)?;
    if (back.name(), back.index()) != ("backup", second.index()) {
        return Err(format!("{second:?} came back as {back:?}").into());
    }
    registry.close()?;
    println!("all devices are shut down");
    Ok(())
}
