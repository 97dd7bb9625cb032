//! The requested settings of the PHY, derived from its abilities.

use ringside_config::LinkSpeed;
use ringside_spec::lan::admin::link::{
    LinkEvents, PhyAbilities, PhyCapabilities, PhyConfig, PhyEnable, phy_type,
};

/// All link events masked: the firmware keeps quiet about the link.
pub const ALL_MASKED: LinkEvents = LinkEvents(u16::MAX);

/// The events that the driver requests.
#[must_use]
pub fn wanted_events() -> LinkEvents {
    let wanted = LinkEvents::ZERO
        .with_up_down(true)
        .with_no_media(true)
        .with_module_unqualified(true)
        .with_phy_load(true);
    LinkEvents(!wanted.0)
}

/// PHY types of a speed, as a mask of the low word.
fn types_of(speed: LinkSpeed) -> u64 {
    let prefix = match speed {
        LinkSpeed::Auto => return u64::MAX,
        LinkSpeed::Gigabits10 => "10G",
        LinkSpeed::Gigabits25 => "25G",
        LinkSpeed::Gigabits50 => "50G",
        LinkSpeed::Gigabits100 => "100G",
    };
    let named = phy_type::ALL.iter();
    named
        .filter(|(_, name)| name.starts_with(prefix))
        .fold(0, |mask, (bit, _)| mask | bit)
}

/// The configuration that corresponds to the active settings.
#[must_use]
pub fn as_configured(active: &PhyCapabilities) -> PhyConfig {
    let abilities = PhyAbilities(active.abilities);
    PhyConfig {
        phy_type_low: active.phy_type_low,
        phy_type_high: active.phy_type_high,
        enable: PhyEnable::ZERO
            .with_transmit_pause(abilities.transmit_pause())
            .with_receive_pause(abilities.receive_pause())
            .with_low_power(abilities.low_power())
            .with_link(abilities.link())
            .with_automatic_update(true)
            .with_link_state_machine(abilities.link_state_machine())
            .with_automatic_correction(abilities.automatic_correction())
            .0,
        low_power_control: active.low_power_control,
        energy_efficient: active.energy_efficient,
        energy_efficient_value: active.energy_efficient_value,
        error_correction: active.error_correction,
        compliance_enforcement: active.compliance_enforcement,
    }
}

/// The requested settings of the PHY: all types that board and module support at `speed`, link up,
/// the rest as active. Error corrections beyond those of board and module give way to the
/// firmware's choice among those. `None`: neither can do that speed.
#[must_use]
pub fn wanted_config(
    possible: &PhyCapabilities,
    active: &PhyCapabilities,
    speed: LinkSpeed,
) -> Option<PhyConfig> {
    let low = possible.phy_type_low.get() & types_of(speed);
    let high = match speed {
        LinkSpeed::Auto => possible.phy_type_high.get(),
        _ => 0,
    };
    if low == 0 && high == 0 {
        return None;
    }
    let mut base = as_configured(active);
    if base.error_correction & !possible.error_correction != 0 {
        let automatic = PhyAbilities(possible.abilities).automatic_correction();
        let enable = PhyEnable(base.enable);
        let automatic = automatic || enable.automatic_correction();
        base.enable = enable.with_automatic_correction(automatic).0;
        base.error_correction = possible.error_correction;
    }
    Some(PhyConfig {
        phy_type_low: low.into(),
        phy_type_high: high.into(),
        enable: PhyEnable(base.enable).with_link(true).0,
        ..base
    })
}

#[cfg(test)]
mod tests;
