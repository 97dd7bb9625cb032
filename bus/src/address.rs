//! A device address as the user writes it: `0000:3b:00.0`, `vfio-user:/run/e810.sock`, `model:0`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The location of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceAddress {
    /// A PCI function of this machine, `domain:bus:device.function` in hexadecimal.
    Pci {
        /// PCI domain (segment).
        domain: u16,
        /// Bus number.
        bus: u8,
        /// Device number, 0..=31.
        device: u8,
        /// Function number, 0..=7.
        function: u8,
    },
    /// A device model in another process, behind a vfio-user socket.
    VfioUser(PathBuf),
    /// A function of the model inside this process, counted from 0.
    Model(u16),
}

/// The text is not a device address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a device address: expected a PCI address such as 0000:3b:00.0, \
     vfio-user:/path/to/socket, or model:N"
)]
pub struct AddressError {
    /// The given value.
    pub text: String,
}

impl FromStr for DeviceAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = || AddressError {
            text: text.to_owned(),
        };
        if let Some(path) = text.strip_prefix("vfio-user:") {
            return if path.is_empty() {
                Err(refuse())
            } else {
                Ok(Self::VfioUser(path.into()))
            };
        }
        if let Some(index) = text.strip_prefix("model:") {
            return index.parse().map(Self::Model).map_err(|_| refuse());
        }
        parse_pci(text).ok_or_else(refuse)
    }
}

fn parse_pci(text: &str) -> Option<DeviceAddress> {
    let (front, function) = text.rsplit_once('.')?;
    let mut parts = front.rsplit(':');
    let device = u8::try_from(hexadecimal(parts.next()?, 2)?).ok()?;
    let bus = u8::try_from(hexadecimal(parts.next()?, 2)?).ok()?;
    let domain = match parts.next() {
        Some(domain) => hexadecimal(domain, 4)?,
        None => 0,
    };
    let function = u8::try_from(hexadecimal(function, 1)?).ok()?;
    let sound = parts.next().is_none() && device < 32 && function < 8;
    sound.then_some(DeviceAddress::Pci {
        domain,
        bus,
        device,
        function,
    })
}

/// Parses one to `digits` hexadecimal digits and nothing else (`from_str_radix` would accept a
/// sign).
fn hexadecimal(text: &str, digits: usize) -> Option<u16> {
    let sound = text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    sound.then(|| u16::from_str_radix(text, 16).ok())?
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci {
                domain,
                bus,
                device,
                function,
            } => {
                write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
            }
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Model(index) => write!(f, "model:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_printing_and_parsing() {
        for text in [
            "0000:3b:00.0",
            "0001:ff:1f.7",
            "vfio-user:/run/e810.sock",
            "model:1",
        ] {
            assert_eq!(text.parse::<DeviceAddress>().unwrap().to_string(), text);
        }
        assert_eq!(
            "3b:00.1".parse::<DeviceAddress>().unwrap().to_string(),
            "0000:3b:00.1"
        );
    }

    #[test]
    fn an_invalid_device_address_is_refused_with_the_valid_forms() {
        for text in [
            "",
            "3b",
            "0000:3b:20.0",
            "0000:3b:00.8",
            "model:",
            "vfio-user:",
            "1:2:3:4.0",
        ] {
            let error = text.parse::<DeviceAddress>().unwrap_err();
            assert!(error.to_string().contains("0000:3b:00.0"), "{error}");
        }
    }
}
