//! The list of features that QUERY_RDMA_FEATURES returns: words of type and value.

use thiserror::Error;

use crate::words;

words! {
    /// Entry of the list.
    /// Source: irdma `ctrl.c`, `irdma_get_rdma_features`; `defs.h`, IRDMA_FEATURE_*.
    pub struct Feature: u64 {
        /// meaning depends on the kind
        value: [47:0],
        /// the feature that the entry reports
        kind: [63:48],
    }

    /// Value of kind 0, which is the first entry.
    pub struct FirmwareInfo: u64 {
        /// minor version
        minor: [15:0],
        /// major version
        major: [31:16],
        /// entries of the list, this one included
        entry_count: [47:32],
    }

    /// Value of kind 1.
    pub struct HardwareInfo: u64 {
        /// minor version
        minor: [7:0],
        /// major version
        major: [23:16],
        /// model
        model: [47:32],
    }
}

/// Kind of the first entry, see [`FirmwareInfo`].
pub const FIRMWARE_INFO: u64 = 0;
/// Kind of the hardware's version, see [`HardwareInfo`].
pub const HARDWARE_INFO: u64 = 1;
/// Kind of the entry with the number of queue sets.
pub const MAX_QUEUE_SETS: u64 = 26;
/// Entries for which a driver has room in its first request.
pub const EXPECTED_ENTRIES: usize = 27;

/// The feature list can not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FeaturesError {
    /// The list is shorter than the least that makes sense.
    #[error("the feature list names {0} entries, at least 2 are needed: firmware is too old")]
    TooFew(u64),
    /// The first entry is not the firmware's version.
    #[error("the feature list starts with kind {0}, not with the firmware's version")]
    NoFirmwareInfo(u64),
    /// The buffer was too small.
    #[error(
        "the feature list has {entries} entries: request it again with a buffer of {bytes} bytes"
    )]
    BufferTooSmall {
        /// Entries of the list.
        entries: u64,
        /// Bytes that are needed.
        bytes: u64,
    },
}

/// The features that mean something to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// The firmware's version.
    pub firmware: FirmwareInfo,
    /// The hardware's version, if reported.
    pub hardware: Option<HardwareInfo>,
    /// Number of queue sets (raw value), if reported.
    pub max_queue_sets: Option<u64>,
}

impl Features {
    /// Reads the list; kinds without a name are skipped.
    ///
    /// # Errors
    /// See [`FeaturesError`].
    pub fn decode(words: &[u64]) -> Result<Self, FeaturesError> {
        let first = Feature(words.first().copied().unwrap_or(0));
        if first.kind() != FIRMWARE_INFO {
            return Err(FeaturesError::NoFirmwareInfo(first.kind()));
        }
        let firmware = FirmwareInfo(first.value());
        let entries = firmware.entry_count();
        if entries < 2 {
            return Err(FeaturesError::TooFew(entries));
        }
        let listed = usize::try_from(entries)
            .ok()
            .and_then(|count| words.get(1..count))
            .ok_or(FeaturesError::BufferTooSmall {
                entries,
                bytes: entries * 8,
            })?;
        let mut features = Self {
            firmware,
            hardware: None,
            max_queue_sets: None,
        };
        for feature in listed.iter().map(|word| Feature(*word)) {
            match feature.kind() {
                HARDWARE_INFO => features.hardware = Some(HardwareInfo(feature.value())),
                MAX_QUEUE_SETS => features.max_queue_sets = Some(feature.value()),
                _ => {}
            }
        }
        Ok(features)
    }

    /// Encodes the list as a device writes it. The entry count is set to the number of listed
    /// entries.
    #[must_use]
    pub fn encode(&self) -> Vec<u64> {
        let mut words = vec![0];
        let mut push = |kind, value| words.push(Feature::ZERO.with_kind(kind).with_value(value).0);
        push(HARDWARE_INFO, self.hardware.unwrap_or(HardwareInfo::ZERO).0);
        if let Some(count) = self.max_queue_sets {
            push(MAX_QUEUE_SETS, count);
        }
        let entries = words.len() as u64;
        words[0] = self.firmware.with_entry_count(entries).0;
        words
    }
}

#[cfg(test)]
mod tests;
