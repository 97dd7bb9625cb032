use super::*;

fn capabilities(low: u64) -> PhyCapabilities {
    PhyCapabilities {
        phy_type_low: low.into(),
        abilities: PhyAbilities::ZERO
            .with_link(true)
            .with_autonegotiation(true)
            .with_automatic_correction(true)
            .0,
        ..PhyCapabilities::zeroed()
    }
}

#[test]
fn what_is_active_already_is_not_asked_again() {
    let phy = capabilities(phy_type::BASE_100G_SR4);
    let wanted = wanted_config(&phy, &phy, LinkSpeed::Auto);
    assert_eq!(wanted, Some(as_configured(&phy)));
}

#[test]
fn a_disabled_link_is_enabled() {
    let possible = capabilities(phy_type::BASE_100G_SR4);
    let mut active = possible;
    active.abilities = 0;
    let wanted = wanted_config(&possible, &active, LinkSpeed::Auto).unwrap();
    assert_ne!(wanted, as_configured(&active));
    assert!(PhyEnable(wanted.enable).link());
}

#[test]
fn a_speed_picks_its_types_and_no_others() {
    let both = phy_type::BASE_100G_CR4 | phy_type::BASE_25G_CR;
    let possible = capabilities(both);
    let wanted = |speed| wanted_config(&possible, &possible, speed).map(|c| c.phy_type_low.get());
    assert_eq!(wanted(LinkSpeed::Auto), Some(both));
    assert_eq!(wanted(LinkSpeed::Gigabits25), Some(phy_type::BASE_25G_CR));
    assert_eq!(
        wanted(LinkSpeed::Gigabits100),
        Some(phy_type::BASE_100G_CR4)
    );
    assert_eq!(wanted(LinkSpeed::Gigabits10), None);
}

#[test]
fn wanted_events_are_those_that_are_not_masked() {
    let mask = wanted_events();
    assert!(!mask.up_down() && !mask.no_media() && !mask.module_unqualified() && !mask.phy_load());
    assert!(mask.signal() && mask.autonegotiation() && mask.fault());
}

#[test]
fn error_corrections_that_the_module_lacks_give_way_to_those_that_it_has() {
    let mut possible = capabilities(phy_type::BASE_100G_SR4);
    possible.error_correction = 0b0100_0100;
    let mut active = possible;
    active.abilities = PhyAbilities::ZERO.with_link(true).0;
    active.error_correction = 0b0001_0000;
    let wanted = wanted_config(&possible, &active, LinkSpeed::Auto).unwrap();
    assert_eq!(wanted.error_correction, possible.error_correction);
    assert!(PhyEnable(wanted.enable).automatic_correction());
    active.error_correction = 0b0100_0000;
    let wanted = wanted_config(&possible, &active, LinkSpeed::Auto).unwrap();
    assert_eq!(wanted.error_correction, active.error_correction);
    assert!(!PhyEnable(wanted.enable).automatic_correction());
}
