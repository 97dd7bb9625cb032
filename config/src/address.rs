//! The device's address as text in the configuration.

use ringside_bus::DeviceAddress;
use serde::{Deserialize, Deserializer, Serializer, de};

pub(crate) fn serialize<S: Serializer>(
    address: &DeviceAddress,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(address)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<DeviceAddress, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(de::Error::custom)
}
