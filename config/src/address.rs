//! Where the device is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which function to drive, and how it is reached.
///
/// Text forms: `0000:3b:00.0` (a PCI function, through VFIO), `vfio-user:/run/e810.sock` (a model
/// in another process), `model:0` (function 0 of the model inside this process).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceAddress {
    /// A PCI function of this machine, reached through VFIO.
    Pci(PciAddress),
    /// The socket of a vfio-user server.
    VfioUser(PathBuf),
    /// A function of the model inside this process, counted from 0.
    Model(u32),
}

/// Segment, bus, device and function of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// PCI segment, which Linux calls domain.
    pub segment: u16,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0..=31.
    pub device: u8,
    /// Function number, 0..=7.
    pub function: u8,
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// None of the three forms.
    #[error(
        "`{0}` is no device address: expected `model:0`, `vfio-user:/path/of.sock` or a PCI \
         address as `lspci -D` prints it (`0000:3b:00.0`)"
    )]
    UnknownForm(String),
    /// `model:` without a function number.
    #[error("`{0}`: a function number must follow `model:`, as in `model:0`")]
    ModelFunction(String),
    /// `vfio-user:` without an absolute path.
    #[error("`{0}`: an absolute path must follow `vfio-user:`, as in `vfio-user:/run/e810.sock`")]
    SocketPath(String),
}

impl FromStr for PciAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse_pci(text).ok_or_else(|| AddressError::UnknownForm(text.to_owned()))
    }
}

/// Reads `segment:bus:device.function`; the segment may be absent and is then 0.
fn parse_pci(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.split_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (segment, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
    let address = PciAddress {
        segment: hexadecimal(segment, 4)?.try_into().ok()?,
        bus: hexadecimal(bus, 2)?.try_into().ok()?,
        device: hexadecimal(device, 2)?.try_into().ok()?,
        function: hexadecimal(function, 1)?.try_into().ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

/// A number of exactly `digits` hexadecimal digits, without sign or prefix.
fn hexadecimal(text: &str, digits: usize) -> Option<u32> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain {
        u32::from_str_radix(text, 16).ok()
    } else {
        None
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            segment,
            bus,
            device,
            function,
        } = self;
        write!(f, "{segment:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for DeviceAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(number) = text.strip_prefix("model:") {
            let digits = number.bytes().all(|byte| byte.is_ascii_digit());
            return number
                .parse()
                .ok()
                .filter(|_| digits)
                .map(Self::Model)
                .ok_or_else(|| AddressError::ModelFunction(text.to_owned()));
        }
        if let Some(path) = text.strip_prefix("vfio-user:") {
            return if path.starts_with('/') && !path.contains('\0') {
                Ok(Self::VfioUser(PathBuf::from(path)))
            } else {
                Err(AddressError::SocketPath(text.to_owned()))
            };
        }
        text.parse().map(Self::Pci)
    }
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => address.fmt(f),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Model(function) => write!(f, "model:{function}"),
        }
    }
}

impl TryFrom<String> for DeviceAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<DeviceAddress> for String {
    fn from(address: DeviceAddress) -> Self {
        address.to_string()
    }
}
