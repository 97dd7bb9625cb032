//! Traffic classes of the port, as the driver's local MIB (0x0A08) divides it.
//!
//! Source: ice `ice_dcb.c`, `ice_set_dcb_cfg` and `ice_add_ieee_ets_tlv`; IEEE 802.1Qaz.

use ringside_spec::lan::admin::ReturnCode;

/// Traffic classes that a port may have.
pub(super) const CLASSES: usize = 8;

/// Type of a TLV that an organisation defines.
const TYPE_ORGANISATION: u16 = 127;
/// Organisation and subtype of the TLV "ETS configuration".
const ETS_CONFIGURATION: [u8; 4] = [0x00, 0x80, 0xC2, 9];
/// Bytes of that TLV before its table of priorities: organisation, subtype and number of classes.
const ETS_HEAD: usize = 5;
/// Bytes of the table of priorities: half a byte for each.
const ETS_PRIORITIES: usize = 4;

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

    /// Reads the TLVs of a MIB. `None`: they do not speak of classes.
    ///
    /// Errors: `Invalid` for a TLV that is cut, and a class beyond the eight.
    pub(super) fn of_mib(mut bytes: &[u8]) -> Result<Option<Self>, ReturnCode> {
        while let [high, low, rest @ ..] = bytes {
            let head = u16::from_be_bytes([*high, *low]);
            let length = usize::from(head & 0x1FF);
            let (value, after) = rest.split_at_checked(length).ok_or(ReturnCode::Invalid)?;
            if head >> 9 == TYPE_ORGANISATION && value.starts_with(&ETS_CONFIGURATION) {
                return Self::of_ets(value).map(Some);
            }
            bytes = after;
        }
        Ok(None)
    }

    fn of_ets(value: &[u8]) -> Result<Self, ReturnCode> {
        let tables = value.get(ETS_HEAD..).ok_or(ReturnCode::Invalid)?;
        let (priorities, shares) = tables
            .split_at_checked(ETS_PRIORITIES)
            .ok_or(ReturnCode::Invalid)?;
        let mut classes = Self {
            used: 0,
            share: *shares.first_chunk().ok_or(ReturnCode::Invalid)?,
        };
        for class in priorities.iter().flat_map(|two| [two >> 4, two & 0xF]) {
            if usize::from(class) >= CLASSES {
                return Err(ReturnCode::Invalid);
            }
            classes.used |= 1 << class;
        }
        Ok(classes)
    }
}
