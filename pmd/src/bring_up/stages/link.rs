//! `link`: configures the PHY, turns link events on, and waits for the link within its deadline.
//!
//! Source: ice `ice_main.c`, `ice_init_link_events` and `ice_configure_phy`.

use crate::admin::AdminError;
use crate::admin::commands::LinkState;
use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use crate::lan::bridging;
use crate::lan::link::{as_configured, wanted_config, wanted_events};
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::link::{link_events, report_mode};
use std::time::Duration;

pub(super) const STAGE: Stage = Stage {
    name: "link",
    needs: Needs::Device,
    run,
};

/// The time between two queries of the state.
const STEP: Duration = Duration::from_millis(10);

fn run(context: &mut Context) -> Result<(), StageError> {
    let admin = context.admin()?;
    let port = context.facts.switch()?.port;
    let _ = context.record(Undo::MaskLinkEvents { port });
    admin.set_link_event_mask(port, wanted_events())?;
    let _ = context.record(Undo::DisableLinkEvents { port });
    let first = admin.link_status(port, link_events::ENABLE)?;
    if first.media {
        configure_phy(context, port)?;
    } else {
        wait_for_module(context, port)?;
    }
    let state = wait_for_link(context, port, first)?;
    context.facts.link = Some(state);
    warn_about(context, state);
    if let Some(remark) = bridging::remark(&admin)? {
        context.warn(remark);
    }
    Ok(())
}

/// The PHY is configured when a module comes. The undo of that is recorded now, if the firmware
/// reports settings.
fn wait_for_module(context: &mut Context, port: u8) -> Result<(), StageError> {
    context.facts.phy_waits_for_module = true;
    let active = match context.admin()?.phy_capabilities(report_mode::ACTIVE) {
        Err(AdminError::Refused { .. }) => return Ok(()),
        other => other?,
    };
    let found = as_configured(&active);
    if found.phy_type_low.get() != 0 || found.phy_type_high.get() != 0 {
        let _ = context.record(Undo::RestorePhyConfig { port, found });
    }
    Ok(())
}

/// Requests the configured types, unless they are active already.
fn configure_phy(context: &mut Context, port: u8) -> Result<(), StageError> {
    let admin = context.admin()?;
    let possible = admin.phy_capabilities(report_mode::TOPOLOGY_WITH_MEDIA)?;
    let active = admin.phy_capabilities(report_mode::ACTIVE)?;
    let speed = context.config().link.speed;
    let Some(wanted) = wanted_config(&possible, &active, speed) else {
        return Err(StageError::unsupported_speed(speed));
    };
    let found = as_configured(&active);
    if found == wanted {
        return Ok(());
    }
    let undo = context.record(Undo::RestorePhyConfig { port, found });
    match admin.set_phy_config(port, &wanted) {
        Err(AdminError::Refused {
            code: ReturnCode::WrongMode,
            ..
        }) => {
            context.discharge(undo);
            context.warn("the device does not let the PHY be configured; it stays as it is");
            Ok(())
        }
        Err(AdminError::Refused {
            code: ReturnCode::Busy,
            ..
        }) => {
            context.facts.phy_waits_for_module = true;
            context.warn(
                "the PHY cannot be configured without a module; it stays as it is until one comes",
            );
            Ok(())
        }
        other => Ok(other?),
    }
}

fn wait_for_link(context: &Context, port: u8, first: LinkState) -> Result<LinkState, StageError> {
    let admin = context.admin()?;
    let limit = Duration::from_millis(context.config().link.wait_ms);
    let mut state = first;
    context.wait(limit, STEP, || {
        state = admin.link_status(port, link_events::KEEP)?;
        // Without a module there is nothing to wait for.
        Ok((state.up || !state.media).then_some(()))
    })?;
    Ok(state)
}

fn warn_about(context: &mut Context, state: LinkState) {
    let limit = context.config().link.wait_ms;
    if !state.media {
        context.warn("no module or cable is in the port: the link is down");
    } else if !state.up {
        context.warn(format!(
            "the link did not come up within {limit} ms: check cable and partner, or raise link.wait_ms"
        ));
    }
}
