//! The source of the two functions of a test.

use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_bus::{Clock, DeviceAddress, Function, TscClock, VfioFunction};
use ringside_model::{Stepped, World, WorldSettings};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The environment variable that names functions other than those of the stepped world.
const DEVICES: &str = "RINGSIDE_TEST_DEVICES";

/// The environment variable that makes models of tests carry every frame as bytes, if it is 1.
const FRAMES_AS_BYTES: &str = "RINGSIDE_FRAMES_AS_BYTES";

/// Settings of a model with `functions` functions. With `RINGSIDE_FRAMES_AS_BYTES=1` in the
/// environment it serialises every frame and parses it again: tests must pass in both modes.
#[must_use]
pub fn world_settings(functions: u16) -> WorldSettings {
    WorldSettings {
        frames_as_bytes: std::env::var_os(FRAMES_AS_BYTES).is_some_and(|value| value == "1"),
        ..WorldSettings::with_functions(functions)
    }
}

/// Claims the function at an address, in real time.
///
/// # Errors
/// The error of the backend. An address of a model in this process (`model:N`) is refused: its
/// functions come from a [`Stepped`] or [`Threaded`](ringside_model::Threaded) model.
pub fn claim(address: &DeviceAddress) -> Result<Arc<dyn Function>, Box<dyn std::error::Error>> {
    let clock = Arc::new(TscClock::new());
    Ok(match address {
        DeviceAddress::Pci { .. } => Arc::new(VfioFunction::claim(address, clock)?),
        DeviceAddress::VfioUser(path) => {
            let limits = ClientLimits::default();
            Arc::new(VfioUserFunction::connect(path, clock, limits)?)
        }
        DeviceAddress::Model(_) => {
            return Err(format!("{address} is in this process; name another device").into());
        }
    })
}

/// Two functions that can reach each other.
pub enum Bed {
    /// Functions of a model in this process, in virtual time.
    Stepped(Stepped),
    /// Cards, or models in other processes, in real time.
    Devices([DeviceAddress; 2]),
}

impl Bed {
    /// True if the functions are those of a model in this process.
    pub fn is_in_process() -> bool {
        std::env::var_os(DEVICES).is_none()
    }

    /// Opens the functions that `RINGSIDE_TEST_DEVICES` names; without it, those of a stepped
    /// world.
    pub fn open() -> Self {
        let Ok(text) = std::env::var(DEVICES) else {
            return Self::Stepped(Stepped::new(&world_settings(2)));
        };
        let addresses = text.split(',').map(|word| word.parse().expect(DEVICES));
        let list: Vec<DeviceAddress> = addresses.collect();
        Self::Devices(list.try_into().expect("two addresses"))
    }

    /// Claims a function.
    pub fn function(&self, index: u16) -> Arc<dyn Function> {
        let address = match self {
            Self::Stepped(world) => return world.function(index).expect("a function"),
            Self::Devices(addresses) => &addresses[usize::from(index)],
        };
        claim(address).unwrap_or_else(|error| panic!("{DEVICES}: {error}"))
    }

    /// The clock of the functions.
    pub fn clock(&self) -> Arc<dyn Clock> {
        match self {
            Self::Stepped(world) => world.clock(),
            Self::Devices(_) => Arc::new(TscClock::new()),
        }
    }

    /// Runs `look` on the model, to inspect it or inject a fault. Panics if the model is not in
    /// this process.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        match self {
            Self::Stepped(world) => world.with(look),
            Self::Devices(_) => panic!("this test looks into the model: it runs in process only"),
        }
    }

    /// Checks that the model counted no breaches of the interface except `expected`, and each of
    /// those on at least one function. A model in another process counts and reports its own
    /// breaches.
    pub fn check_breaches(&self, expected: &[&str]) {
        let Self::Stepped(world) = self else { return };
        let found = [0, 1].map(|index| world.with(|world| world.breaches(index)));
        let kinds: BTreeSet<_> = found.iter().flatten().map(|breach| breach.kind).collect();
        assert_eq!(kinds, expected.iter().copied().collect(), "{found:#?}");
    }
}
