//! Devices: their configuration, bring-up and shutdown.

use crate::Bed;
use crate::bed::world_settings;
use ringside_bus::Function;
use ringside_config::{Config, HugePages};
use ringside_model::{Stepped, Threaded};
use ringside_pmd::{BringUpOptions, Device};
use std::sync::Arc;

/// The configuration of tests: in process it takes any page size.
#[must_use]
pub fn config() -> Config {
    let mut config = Config::default();
    // In process any page size works, and a machine that runs tests may have no huge pages.
    if Bed::is_in_process() {
        config.memory.hugepages = HugePages::None;
    }
    config
}

/// A configuration for devices in process whose port comes up without a DDP package: the search for
/// a package finds nothing, even if the machine has one installed.
#[must_use]
pub fn config_without_package() -> Config {
    let mut config = Config::default();
    config.memory.hugepages = HugePages::None;
    config.ddp.search = vec!["/nonexistent".into()];
    config
}

/// A configuration for devices in process that are brought up thousands of times: few objects of
/// each kind, and deadlines of 100 ms, so that a device that no longer responds is detected soon.
#[must_use]
pub fn small_config() -> Config {
    let mut config = Config::default();
    config.memory.hugepages = HugePages::None;
    config.rdma.queue_pairs = 16;
    config.rdma.completion_queues = 16;
    config.rdma.memory_regions = 64;
    config.rdma.pbles = 4096;
    config.rdma.address_handles = 16;
    config.rdma.arp_entries = 16;
    config.rdma.multicast_groups = 8;
    config.deadlines.control_queue_ms = 100;
    config.deadlines.admin_queue_ms = 100;
    config
}

/// Starts a model of two functions on a thread of its own, in real time.
#[must_use]
pub fn threaded() -> Threaded {
    Threaded::start(&world_settings(2), None).unwrap_or_else(|error| panic!("no model: {error}"))
}

/// Brings up a function of a stepped world; panics with the last stage if that fails.
#[must_use]
pub fn bring_up(world: &Stepped, index: u16, config: &Config) -> Device {
    bring_up_function(world.function(index).expect("a function"), index, config)
}

/// Brings up a function; panics with the last stage if that fails.
#[must_use]
pub fn bring_up_function(function: Arc<dyn Function>, index: u16, config: &Config) -> Device {
    Device::bring_up(function, config, BringUpOptions::default()).unwrap_or_else(|error| {
        panic!(
            "function {index}: {error}\n{:#?}",
            error.trace.stages.last()
        )
    })
}

/// Brings up functions 0 to `N` - 1 of a model, in this order. `function` returns the function with
/// an index, for example `|index| model.function(index)`.
#[must_use]
pub fn bring_up_all<const N: usize>(
    mut function: impl FnMut(u16) -> Option<Arc<dyn Function>>,
    config: &Config,
) -> [Device; N] {
    std::array::from_fn(|index| {
        let index = index as u16;
        let found = function(index).unwrap_or_else(|| panic!("the model has no function {index}"));
        bring_up_function(found, index, config)
    })
}

/// Shuts devices down. Panics if an undo fails or memory is leaked.
pub fn shut_down(devices: impl IntoIterator<Item = Device>) {
    for (index, device) in devices.into_iter().enumerate() {
        let report = device.shutdown();
        let failures = &report.failures;
        assert!(failures.is_empty(), "device {index}: {failures:#?}");
        assert_eq!(report.leaked_bytes, 0, "device {index}");
    }
}
