//! Traffic classes of the port, as the driver's local MIB (0x0A08) divides it.
//!
//! Source: ice `ice_dcb.c`, `ice_set_dcb_cfg` and `ice_add_ieee_ets_tlv`; IEEE 802.1Qaz.

use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::lldp::tlv;

/// Traffic classes that a port may have.
pub(super) const CLASSES: usize = 8;

/// The classes of a port, and the share of the link that each one gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Classes {
    /// a bit for each class with a priority
    pub(super) used: u8,
    /// percent of the link
    pub(super) share: [u8; CLASSES],
}

impl Classes {
    /// Class 0 has all priorities.
    pub(super) const ONE: Self = Self {
        used: 1,
        share: [100, 0, 0, 0, 0, 0, 0, 0],
    };

    /// Reads the records of a MIB. `None`: none of them is about classes.
    ///
    /// Errors: `Invalid` for a record that is cut, and a class beyond the eight.
    pub(super) fn of_mib(mut bytes: &[u8]) -> Result<Option<Self>, ReturnCode> {
        while !bytes.is_empty() {
            let (kind, content, rest) = tlv::split_first(bytes).ok_or(ReturnCode::Invalid)?;
            if kind == tlv::END {
                break;
            }
            let classes = content.strip_prefix(&tlv::CLASSES);
            if let (tlv::ORGANIZATION, Some(classes)) = (kind, classes) {
                return Self::of_record(classes).map(Some);
            }
            bytes = rest;
        }
        Ok(None)
    }

    fn of_record(content: &[u8]) -> Result<Self, ReturnCode> {
        let (of_priorities, share) = tlv::classes(content).ok_or(ReturnCode::Invalid)?;
        let mut used = 0;
        for class in of_priorities {
            if usize::from(class) >= CLASSES {
                return Err(ReturnCode::Invalid);
            }
            used |= 1 << class;
        }
        Ok(Self { used, share })
    }
}
