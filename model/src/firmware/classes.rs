//! Traffic classes of the port, as the driver's local MIB (0x0A08) divides it.
//!
//! Source: ice `ice_dcb.c`, `ice_set_dcb_cfg`, `ice_add_ieee_ets_tlv` and `ice_add_dscp_up_tlv`;
//! IEEE 802.1Qaz.

use crate::lan::classes::{CLASSES, FrameClasses};
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::lldp::tlv;

/// The classes of a port, and the share of the link that each one gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Classes {
    /// a bit for each class with a priority, a DSCP or a share
    pub(super) used: u8,
    /// percent of the link
    pub(super) share: [u8; CLASSES],
    /// the classes of received frames
    pub(super) of_frames: FrameClasses,
}

/// Contents of the records that are about classes.
#[derive(Clone, Copy, Default)]
struct Records<'a> {
    priorities: Option<&'a [u8]>,
    dscps: Option<&'a [u8]>,
    dscp_shares: Option<&'a [u8]>,
}

impl<'a> Records<'a> {
    fn of_mib(mut bytes: &'a [u8]) -> Result<Self, ReturnCode> {
        let mut found = Self::default();
        while !bytes.is_empty() {
            let (kind, content, rest) = tlv::split_first(bytes).ok_or(ReturnCode::Invalid)?;
            if kind == tlv::END {
                break;
            }
            bytes = rest;
            if kind != tlv::ORGANIZATION {
                continue;
            }
            let owned = |owner: [u8; 4]| content.strip_prefix(&owner);
            found = Self {
                priorities: found.priorities.or_else(|| owned(tlv::CLASSES)),
                dscps: found.dscps.or_else(|| owned(tlv::DSCP_CLASSES)),
                dscp_shares: found.dscp_shares.or_else(|| owned(tlv::DSCP_SHARES)),
            };
        }
        Ok(found)
    }
}

impl Classes {
    /// Class 0 has all priorities.
    pub(super) const ONE: Self = Self {
        used: 1,
        share: [100, 0, 0, 0, 0, 0, 0, 0],
        of_frames: FrameClasses::One,
    };

    /// Reads the records of a MIB. `None`: none of them is about classes.
    ///
    /// Errors: `Invalid` for a record that is cut, and a class beyond the eight.
    pub(super) fn of_mib(bytes: &[u8]) -> Result<Option<Self>, ReturnCode> {
        let records = Records::of_mib(bytes)?;
        if let Some(classes) = records.dscps {
            return Self::of_dscps(classes, records.dscp_shares).map(Some);
        }
        records.priorities.map(Self::of_priorities).transpose()
    }

    fn of_priorities(content: &[u8]) -> Result<Self, ReturnCode> {
        let (classes, share) = tlv::classes(content).ok_or(ReturnCode::Invalid)?;
        Ok(Self {
            used: used(&classes)?,
            share,
            of_frames: FrameClasses::Priority(classes),
        })
    }

    /// A class without DSCP counts if it has a share: Linux enables all eight, and lets its user
    /// move their DSCPs. Source: ice `ice_dcb_nl.c`, `ice_dcbnl_setapp`.
    fn of_dscps(classes: &[u8], shares: Option<&[u8]>) -> Result<Self, ReturnCode> {
        let (v4, v6) = tlv::dscp_classes(classes).ok_or(ReturnCode::Invalid)?;
        let share = match shares {
            Some(content) => tlv::dscp_shares(content).ok_or(ReturnCode::Invalid)?,
            None => Self::ONE.share,
        };
        let shared = (0u8..).zip(share).filter(|(_, percent)| *percent > 0);
        let with_share = shared.fold(0, |all, (class, _)| all | 1 << class);
        Ok(Self {
            used: used(&v4)? | used(&v6)? | with_share,
            share,
            of_frames: FrameClasses::Dscp { v4, v6 },
        })
    }
}

/// A bit for each class.
fn used(classes: &[u8]) -> Result<u8, ReturnCode> {
    let mut used = 0;
    for class in classes {
        if usize::from(*class) >= CLASSES {
            return Err(ReturnCode::Invalid);
        }
        used |= 1 << class;
    }
    Ok(used)
}
