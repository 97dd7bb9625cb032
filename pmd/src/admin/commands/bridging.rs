//! Data centre bridging (DCB): the configuration that the firmware's LLDP agent has in force.

use super::read_at;
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::generic::NoParameters;
use ringside_spec::lan::admin::lldp::{
    CeeConfig, LldpGetMib, MAX_MIB_BYTES, MIB_HEADER_BYTES, MibType, TlvHead, mib, tlv,
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
    /// The configuration in force, of the older standard (0x0A07) or of the newer one (0x0A00). `None`:
    /// the firmware has none, or does not report it.
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
    while let Some((head, body)) = rest.split_first_chunk::<2>() {
        let head = TlvHead(u16::from_be_bytes(*head));
        let length = usize::from(head.length());
        if head.kind() == tlv::END || length > body.len() {
            break;
        }
        let (record, next) = body.split_at(length);
        rest = next;
        let Some((&owner, content)) = record.split_first_chunk::<4>() else {
            continue;
        };
        match (head.kind(), owner, content) {
            (tlv::ORGANIZATION, tlv::CLASSES, [_, classes @ ..]) => {
                let of_priorities = classes.iter().take(4);
                let last = of_priorities.map(|pair| (pair >> 4).max(pair & 0xF)).max();
                found.classes = last.map_or(0, |last| last + 1);
            }
            (tlv::ORGANIZATION, tlv::FLOW_CONTROL, [_, priorities, ..]) => {
                found.flow_control = *priorities;
            }
            _ => {}
        }
    }
    found
}
