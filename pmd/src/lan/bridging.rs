//! Data centre bridging: a remark on what the firmware has agreed on with the switch.
//!
//! The driver has no part in it. It sends everything in traffic class 0, and no class of its own is
//! lossless.

use crate::admin::AdminQueue;
use crate::admin::commands::Bridging;
use ringside_bus::FunctionError;
use ringside_spec::lan::registers::reset::{DCB_STATUS, DcbStatus, dcb_exchange};

/// The remark, if the firmware's LLDP agent runs. Without an answer that can be read, there is
/// none.
///
/// Source: ice `ice_dcb_lib.c`, `ice_init_pf_dcb`; `ice_dcb.c`, `ice_init_dcb`.
pub(crate) fn remark(admin: &AdminQueue) -> Result<Option<String>, FunctionError> {
    let exchange = DcbStatus(admin.registers().read(DCB_STATUS)?).exchange();
    let runs = [
        dcb_exchange::NOT_STARTED,
        dcb_exchange::IN_PROGRESS,
        dcb_exchange::DONE,
    ];
    if !runs.contains(&exchange) {
        return Ok(None);
    }
    let found = admin.bridging().unwrap_or_else(|error| {
        tracing::warn!(%error, "the configuration of the firmware's LLDP agent is not known");
        None
    });
    Ok(found.map(|found| text(&found)))
}

fn text(found: &Bridging) -> String {
    let priorities: Vec<String> = (0..8)
        .filter(|priority| found.flow_control & 1 << priority != 0)
        .map(|priority| priority.to_string())
        .collect();
    let state = match (found.classes, priorities.is_empty()) {
        (0 | 1, true) => "one traffic class without priority flow control".to_owned(),
        (classes, true) => format!("{classes} traffic classes without priority flow control"),
        (classes, false) => format!(
            "{} traffic classes, with priority flow control for priority {}",
            classes.max(1),
            priorities.join(", ")
        ),
    };
    format!(
        "the firmware's LLDP agent runs and has {state}: RDMA is sent in traffic class 0 only, which \
         is not lossless, and frames that the network drops are sent again; turn the agent off (with \
         Linux's ice: ethtool --set-priv-flags IFACE fw-lldp-agent off) and use pause frames on port \
         and switch, or give priority 0 flow control on the switch"
    )
}
