//! Data centre bridging: the configuration that the firmware's LLDP agent has agreed on with the
//! switch, if the agent runs.

use super::command::{Command, Outcome};
use crate::faults::Fault;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::lldp::{LldpGetMib, MIB_HEADER_BYTES, MibType, TlvHead, mib, tlv};
use ringside_spec::lan::registers::reset::{DcbStatus, dcb_exchange};

/// Ethernet header of LLDP: multicast address, no source, type.
const HEADER: [u8; MIB_HEADER_BYTES] = [
    0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E, 0, 0, 0, 0, 0, 0, 0x88, 0xCC,
];
/// Eight classes are possible. Priority 3 is in class 1, the others are in class 0. Each class has
/// half of the bandwidth, shared by its queues (2).
const CLASSES: [u8; 21] = [
    0x00, 0x00, 0x01, 0x00, 0x00, 50, 50, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0,
];
/// Eight priorities can have flow control; priority 3 has.
const FLOW_CONTROL: [u8; 2] = [0x08, 1 << 3];

/// State of the exchange, as the register reports it.
pub(crate) fn status(faults: &[Fault]) -> u32 {
    let exchange = if faults.contains(&Fault::LldpAgent) {
        dcb_exchange::DONE
    } else {
        dcb_exchange::DISABLED
    };
    DcbStatus::ZERO.with_exchange(exchange).0
}

/// The port's own configuration in the form of the newer standard; none without the agent.
pub(super) fn configuration(command: &mut Command, faults: &[Fault]) -> Outcome {
    let asked: LldpGetMib = command.parameters();
    if !faults.contains(&Fault::LldpAgent) || MibType(asked.kind).kind() != mib::LOCAL {
        return Err(ReturnCode::NoEntry);
    }
    let mut data = HEADER.to_vec();
    for (owner, content) in [
        (tlv::CLASSES, CLASSES.as_slice()),
        (tlv::FLOW_CONTROL, FLOW_CONTROL.as_slice()),
    ] {
        let length = owner.len() + content.len();
        let head = TlvHead::ZERO
            .with_kind(tlv::ORGANIZATION)
            .with_length(u16::try_from(length).unwrap_or(0));
        data.extend_from_slice(&head.0.to_be_bytes());
        data.extend_from_slice(&owner);
        data.extend_from_slice(content);
    }
    data.extend_from_slice(&[0; 2]);
    command.put_bytes(0, &data)?;
    let answer = LldpGetMib {
        local_length_bytes: u16::try_from(data.len()).unwrap_or(0).into(),
        ..asked
    };
    command.answer_with(&answer, data.len())
}
