//! Names and indexes of devices and ports, which stay the same while the process lives.

use super::error::RegistryError;
use ringside_bus::DeviceAddress;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Addresses that a process may name. Names are never forgotten, so they are bounded.
pub(super) const MAX_NAMES: usize = 4096;

/// The longest name, bytes. Linux: `IB_DEVICE_NAME_MAX` is 64 with the zero.
const MAX_NAME_BYTES: usize = 63;

/// The longest wait for other threads that name a device.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

/// The prefix of generated names. The C library names its device with the same prefix.
const PREFIX: &str = "ringside";

/// The lasting name of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: Arc<str>,
    /// from 0, in the order in which addresses were first opened in this process
    pub(super) index: u32,
    /// the same of its port
    pub(super) port_index: u32,
}

/// The names so far; the index of a device is its index in this list.
static NAMES: Mutex<Names> = Mutex::new(Names { given: Vec::new() });

struct Names {
    given: Vec<(DeviceAddress, Arc<str>)>,
}

/// Returns the name of the device at `address`: its present one, otherwise `wanted`, otherwise a
/// new one.
pub(super) fn name(
    address: &DeviceAddress,
    wanted: Option<&str>,
) -> Result<Identity, RegistryError> {
    names()?.name(&full(address), wanted)
}

/// The names; they may stay locked in a child by fork whose parent was naming a device.
fn names() -> Result<MutexGuard<'static, Names>, RegistryError> {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match NAMES.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(guard)) => return Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(RegistryError::NamesLocked);
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

impl Names {
    fn name(
        &mut self,
        address: &DeviceAddress,
        wanted: Option<&str>,
    ) -> Result<Identity, RegistryError> {
        let known = self.given.iter().position(|(known, _)| known == address);
        if let Some(at) = known {
            let (_, name) = &self.given[at];
            return match wanted {
                Some(wanted) if wanted != &**name => Err(RegistryError::NamedAlready {
                    address: address.clone(),
                    name: name.to_string(),
                    wanted: wanted.to_owned(),
                }),
                _ => Ok(identity(at, name)),
            };
        }
        if self.given.len() >= MAX_NAMES {
            return Err(RegistryError::TooMany {
                what: "addresses of devices",
                limit: MAX_NAMES,
            });
        }
        let name = match wanted {
            Some(wanted) => self.check(wanted)?,
            None => self.next(),
        };
        self.given.push((address.clone(), Arc::clone(&name)));
        Ok(identity(self.given.len() - 1, &name))
    }

    fn owner(&self, name: &str) -> Option<&DeviceAddress> {
        let found = self.given.iter().find(|(_, known)| &**known == name);
        found.map(|(address, _)| address)
    }

    fn check(&self, wanted: &str) -> Result<Arc<str>, RegistryError> {
        let is_sound = (1..=MAX_NAME_BYTES).contains(&wanted.len())
            && wanted
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_sound {
            return Err(RegistryError::BadName {
                name: wanted.to_owned(),
            });
        }
        match self.owner(wanted) {
            Some(owner) => Err(RegistryError::NameInUse {
                name: wanted.to_owned(),
                address: owner.clone(),
            }),
            None => Ok(wanted.into()),
        }
    }

    /// The first free name from the next index on.
    fn next(&self) -> Arc<str> {
        let mut number = self.given.len();
        loop {
            let name = format!("{PREFIX}{number}");
            if self.owner(&name).is_none() {
                return name.into();
            }
            number += 1;
        }
    }
}

fn identity(at: usize, name: &Arc<str>) -> Identity {
    let index = u32::try_from(at).unwrap_or(u32::MAX);
    Identity {
        name: Arc::clone(name),
        index,
        // A function of the E810 has one port.
        port_index: index,
    }
}

/// Normalises an address: every spelling of a socket's path gives the same one. Symbolic links are
/// not followed.
pub(super) fn full(address: &DeviceAddress) -> DeviceAddress {
    match address {
        DeviceAddress::VfioUser(path) => {
            DeviceAddress::VfioUser(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u16) -> DeviceAddress {
        DeviceAddress::Model(number)
    }

    #[test]
    fn an_address_keeps_its_name_and_no_other_address_gets_it() {
        let mut names = Names { given: Vec::new() };
        let first = names.name(&at(0), None).unwrap();
        let second = names.name(&at(1), Some("storage")).unwrap();
        assert_eq!((&*first.name, first.index), ("ringside0", 0));
        assert_eq!((&*second.name, second.index), ("storage", 1));
        assert_eq!(names.name(&at(0), None).unwrap(), first);
        assert_eq!(names.name(&at(1), None).unwrap(), second);
        assert_eq!(names.name(&at(1), Some("storage")).unwrap(), second);

        let other = names.name(&at(1), Some("backup")).unwrap_err().to_string();
        assert!(
            other.contains("storage") && other.contains("backup"),
            "{other}"
        );
        let taken = names.name(&at(2), Some("storage")).unwrap_err().to_string();
        assert!(taken.contains("model:1"), "{taken}");
        let third = names.name(&at(2), None).unwrap();
        assert_eq!((&*third.name, third.index), ("ringside2", 2));
    }

    #[test]
    fn a_name_that_a_program_took_is_passed_over() {
        let mut names = Names { given: Vec::new() };
        names.name(&at(0), Some("ringside1")).unwrap();
        assert_eq!(&*names.name(&at(1), None).unwrap().name, "ringside2");
        // The next index is 2, and its name belongs to index 1.
        assert_eq!(&*names.name(&at(2), None).unwrap().name, "ringside3");
    }

    #[test]
    fn a_name_has_to_be_short_and_plain() {
        let mut names = Names { given: Vec::new() };
        for bad in ["", "a b", "a/b", "naïve", &"x".repeat(64)] {
            let refused = names.name(&at(0), Some(bad)).unwrap_err();
            assert!(
                matches!(refused, RegistryError::BadName { .. }),
                "{refused}"
            );
        }
        names.name(&at(0), Some(&"x".repeat(63))).unwrap();
    }

    #[test]
    fn names_are_bounded() {
        let mut names = Names { given: Vec::new() };
        for number in 0..MAX_NAMES {
            names
                .given
                .push((at(number as u16), format!("n{number}").into()));
        }
        let refused = names.name(&at(MAX_NAMES as u16), None).unwrap_err();
        assert!(
            matches!(refused, RegistryError::TooMany { .. }),
            "{refused}"
        );
        assert_eq!(names.name(&at(7), None).unwrap().index, 7);
    }

    #[test]
    fn two_spellings_of_a_socket_are_one_address() {
        let here = std::env::current_dir().unwrap();
        let long = DeviceAddress::VfioUser(here.join("e810.sock"));
        let short = DeviceAddress::VfioUser("./e810.sock".into());
        assert_eq!(full(&short), full(&long));
    }
}
