//! TAP interfaces of Linux: network interfaces whose frames pass through a file descriptor.
// `TUNSETIFF` has no safe wrapper in rustix. The crate `tappers` refuses interfaces that exist
// already (it requests exclusive creation); an administrator gives a user access that way.
#![allow(unsafe_code)]

use crate::errno::errno_of;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Longest name of an interface, in bytes. Source: Linux `if.h`, IFNAMSIZ less the final zero.
pub const MAX_NAME_BYTES: usize = 15;

/// The names that an interface can have.
pub const NAME_RULE: &str =
    "1 to 15 bytes, not '.' or '..', no space, slash, colon, percent sign or zero";

/// Request that sets the carrier: `_IOW('T', 226, int)`. Source: Linux `if_tun.h`, TUNSETCARRIER.
const SET_CARRIER: libc::c_ulong = 0x4004_54E2;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// Reasons why a TAP interface is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TapError {
    /// The name is invalid.
    #[error("'{name}' is not an interface name: {NAME_RULE}")]
    BadName {
        /// The given value.
        name: String,
    },
    /// The device file cannot be opened.
    #[error(
        "{CLONE_DEVICE}: {error}; load the module tun, and run as root or with CAP_NET_ADMIN in this network namespace"
    )]
    NoDevice {
        /// The operating system's message.
        error: String,
    },
    /// The interface cannot be given its address, its MTU, or be brought up.
    #[error("interface {name}: {error}; do it as root: `{command}`")]
    NotSet {
        /// Its name.
        name: String,
        /// The operating system's message.
        error: String,
        /// The command that does the same.
        command: String,
    },
    /// An interface has this name, and is of another kind.
    #[error(
        "{name} is there already, and is no TAP interface with a single queue (`ip -d link show {name}` shows \
         its kind); choose another name"
    )]
    OtherKind {
        /// Its name.
        name: String,
    },
    /// The process has no right to make the interface, or to use the one that is there.
    #[error(
        "TAP interface {name}: not permitted; run as root or with CAP_NET_ADMIN in this network namespace, \
         or have root make it for this user: `ip tuntap add dev {name} mode tap user $USER`"
    )]
    NotPermitted {
        /// Its name.
        name: String,
    },
    /// Another process has the interface.
    #[error(
        "TAP interface {name} is in use by another process; end that process, or choose another name"
    )]
    InUse {
        /// Its name.
        name: String,
    },
    /// The kernel keeps the offloads of the interface's former user: its packets would have no
    /// checksums, and be longer than the MTU.
    #[error(
        "TAP interface {name}: its offloads cannot be turned off: {error}; choose another name"
    )]
    Offloads {
        /// Its name.
        name: String,
        /// The operating system's message.
        error: String,
    },
    /// The interface cannot be opened.
    #[error(
        "TAP interface {name}: {error}; choose another name if an interface of this name is there already"
    )]
    Refused {
        /// Its name.
        name: String,
        /// The operating system's message.
        error: String,
    },
}

/// A TAP interface that is open: its frames are those of the host's network stack.
#[derive(Debug)]
pub struct Tap {
    name: String,
    descriptor: OwnedFd,
}

/// Addresses that an interface's frames to the reader are limited to; without one, all pass.
/// Source: Linux `if_tun.h`, `struct tun_filter`.
#[repr(C)]
struct TransmitFilter {
    flags: u16,
    count: u16,
}

/// The reason why the host did not receive a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The host has no room for it now.
    #[error("the host has no room for the frame")]
    NoRoom,
    /// The interface is down.
    #[error("the interface is down")]
    Down,
    /// The kernel refuses it.
    #[error("the kernel refuses the frame: {0}")]
    Refused(Errno),
}

