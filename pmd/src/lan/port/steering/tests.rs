//! Descriptors against those that DPDK's driver computes: `tests/vectors/lan_data.json`.

use super::*;
use crate::lan::port::{FlowKind, RuleKind};
use serde_json::Value;

const VECTORS: &str = include_str!("../../../../../tests/vectors/lan_data.json");

#[test]
fn descriptors_are_those_that_a_known_driver_writes() {
    let all: Vec<Value> = serde_json::from_str(VECTORS).expect("JSON");
    let of_kind = |one: &&Value| one["kind"] == "fdir_program_descriptor";
    let mut seen = 0;
    for vector in all.iter().filter(of_kind) {
        let name = vector["name"].as_str().unwrap();
        let input = &vector["input"];
        let number = |key: &str| input[key].as_u64().unwrap_or(0);
        if name.contains("as_linux") {
            // It reports failures only.
            continue;
        }
        let queue = number("queue") as u16;
        let target = match input["destination"].as_str().unwrap() {
            "drop" => FlowTarget::Drop,
            "queue" => FlowTarget::Queue(queue),
            "queue group" => FlowTarget::Group {
                first: queue,
                count: 1 << number("region_log2"),
            },
            _ => FlowTarget::Spread,
        };
        let rule = FlowRule {
            packets: FlowMatch::of(RuleKind::Flow(FlowKind::TcpV4)),
            target,
            mark: (number("mark") > 0).then_some(number("mark") as u32),
            count: number("count_enable") > 0,
        };
        let counter = rule.count.then_some(number("counter") as u16);
        let remove = number("remove") > 0;
        let words = [
            action(&rule, counter).0,
            identity(&rule, number("vsi_number") as u16, remove).0,
        ];
        let hex: String = words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(Value::from(hex), vector["bytes"], "{name}");
        seen += 1;
    }
    assert_eq!(seen, 9);
}

/// A part that the device does not have is gone; one that it does not report may still be there.
#[test]
fn a_part_that_is_not_removed_does_not_keep_the_others_installed() {
    let packets = FlowMatch {
        vlan: Some(5),
        ..FlowMatch::of(RuleKind::All)
    };
    let kinds = packets.kinds();
    let silent = FilterError::NotReported {
        what: "report a rule",
        waited_ms: 5,
    };
    let mut answers = kinds.iter().map(|kind| match kind {
        PacketKind::Flow(FlowKind::UdpV4) => Err(PortError::Filter(FilterError::Refused)),
        PacketKind::Flow(FlowKind::OtherV4) => Err(PortError::Filter(silent)),
        PacketKind::Ethernet => Err(PortError::Filter(FilterError::Lost)),
        PacketKind::Flow(_) => Ok(()),
    });
    let mut asked = Vec::new();
    let (left, first) = remove_each(&kinds, |kind| {
        asked.push(kind);
        answers.next().expect("an answer for each kind")
    });
    assert_eq!(asked, kinds);
    let unknown = [PacketKind::Flow(FlowKind::OtherV4), PacketKind::Ethernet];
    assert_eq!(left, unknown);
    assert_eq!(first, Err(PortError::Filter(silent)));
    let (left, first) = remove_each(&left, |_| Ok(()));
    assert_eq!((left, first), (Vec::new(), Ok(())));
}
