//! Data centre bridging (DCB): the configuration that the firmware's LLDP agent has in force.

use super::read_at;
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::generic::NoParameters;
use ringside_spec::lan::admin::lldp::{
    CeeConfig, LldpGetMib, MAX_MIB_BYTES, MIB_HEADER_BYTES, MibType, mib, tlv,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};

/// The configuration in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bridging {
    /// Traffic classes; 0 if the firmware does not report them.
    pub classes: u8,
    /// Priorities with flow control, a bit each.
    pub flow_control: u8,
}

impl AdminQueue {
    /// The configuration in force, of the older standard (0x0A07) or of the newer one (0x0A00).
    /// `None`: the firmware has none, or does not report it.
    ///
    /// Source: ice `ice_dcb.c`, `ice_get_dcb_cfg`.
    pub fn bridging(&self) -> Result<Option<Bridging>, AdminError> {
        match self.older_bridging() {
            Ok(found) => Ok(Some(found)),
            Err(AdminError::Refused {
                code: ReturnCode::NoEntry,
                ..
            }) => match self.newer_bridging() {
                Ok(found) => Ok(Some(found)),
                Err(AdminError::Refused { .. }) => Ok(None),
                Err(error) => Err(error),
            },
            Err(AdminError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn older_bridging(&self) -> Result<Bridging, AdminError> {
        let opcode = Opcode::GetCeeDcbConfig;
        let data = Data::Receive(CeeConfig::SIZE);
        let answer = self.execute(opcode, &NoParameters::zeroed(), data)?;
        let config: CeeConfig = read_at(opcode, &answer.data, 0)?;
        Ok(Bridging {
            classes: config.class_count,
            flow_control: config.flow_control,
        })
    }

    fn newer_bridging(&self) -> Result<Bridging, AdminError> {
        let parameters = LldpGetMib {
            kind: MibType::ZERO.with_kind(mib::LOCAL).0,
            ..LldpGetMib::zeroed()
        };
        let data = Data::Receive(MAX_MIB_BYTES);
        let answer = self.execute(Opcode::LldpGetMib, &parameters, data)?;
        let records = answer.data.get(MIB_HEADER_BYTES..);
        Ok(decode_records(records.unwrap_or_default()))
    }
}

/// Reads the records that matter; records that end early are left out.
pub(super) fn decode_records(mut rest: &[u8]) -> Bridging {
    let mut found = Bridging::default();
    while let Some((kind, content, next)) = tlv::split_first(rest) {
        if kind == tlv::END {
            break;
        }
        rest = next;
        if kind != tlv::ORGANIZATION {
            continue;
        }
        if let Some(classes) = content.strip_prefix(&tlv::CLASSES) {
            let last = tlv::classes(classes).and_then(|(classes, _)| classes.into_iter().max());
            found.classes = last.map_or(0, |last| last + 1);
        } else if let Some([_, priorities, ..]) = content.strip_prefix(&tlv::FLOW_CONTROL) {
            found.flow_control = *priorities;
        }
    }
    found
}
