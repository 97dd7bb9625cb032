//! `mac-config`: the largest frame of the port.
//!
//! Source: ice `ice_common.c`, `ice_aq_set_mac_cfg`.

use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use ringside_spec::lan::admin::link::{MAX_FRAME_BYTES, link_events};

pub(super) const STAGE: Stage = Stage {
    name: "mac-config",
    needs: Needs::Device,
    run,
};

/// Always the largest that the MAC takes: what is sent is limited by the MTU, and what a peer
/// sends should not be lost.
fn run(context: &mut Context) -> Result<(), StageError> {
    let admin = context.admin()?;
    let port = context.facts.switch()?.port;
    let found = admin.link_status(port, link_events::KEEP)?.frame_bytes_max;
    // 0: the firmware does not report it.
    if found != MAX_FRAME_BYTES && found != 0 {
        let _ = context.record(Undo::RestoreFrameSize { found });
    }
    Ok(admin.set_mac_config(MAX_FRAME_BYTES)?)
}
