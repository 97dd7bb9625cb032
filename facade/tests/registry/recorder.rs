//! A client that records its calls, and devices under names that are the same in every run.

use ringside::driver::recovery::FailureCause;
use ringside::prelude::*;
use ringside::registry::{
    Cause, Client, ClientError, DeviceHandle, Registry, RegistryError, RegistrySettings,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Functions of the model of this process. Each test has its own.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.model.functions = 40;
    config.housekeeping.retry_ms = 100;
    config
}

pub(crate) fn registry() -> Registry {
    registry_with(Duration::from_secs(20))
}

/// Calls may take that long; a device may be gone for 300 ms.
pub(crate) fn registry_with(call_deadline: Duration) -> Registry {
    let settings = RegistrySettings {
        call_deadline,
        removal_after: Duration::from_millis(300),
    };
    Registry::new(&settings).unwrap()
}

/// A device may be gone that long.
pub(crate) fn registry_gone_for(removal_after: Duration) -> Registry {
    let settings = RegistrySettings {
        call_deadline: LIMIT,
        removal_after,
    };
    Registry::new(&settings).unwrap()
}

/// Opens function `number` under the name `m` and its number.
pub(crate) fn open(registry: &Registry, number: u16) -> DeviceHandle {
    try_open(registry, number).unwrap()
}

pub(crate) fn try_open(registry: &Registry, number: u16) -> Result<DeviceHandle, RegistryError> {
    registry.open_as(&format!("m{number}"), &format!("model:{number}"), &config())
}

/// The calls of all clients of a test, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// The lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Waits until there are `count` lines, and takes them.
    pub(crate) fn wait(&self, count: usize) -> Vec<String> {
        wait_until("the clients' calls", || {
            self.0.lock().unwrap().len() >= count
        });
        self.take()
    }
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) type Hook = Box<dyn FnMut(&DeviceHandle) -> Result<(), ClientError> + Send>;

/// See the module. The hooks run after the line was written.
pub(crate) struct Recorder {
    name: &'static str,
    log: Log,
    pub(crate) on_initialise: Hook,
    pub(crate) on_uninitialise: Hook,
    pub(crate) on_failed: Hook,
    pub(crate) on_recovered: Hook,
}

fn nothing() -> Hook {
    Box::new(|_| Ok(()))
}

impl Recorder {
    pub(crate) fn new(name: &'static str, log: &Log) -> Self {
        Self {
            name,
            log: log.clone(),
            on_initialise: nothing(),
            on_uninitialise: nothing(),
            on_failed: nothing(),
            on_recovered: nothing(),
        }
    }
}

impl Client for Recorder {
    fn initialise(&mut self, device: &DeviceHandle) -> Result<(), ClientError> {
        self.log.add(format!("{} + {}", self.name, device.name()));
        (self.on_initialise)(device)
    }

    fn uninitialise(&mut self, device: &DeviceHandle, cause: Cause) {
        let (name, device_name) = (self.name, device.name());
        self.log.add(format!("{name} - {device_name} {cause:?}"));
        (self.on_uninitialise)(device).unwrap();
    }

    fn failed(&mut self, device: &DeviceHandle, cause: FailureCause) {
        let (name, device_name) = (self.name, device.name());
        self.log
            .add(format!("{name} ! {device_name} {}", cause.name()));
        (self.on_failed)(device).unwrap();
    }

    fn recovered(&mut self, device: &DeviceHandle, life: u32) {
        let (name, device_name) = (self.name, device.name());
        self.log.add(format!("{name} ^ {device_name} {life}"));
        (self.on_recovered)(device).unwrap();
    }
}
