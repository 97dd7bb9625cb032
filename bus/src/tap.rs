//! TAP interfaces of Linux: a network interface whose wire is a file descriptor.
// `TUNSETIFF` has no safe wrapper in rustix. The crate `tappers` refuses interfaces that exist
// already (it asks for exclusive creation), which is how an administrator hands one to a user.
#![allow(unsafe_code)]

use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};

/// Longest name of an interface, in bytes. Source: Linux `if.h`, IFNAMSIZ less the final zero.
pub const NAME_BYTES_MAX: usize = 15;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// Why there is no TAP interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TapError {
    /// The name cannot be one.
    #[error(
        "'{name}' is no name of an interface: 1 to {NAME_BYTES_MAX} bytes, no space, slash, percent sign or zero"
    )]
    BadName {
        /// The given value.
        name: String,
    },
    /// The device file cannot be opened.
    #[error(
        "{CLONE_DEVICE}: {error}; load the module tun, and run as root or with CAP_NET_ADMIN in this network namespace"
    )]
    NoDevice {
        /// The system's words.
        error: String,
    },
    /// The interface cannot be had.
    #[error(
        "TAP interface {name}: {error}; make it beforehand with \
         `ip tuntap add dev {name} mode tap user $USER`, and see that nobody else holds it"
    )]
    Refused {
        /// Its name.
        name: String,
        /// The system's words.
        error: String,
    },
}

/// Opens the TAP interface `name`, or makes it for as long as the descriptor lives.
///
/// Each read of the descriptor, which does not block, gives one Ethernet frame without frame check
/// sequence that the host sends over the interface, each write is one that it receives. Writes fail
/// while the interface is down.
///
/// # Errors
/// [`TapError`] says what to do.
pub fn open(name: &str) -> Result<OwnedFd, TapError> {
    let bytes = name.as_bytes();
    let forbidden = |byte: &u8| matches!(byte, 0 | b' ' | b'/' | b'%' | b'\n' | b'\t');
    if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX || bytes.iter().any(forbidden) {
        return Err(TapError::BadName { name: name.into() });
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open(CLONE_DEVICE, flags, Mode::empty()).map_err(|error| {
        TapError::NoDevice {
            error: error.to_string(),
        }
    })?;
    let mut ifr_name = [0; libc::IFNAMSIZ];
    for (to, from) in ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let mut request = libc::ifreq {
        ifr_name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            // whole Ethernet frames, nothing in front of them
            ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short,
        },
    };
    // SAFETY: 1. `TUNSETIFF` reads and writes one `struct ifreq`, which is what `request` is, whole and
    //            initialised, alive and not aliased during the call.
    //         2. the name ends in a zero: it has at most 15 of the 16 bytes.
    //         3. the descriptor is open: `device` owns it.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request) };
    if result != 0 {
        return Err(TapError::Refused {
            name: name.into(),
            error: std::io::Error::last_os_error().to_string(),
        });
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_names_are_refused_before_anything_is_opened() {
        for name in ["", "0123456789abcdef", "a b", "a/b", "tap%d", "a\0b"] {
            let refused = TapError::BadName { name: name.into() };
            assert_eq!(open(name).err(), Some(refused));
        }
    }
}
