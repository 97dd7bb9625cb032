//! The board around the chip: the cage of the port, and the equalizers of its lanes.

use super::command::{Command, Outcome};
use crate::chip::Context;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::board::{
    self, CAGE_QSFP28, EQUALIZER_SCRIPT, EqualizerLane, EqualizerRequest, EqualizerValue, NodeKind,
    RunScript, operation,
};
use ringside_spec::lan::admin::link::{GetLinkTopology, TopologyAddress};

/// Handle of the cage: drivers use it for devices behind a node, and the cage has none.
const CAGE_HANDLE: u16 = 1;

/// Answers with the cage of the port; the board has no other node that drivers ask for.
pub(super) fn find_node(command: &Command) -> Outcome {
    let asked: GetLinkTopology = command.parameters();
    let wanted = asked.address.parameters;
    let kind = NodeKind(wanted.kind);
    if (kind.kind(), kind.context(), wanted.index) != (board::node::CAGE, board::context::PORT, 0) {
        return Err(ReturnCode::NoEntry);
    }
    command.answer(&GetLinkTopology {
        address: TopologyAddress {
            handle: CAGE_HANDLE.into(),
            ..asked.address
        },
        part_number: CAGE_QSFP28,
        ..asked
    })
}

/// Runs a script of the PHY. The one that drivers have reads an equalizer: the model's lanes have
/// no signal to adjust, all settings are neutral.
pub(super) fn run_script(command: &mut Command, context: &mut Context<'_>) -> Outcome {
    let asked: RunScript = command.parameters();
    let script = asked.script.get();
    if script != EQUALIZER_SCRIPT {
        let ledger = &mut context.ledger;
        ledger.remark("script of the PHY that the model does not run", || {
            format!("{script:#06x}")
        });
        return Err(ReturnCode::NotImplemented);
    }
    let request: EqualizerRequest = command.item(0)?;
    let lane = EqualizerLane(request.lane.get());
    if ![operation::RECEIVE, operation::TRANSMIT].contains(&lane.operation()) {
        context
            .ledger
            .breach("equalizer of neither receiver nor transmitter", || {
                format!("{:#06x}", lane.0)
            });
        return Err(ReturnCode::Invalid);
    }
    command.put(0, &EqualizerValue::zeroed())?;
    command.answer_with(&asked, EqualizerValue::SIZE)
}