impl Tap {
    /// Opens the interface `name`, or creates it for the lifetime of this value. Frames are lost
    /// while it is down. Offloads and filters of a former user are removed from an interface that
    /// exists.
    ///
    /// # Errors
    /// [`TapError`] names the remedy.
    pub fn open(name: &str) -> Result<Self, TapError> {
        let mut request = request(name)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = rustix::fs::open(CLONE_DEVICE, flags, Mode::empty()).map_err(|error| {
            TapError::NoDevice {
                error: error.to_string(),
            }
        })?;
        // whole Ethernet frames without a header before them
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: 1. `TUNSETIFF` reads and writes one `struct ifreq`, which is what `request` is,
        //            whole and initialised, alive and not aliased during the call.
        //         2. the name ends in a zero: it has at most 15 of the 16 bytes.
        //         3. the descriptor is open: `device` owns it.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request) };
        if result != 0 {
            return Err(refusal(name.into(), &std::io::Error::last_os_error()));
        }
        let tap = Self {
            name: name.into(),
            descriptor: device,
        };
        tap.forget_former_user()
            .map_err(|error| TapError::Offloads {
                name: name.into(),
                error: error.to_string(),
            })?;
        Ok(tap)
    }

    /// Removes the settings that an interface keeps from the program that used it before: a virtual
    /// machine's leave checksums and segmentation to the reader. Source: Linux `tun.c`,
    /// `tun_set_iff` and `tun_attach`, which keep them for the next user.
    fn forget_former_user(&self) -> Result<(), Errno> {
        let tap = self.descriptor.as_raw_fd();
        let offloads: libc::c_ulong = 0;
        // SAFETY: 1. `TUNSETOFFLOAD` takes a number, and no memory of this process.
        //         2. the descriptor is open: `self` owns it.
        errno_of(unsafe { libc::ioctl(tap, libc::TUNSETOFFLOAD as _, offloads) })?;
        let no_filter = TransmitFilter { flags: 0, count: 0 };
        // SAFETY: 1. `TUNSETTXFILTER` reads one `struct tun_filter`, and behind it as many
        //            addresses as it counts: none. `no_filter` is alive during the call.
        //         2. the descriptor is open: `self` owns it.
        let passes_all = unsafe { libc::ioctl(tap, libc::TUNSETTXFILTER as _, &no_filter) };
        // SAFETY: 1. `TUNDETACHFILTER` ignores its argument.
        //         2. the descriptor is open: `self` owns it.
        let detached = unsafe { libc::ioctl(tap, libc::TUNDETACHFILTER as _, 0) };
        for result in [passes_all, detached] {
            if let Err(error) = errno_of(result) {
                tracing::debug!(%error, name = self.name, "a filter of the interface may stay");
            }
        }
        Ok(())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives it an address and an MTU, and brings it up; its other flags stay. A value
    /// that it has already is not set again: so a user without CAP_NET_ADMIN can use an interface
    /// that root has set up.
    ///
    /// # Errors
    /// [`TapError::NotSet`].
    pub fn configure(&self, mac: [u8; 6], mtu: u16) -> Result<(), TapError> {
        use rustix::net::{AddressFamily, SocketType, socket};
        let mut request = request(&self.name)?;
        let refused = |error: std::io::Error| {
            let octets: Vec<String> = mac.iter().map(|octet| format!("{octet:02x}")).collect();
            TapError::NotSet {
                name: self.name.clone(),
                error: error.to_string(),
                command: format!(
                    "ip link set dev {} address {} mtu {mtu} up",
                    self.name,
                    octets.join(":")
                ),
            }
        };
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
        let socket = socket.map_err(|error| refused(error.into()))?;
        let mut sa_data = [0; 14];
        for (to, from) in sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        let ask = |operation: libc::Ioctl, request: &mut libc::ifreq| {
            // SAFETY: 1. these operations read and write one `struct ifreq`, which is what
            //            `request` is, whole, initialised, alive and not aliased during the call.
            //         2. the name ends in a zero: it has at most 15 of the 16 bytes.
            //         3. the descriptor is open: `socket` owns it.
            match unsafe { libc::ioctl(socket.as_raw_fd(), operation, request) } {
                0 => Ok(()),
                _ => Err(refused(std::io::Error::last_os_error())),
            }
        };
        ask(libc::SIOCGIFHWADDR as _, &mut request)?;
        // SAFETY: the kernel has just written the address; any bytes are one.
        let has = unsafe { request.ifr_ifru.ifru_hwaddr };
        if has.sa_data[..mac.len()] != sa_data[..mac.len()] {
            request.ifr_ifru.ifru_hwaddr = libc::sockaddr {
                sa_family: libc::ARPHRD_ETHER,
                sa_data,
            };
            ask(libc::SIOCSIFHWADDR as _, &mut request)?;
        }
        ask(libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: the kernel has just written the MTU; any bits are a number.
        if unsafe { request.ifr_ifru.ifru_mtu } != mtu.into() {
            request.ifr_ifru.ifru_mtu = mtu.into();
            ask(libc::SIOCSIFMTU as _, &mut request)?;
        }
        ask(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the kernel has just written the flags; any bits are a number.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let up = libc::IFF_UP as libc::c_short;
        if flags & up == up {
            return Ok(());
        }
        request.ifr_ifru.ifru_flags = flags | up;
        ask(libc::SIOCSIFFLAGS as _, &mut request)
    }

    /// Shows the host whether the interface can carry frames: without a carrier the host sends
    /// none.
    ///
    /// # Errors
    /// The kernel refuses: it is older than 5.0.
    pub fn set_carrier(&self, up: bool) -> Result<(), Errno> {
        let up = libc::c_int::from(up);
        // SAFETY: 1. `SET_CARRIER` reads one `int`, which `up` is, alive during the call.
        //         2. the descriptor is open: `self` owns it.
        errno_of(unsafe { libc::ioctl(self.descriptor.as_raw_fd(), SET_CARRIER as _, &up) })
    }

    /// Copies the next frame of the host into `buffer` and returns its length in bytes; `None` if
    /// there is none. A longer frame is cut to the buffer. Does not wait.
    ///
    /// # Errors
    /// The interface was removed.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        match rustix::io::read(&self.descriptor, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the host a frame. Does not wait.
    ///
    /// # Errors
    /// [`SendError`]: the frame is lost.
    pub fn send(&self, frame: &[u8]) -> Result<(), SendError> {
        match rustix::io::write(&self.descriptor, frame) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN | Errno::INTR) => Err(SendError::NoRoom),
            Err(Errno::IO) => Err(SendError::Down),
            Err(error) => Err(SendError::Refused(error)),
        }
    }
}

impl AsFd for Tap {
    /// Readable while the host has frames.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The reason for which `TUNSETIFF` was refused. Source: Linux `tun.c`, `tun_set_iff`.
fn refusal(name: String, error: &std::io::Error) -> TapError {
    match error.raw_os_error() {
        // not of this driver; TUN instead of TAP; with several queues
        Some(libc::EINVAL) => TapError::OtherKind { name },
        Some(libc::EPERM) => TapError::NotPermitted { name },
        Some(libc::EBUSY) => TapError::InUse { name },
        _ => TapError::Refused {
            name,
            error: error.to_string(),
        },
    }
}

/// True if an interface can have this name ([`NAME_RULE`]).
///
/// Source: Linux `net/core/dev.c`, `dev_valid_name`, for which byte 0xA0 is a space; a percent sign
/// would ask it for a number.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| {
        !matches!(byte, 0 | b'/' | b':' | b'%' | 0x0B | 0xA0) && !byte.is_ascii_whitespace()
    };
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(is_allowed)
}

/// A request for the interface `name`; all fields other than the name are zero.
///
/// # Errors
/// [`TapError::BadName`]: a name that the kernel would cut short would be that of another interface.
fn request(name: &str) -> Result<libc::ifreq, TapError> {
    if !is_name(name) {
        return Err(TapError::BadName { name: name.into() });
    }
    let bytes = name.as_bytes();
    // SAFETY: numbers and arrays of them, and a union of such and of a pointer: zero is valid for
    //         all. The kernel copies the whole structure, so no byte may be left uninitialised.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests;
