//! Link, PHY, MAC and module.

use super::client::{Client, none};
use crate::faults::Fault;
use ringside_spec::lan::admin::link::{
    AutonegotiationInfo, ForwardErrorCorrection, GetLinkStatus, GetPhyCapabilities, LinkConfig,
    LinkInfo, LinkStatus, PhyAbilities, PhyCapabilities, PhyConfig, PhyEnable, PhyReport,
    RestartAutonegotiation, RestartFlags, SetMacConfig, link_events, phy_type, report_mode, speed,
};
use ringside_spec::lan::admin::lldp::{
    AgentCommand, LldpDcbAgent, LldpGetMib, LldpStart, LldpStop,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::registers::reset::{
    DCB_STATUS, DcbStatus, PAUSE_QUANTA, PAUSE_REFRESH, dcb_exchange,
};
use std::time::Duration;
use zerocopy::IntoBytes;

fn link_status(client: &mut Client, flags: u16) -> LinkStatus {
    let asked = GetLinkStatus {
        flags: flags.into(),
        ..GetLinkStatus::zeroed()
    };
    let mut bytes = client.ask(Opcode::GetLinkStatus, &asked, 56).ok().bytes;
    assert_eq!(bytes.len(), 32);
    bytes.resize(LinkStatus::SIZE, 0);
    zerocopy::FromBytes::read_from_bytes(&bytes).unwrap()
}

#[test]
fn link_is_up_at_100g_and_one_event_tells_when_it_goes() {
    let mut client = Client::ready();
    let up = link_status(&mut client, link_events::KEEP);
    assert!(LinkInfo(up.link_info).up());
    let negotiation = AutonegotiationInfo(up.autonegotiation);
    assert!(!negotiation.completed(), "fibre has none");
    assert_eq!(up.speed.get(), speed::GIGABITS_100);
    let (low, high) = (up.phy_type_low.get(), up.phy_type_high.get());
    assert_eq!(low.count_ones() + high.count_ones(), 1);
    client.inject(Fault::LinkDown);
    assert!(client.event().is_none(), "no event was requested");
    client.world.with(|world| world.clear_faults(0));
    assert!(client.event().is_none());
    link_status(&mut client, link_events::ENABLE);
    client.inject(Fault::LinkDown);
    let (opcode, body) = client.event().expect("an event");
    assert_eq!((opcode, body.len()), (Opcode::GetLinkStatus, 32));
    assert!(!LinkInfo(body[2]).up());
    assert!(client.event().is_none(), "one event for one change");
    assert!(!LinkInfo(link_status(&mut client, link_events::KEEP).link_info).up());
    // The event has met the request: the next change is not reported before another one.
    client.world.with(|world| world.clear_faults(0));
    assert!(client.event().is_none(), "one event for one request");
    assert!(LinkInfo(link_status(&mut client, link_events::ENABLE).link_info).up());
    client.inject(Fault::LinkDown);
    assert!(client.event().is_some());
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn a_module_that_goes_is_an_event_and_without_one_the_phy_is_busy() {
    let mut client = Client::ready();
    let config = PhyConfig {
        phy_type_low: phy_type::BASE_100G_SR4.into(),
        enable: PhyEnable::ZERO.with_link(true).0,
        error_correction: ForwardErrorCorrection::ZERO.with_rs_clause_91(true).0,
        ..PhyConfig::zeroed()
    };
    let set = |client: &mut Client, config: &PhyConfig| {
        let answer = client.give(Opcode::SetPhyConfig, &none(), config.as_bytes());
        answer.descriptor.return_code()
    };
    assert_eq!(set(&mut client, &config), ReturnCode::Ok);
    let requests = ForwardErrorCorrection(config.error_correction).with_rs_544_request(true);
    let asked = PhyConfig {
        error_correction: requests.with_kr_25g_request(true).0,
        ..config
    };
    assert_eq!(set(&mut client, &asked), ReturnCode::Ok, "Linux's request");
    // A code that the module does not have is taken, reported as requested, and not used.
    let beyond = ForwardErrorCorrection::ZERO.with_kr_clause_74(true);
    let unused = PhyConfig {
        error_correction: beyond.0,
        ..config
    };
    assert_eq!(set(&mut client, &unused), ReturnCode::Ok, "DPDK's request");
    let asked = GetPhyCapabilities {
        report: PhyReport::ZERO.with_mode(report_mode::ACTIVE).0.into(),
        ..GetPhyCapabilities::zeroed()
    };
    let answer = client.ask(Opcode::GetPhyCapabilities, &asked, 560).ok();
    let active: PhyCapabilities = answer.item(0);
    assert_eq!(active.error_correction, beyond.0);
    let without = link_status(&mut client, link_events::KEEP);
    assert!(!LinkConfig(without.config).rs_528());
    assert_eq!(set(&mut client, &config), ReturnCode::Ok);
    let with = link_status(&mut client, link_events::KEEP);
    assert!(LinkConfig(with.config).rs_528());
    link_status(&mut client, link_events::ENABLE);
    client.inject(Fault::ModuleAbsent);
    let (_, body) = client.event().expect("an event");
    let info = LinkInfo(body[2]);
    assert!(!info.up() && !info.media());
    assert_eq!(set(&mut client, &config), ReturnCode::Busy);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn mac_settings_take_the_pause_timers_over() {
    let mut client = Client::ready();
    let timers = |client: &Client| (client.read(PAUSE_QUANTA), client.read(PAUSE_REFRESH));
    let found = timers(&client);
    assert!(found.0 > 0 && found.1 > 0 && found.0 <= 0xFFFF);
    let asked = SetMacConfig {
        frame_bytes_max: 9000.into(),
        timer_value: 5.into(),
        refresh_threshold: 3.into(),
        ..SetMacConfig::zeroed()
    };
    client.direct(Opcode::SetMacConfig, &asked).ok();
    assert_eq!(timers(&client), (5, 3));
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn phy_capabilities_fill_their_560_bytes() {
    let mut client = Client::ready();
    let answer = client
        .ask(
            Opcode::GetPhyCapabilities,
            &GetPhyCapabilities::zeroed(),
            560,
        )
        .ok();
    let all: PhyCapabilities = answer.item(0);
    assert!(
        all.phy_type_low.get().count_ones() > 1,
        "what the board can do"
    );
    let small = client.ask(
        Opcode::GetPhyCapabilities,
        &GetPhyCapabilities::zeroed(),
        100,
    );
    assert_eq!(small.descriptor.return_code(), ReturnCode::NoMemory);
}

fn is_up(client: &mut Client) -> bool {
    LinkInfo(link_status(client, link_events::ENABLE).link_info).up()
}

/// True if the active settings have the link on.
fn is_on(client: &mut Client) -> bool {
    let asked = GetPhyCapabilities {
        report: PhyReport::ZERO.with_mode(report_mode::ACTIVE).0.into(),
        ..GetPhyCapabilities::zeroed()
    };
    let answer = client.ask(Opcode::GetPhyCapabilities, &asked, 560).ok();
    let active: PhyCapabilities = answer.item(0);
    PhyAbilities(active.abilities).link()
}

#[test]
fn a_link_that_is_set_up_anew_goes_down_and_comes_back_with_an_event_each() {
    let mut client = Client::ready();
    let config = PhyConfig {
        phy_type_low: phy_type::BASE_100G_SR4.into(),
        enable: PhyEnable::ZERO
            .with_link(true)
            .with_automatic_update(true)
            .0,
        ..PhyConfig::zeroed()
    };
    let restart = RestartAutonegotiation {
        flags: RestartFlags::ZERO.with_enable(true).0,
        ..RestartAutonegotiation::zeroed()
    };
    for restarts in [false, true] {
        assert!(is_up(&mut client));
        if restarts {
            client.direct(Opcode::RestartAutonegotiation, &restart).ok();
        } else {
            client
                .give(Opcode::SetPhyConfig, &none(), config.as_bytes())
                .ok();
        }
        let (_, body) = client.event().expect("it goes down");
        assert!(!LinkInfo(body[2]).up());
        assert!(!is_up(&mut client));
        client.pass(Duration::from_secs(1));
        let (_, body) = client.event().expect("it comes back");
        assert!(LinkInfo(body[2]).up());
    }
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn a_link_switched_off_without_a_module_is_reported_and_comes_up_with_the_next_module() {
    let mut client = Client::ready();
    let off = RestartAutonegotiation::zeroed();
    client.inject(Fault::ModuleAbsent);
    client.direct(Opcode::RestartAutonegotiation, &off).ok();
    assert!(!is_on(&mut client));
    client.end(Fault::ModuleAbsent);
    client.pass(Duration::from_millis(1));
    assert!(is_on(&mut client));
    assert!(is_up(&mut client));
    client.direct(Opcode::RestartAutonegotiation, &off).ok();
    assert!(!is_on(&mut client), "switched off by a restart");
    assert!(!is_up(&mut client));
}

#[test]
fn the_firmware_agent_of_bridging_runs_once_a_driver_has_started_it() {
    let mut client = Client::ready();
    let exchange = |client: &Client| DcbStatus(client.read(DCB_STATUS)).exchange();
    let local = |client: &mut Client| {
        let answer = client.ask(Opcode::LldpGetMib, &LldpGetMib::zeroed(), 1500);
        answer.descriptor.return_code()
    };
    let act = AgentCommand::ZERO.with_act(true).0;
    let (start, stop) = (
        LldpStart {
            command: act,
            ..LldpStart::zeroed()
        },
        LldpStop {
            command: act,
            ..LldpStop::zeroed()
        },
    );
    let ask = LldpDcbAgent {
        command: act,
        ..LldpDcbAgent::zeroed()
    };
    let runs = |client: &mut Client| {
        let answer = client.direct(Opcode::LldpDcbAgent, &ask).ok();
        let answer: LldpDcbAgent = answer.descriptor.parameters();
        AgentCommand(answer.command).act()
    };
    assert_eq!(exchange(&client), dcb_exchange::DISABLED);
    assert!(!runs(&mut client));
    assert_eq!(local(&mut client), ReturnCode::NoEntry);
    client.direct(Opcode::LldpStart, &start).ok();
    assert_eq!(exchange(&client), dcb_exchange::DONE);
    assert!(runs(&mut client));
    assert_eq!(local(&mut client), ReturnCode::Ok);
    client.direct(Opcode::LldpStop, &stop).ok();
    assert_eq!(exchange(&client), dcb_exchange::DISABLED);
    assert_eq!(local(&mut client), ReturnCode::NoEntry);
    client.inject(Fault::LldpAgent);
    assert_eq!(exchange(&client), dcb_exchange::DISABLED, "it was stopped");
}
