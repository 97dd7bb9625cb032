//! Opening the function of an address.

use crate::failure::Failure;
use ringside_bus::pinning::allowed_cores;
use ringside_bus::sysfs::Sysfs;
use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_bus::{DeviceAddress, Function, TscClock, VfioFunction};
use ringside_config::{Config, Core, NumaNode};
use ringside_model::embedded::ThreadedError;
use ringside_model::{Threaded, WorldSettings};
use std::sync::{Arc, OnceLock};

/// The configuration that the command line names, or the defaults.
pub(crate) fn load_config(path: Option<&std::path::Path>) -> Result<Config, Failure> {
    match path {
        Some(path) => {
            let config = Config::load(path).map_err(Failure::usage)?;
            check_node(&config, &Sysfs::default())?;
            Ok(config)
        }
        None => Ok(Config::default()),
    }
}

/// Refuses a NUMA node that this machine does not have: memory would come from any other.
fn check_node(config: &Config, sysfs: &Sysfs) -> Result<(), Failure> {
    let nodes = sysfs.path("sys/devices/system/node");
    match config.memory.numa_node {
        NumaNode::Node(node) if nodes.is_dir() && !nodes.join(format!("node{node}")).is_dir() => {
            Err(Failure::usage(anyhow::anyhow!(
                "memory.numa_node = {node}: this machine has no such node; `ls {}` lists them, and \
                 \"auto\" takes the node of the card",
                nodes.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Cores of this process before its main thread was pinned.
static CORES_AT_START: OnceLock<usize> = OnceLock::new();

/// The number of cores that this process may use, also once its main thread is pinned.
pub(crate) fn core_count() -> usize {
    *CORES_AT_START.get_or_init(|| allowed_cores().len())
}

/// The cores for driver and model: those requested, else two different ones if there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) driver: Option<usize>,
    pub(crate) model: Option<usize>,
}

impl Cores {
    pub(crate) fn choose(asked: &[usize], config: &Config) -> Self {
        let allowed = allowed_cores();
        CORES_AT_START.get_or_init(|| allowed.len());
        let from_config = config.worker.cores.first().map(|&core| core as usize);
        let model_core = match config.model.thread_core {
            Core::Pinned(core) => Some(core as usize),
            Core::Any => None,
        };
        let driver = asked
            .first()
            .copied()
            .or(from_config)
            .or(allowed.first().copied());
        let other = allowed.iter().copied().find(|&core| Some(core) != driver);
        Self {
            driver,
            model: asked.get(1).copied().or(model_core).or(other),
        }
    }

    /// True if driver and model have one core between them.
    pub(crate) fn are_one(self) -> bool {
        match (self.driver, self.model) {
            (Some(driver), Some(model)) => driver == model,
            (Some(driver), None) => allowed_cores().iter().all(|&core| core == driver),
            (None, _) => false,
        }
    }
}

/// The model inside this process.
pub(crate) fn start_model(config: &Config, cores: Cores) -> Result<Threaded, Failure> {
    let functions = u16::try_from(config.model.functions).unwrap_or(u16::MAX);
    let started = Threaded::start(&WorldSettings::with_functions(functions), cores.model);
    started.map_err(|error| match error {
        ThreadedError::Pin(_) => Failure::usage(error),
        other => Failure::operation(other),
    })
}

/// A function of the model.
pub(crate) fn model_function(model: &Threaded, index: u16) -> Result<Arc<dyn Function>, Failure> {
    model.function(index).ok_or_else(|| {
        let most = ringside_config::MAX_FUNCTIONS;
        let remedy = match u32::from(index) < most {
            true => format!(
                "raise model.functions in the configuration to {}",
                index + 1
            ),
            false => format!("a model has at most {most}: model:0 to model:{}", most - 1),
        };
        Failure::claim(anyhow::anyhow!("model:{index} does not exist; {remedy}"))
    })
}

/// The function that an address names, and its model if that runs in this process.
pub(crate) struct Opened {
    pub(crate) function: Arc<dyn Function>,
    pub(crate) model: Option<(Threaded, usize)>,
}

/// Opens the function of an address.
pub(crate) fn open(address: &DeviceAddress, config: &Config) -> Result<Opened, Failure> {
    if let DeviceAddress::VfioUser(path) = address {
        // The clock is the one that the driver waits by.
        let clock = Arc::new(TscClock::new());
        let function = VfioUserFunction::connect(path, clock, ClientLimits::default());
        let function = Arc::new(function.map_err(Failure::claim)?);
        return Ok(Opened {
            function,
            model: None,
        });
    }
    if let DeviceAddress::Pci { .. } = address {
        let function = VfioFunction::claim(address, Arc::new(TscClock::new()));
        let function = Arc::new(function.map_err(Failure::claim)?);
        return Ok(Opened {
            function,
            model: None,
        });
    }
    let index = model_index(address)?;
    let model = start_model(config, Cores::choose(&[], config))?;
    let function = model_function(&model, index)?;
    Ok(Opened {
        function,
        model: Some((model, index.into())),
    })
}

/// The index of a model function; other backends are refused with the remedy.
pub(crate) fn model_index(address: &DeviceAddress) -> Result<u16, Failure> {
    match address {
        DeviceAddress::Model(index) => Ok(*index),
        DeviceAddress::VfioUser(_) | DeviceAddress::Pci { .. } => {
            Err(Failure::usage(anyhow::anyhow!(
                "{address}: a bench of functions that are not of the built-in model takes two: --device \
             and --peer"
            )))
        }
    }
}

/// The first of several addresses that names the function of an earlier one.
pub(crate) fn named_twice(addresses: &[DeviceAddress]) -> Option<&DeviceAddress> {
    let same = |address: &DeviceAddress| match address {
        // One socket may have several paths.
        DeviceAddress::VfioUser(path) => {
            let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
            DeviceAddress::VfioUser(path)
        }
        other => other.clone(),
    };
    let all: Vec<DeviceAddress> = addresses.iter().map(same).collect();
    let twice = (1..all.len()).find(|at| all[..*at].contains(&all[*at]));
    twice.and_then(|at| addresses.get(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn a_numa_node_that_the_machine_does_not_have_is_refused() {
        let tree = Tree::new();
        let mut config = Config::default();
        config.memory.numa_node = NumaNode::Node(3);
        // A kernel without NUMA shows no nodes.
        assert!(check_node(&config, &tree.sysfs()).is_ok());
        for node in [0, 1] {
            let file = format!("sys/devices/system/node/node{node}/cpulist");
            tree.file(&file, "0\n");
        }
        let failure = check_node(&config, &tree.sysfs()).unwrap_err();
        assert!(failure.is_usage());
        let text = failure.text();
        assert!(text.starts_with("memory.numa_node = 3: "), "{text}");
        for node in [NumaNode::Node(1), NumaNode::Auto] {
            config.memory.numa_node = node;
            assert!(check_node(&config, &tree.sysfs()).is_ok());
        }
    }

    #[test]
    fn a_socket_is_named_twice_by_two_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        std::fs::write(&path, "").unwrap();
        let other = folder.path().join("./link");
        std::os::unix::fs::symlink(&path, &other).unwrap();
        let all = [
            DeviceAddress::VfioUser(path),
            DeviceAddress::VfioUser(other),
        ];
        assert_eq!(named_twice(&all), Some(&all[1]));
        let others = [all[0].clone(), DeviceAddress::Model(0)];
        assert_eq!(named_twice(&others), None);
    }
}
