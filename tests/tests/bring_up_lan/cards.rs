//! States of cards that a fresh model does not have, and habits of their firmware.

use super::{bring_up, bring_up_with, config, demand_no_breach, function, snapshot};
use super::{synthetic_package, world};
use ringside_bus::dma_pool::PoolSettings;
use ringside_bus::{DmaPool, PageSize};
use ringside_model::function::ResetKind;
use ringside_model::{Fault, Stepped, record};
use ringside_pmd::admin::AdminQueue;
use ringside_pmd::bring_up::Undo;
use ringside_pmd::ddp::PackageState;
use ringside_pmd::lan::FirmwareEvent;
use ringside_pmd::lan::link::as_configured;
use ringside_pmd::recovery::RecoverError;
use ringside_pmd::trace::Recorder;
use ringside_pmd::{Device, Registers};
use ringside_spec::lan::admin::link::{PhyConfig, PhyEnable, report_mode};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::registers::reset::{PAUSE_QUANTA, PAUSE_REFRESH};
use std::sync::Arc;
use std::time::Duration;

fn pause(world: &Stepped) {
    for _ in 0..10 {
        world.clock().pause(Duration::from_millis(60));
    }
}

/// The states of the link that the device reports, in order.
fn reported(world: &Stepped, device: &Device) -> Vec<bool> {
    pause(world);
    let events = device.poll_firmware_events().unwrap();
    let states = events.into_iter().map(|event| match event {
        FirmwareEvent::Link(state) => state.up,
        other => panic!("{other:?}"),
    });
    states.collect()
}

#[test]
fn every_change_of_the_link_is_reported() {
    let world = world();
    let device = bring_up(&world, None).unwrap();
    for _ in 0..3 {
        world.with(|world| world.inject(0, Fault::LinkDown));
        assert_eq!(reported(&world, &device), [false]);
        world.with(|world| world.clear_faults(0));
        assert_eq!(reported(&world, &device), [true]);
        assert_eq!(reported(&world, &device), [true; 0]);
    }
    demand_no_breach(&world);
}

#[test]
fn a_change_between_a_report_and_its_reading_is_reported_with_it() {
    let world = world();
    let device = bring_up(&world, None).unwrap();
    let mut is_up = None;
    let mut events = Vec::new();
    device.poll_port_events(&mut is_up, &mut events).unwrap();
    world.with(|world| world.inject(0, Fault::LinkDown));
    pause(&world);
    world.with(|world| world.clear_faults(0));
    assert_eq!(reported(&world, &device), [false, true]);
    world.with(|world| world.inject(0, Fault::LinkDown));
    pause(&world);
    device.poll_port_events(&mut is_up, &mut events).unwrap();
    assert_eq!(events, [ringside_pmd::rdma::Event::PortDown]);
    demand_no_breach(&world);
}

#[test]
fn link_events_that_cannot_be_enabled_are_enabled_later() {
    let world = world();
    let device = bring_up(&world, None).unwrap();
    let refused = Fault::AdminCommandFails {
        opcode: Opcode::GetLinkStatus.code(),
        code: u16::from(ReturnCode::Busy.code()),
    };
    world.with(|world| {
        world.inject(0, Fault::LinkDown);
        world.inject(0, refused);
    });
    assert_eq!(reported(&world, &device), [false]);
    world.with(|world| world.clear_faults(0));
    assert_eq!(reported(&world, &device), [true]);
    world.with(|world| world.inject(0, Fault::LinkDown));
    assert_eq!(reported(&world, &device), [false]);
    demand_no_breach(&world);
}

#[test]
fn the_timers_of_pause_frames_stay_as_they_were() {
    let world = world();
    // A card whose largest frame is restored by an undo, too.
    let timers = || {
        let function = function(&world);
        let read = |offset| function.read32(0, offset).unwrap();
        (read(PAUSE_QUANTA), read(PAUSE_REFRESH))
    };
    let device = bring_up(&world, None).unwrap();
    let during = timers();
    assert!(during.0 > 0 && during.1 > 0, "{during:?}");
    assert!(!snapshot(&world).firmware.link.5);
    drop(device);
    assert!(!snapshot(&world).firmware.link.5);
}

#[test]
fn the_package_of_the_flash_is_not_enough_for_a_driver() {
    let world = world();
    world.with(|world| world.inject(0, Fault::FlashPackageOnly));
    let device = bring_up(&world, None).unwrap();
    let package = device.facts().package.clone().unwrap();
    assert!(matches!(package.state, PackageState::SafeMode(_)));
    assert_eq!(package.active, None);
    drop(device);

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ice.pkg"), synthetic_package()).unwrap();
    let mut config = config();
    config.ddp.search = vec![folder.path().into()];
    let device = bring_up_with(&world, &config, None).unwrap();
    let package = device.facts().package.clone().unwrap();
    assert_eq!(package.state, PackageState::Downloaded);
    assert_eq!(device.facts().rdma_unavailable, None);
    demand_no_breach(&world);
}

/// Another driver leaves the PHY with its link switched off.
fn switch_link_off(world: &Stepped) {
    let function = function(world);
    let mut found = [0; 2];
    function.config_read(4, &mut found).unwrap();
    function.config_write(4, &6u16.to_le_bytes()).unwrap();
    let settings = PoolSettings {
        largest_page: PageSize::FourKiB,
        ..PoolSettings::default()
    };
    let pool = DmaPool::new(Arc::clone(&function), settings).unwrap();
    let registers = Registers::new(Arc::clone(&function), Recorder::new());
    let admin = AdminQueue::new(registers, Arc::clone(&pool), Duration::from_secs(1));
    admin.start().unwrap();
    admin.get_version().unwrap();
    let active = as_configured(&admin.phy_capabilities(report_mode::ACTIVE).unwrap());
    let enable = PhyEnable(active.enable).with_link(false);
    let off = PhyConfig {
        enable: enable.0,
        ..active
    };
    admin.set_phy_config(0, &off).unwrap();
    admin.shut_down().unwrap();
    function.config_write(4, &found).unwrap();
    drop(admin);
    pool.close().unwrap();
}

#[test]
fn a_phy_that_is_busy_is_a_warning_and_a_module_brings_the_link() {
    let world = world();
    switch_link_off(&world);
    let before = snapshot(&world);
    let busy = Fault::AdminCommandFails {
        opcode: Opcode::SetPhyConfig.code(),
        code: u16::from(ReturnCode::Busy.code()),
    };
    world.with(|world| world.inject(0, busy));
    let device = bring_up(&world, None).unwrap();
    let warned = |(stage, text): (&str, &str)| stage == "link" && text.contains("module");
    assert!(device.trace().warnings().any(warned));
    world.with(|world| world.clear_faults(0));
    world.with(|world| world.inject(0, Fault::ModuleAbsent));
    assert_eq!(reported(&world, &device), [false]);
    world.with(|world| world.clear_faults(0));
    // A module brings the link up by itself, with the settings after power on.
    assert_eq!(reported(&world, &device), [true]);
    assert_eq!(device.shutdown().failures, []);
    assert_eq!(snapshot(&world), before);
    demand_no_breach(&world);
}

/// The first bring-up changed settings that a reset of the function keeps.
#[test]
fn after_a_recovery_that_brought_no_device_up_a_shutdown_leaves_it_as_found() {
    for is_refused in [false, true] {
        let world = world();
        switch_link_off(&world);
        let before = snapshot(&world);
        let refuse = |opcode: Opcode| {
            let fault = Fault::AdminCommandFails {
                opcode: opcode.code(),
                code: u16::from(ReturnCode::NoMemory.code()),
            };
            world.with(|world| world.inject(0, fault));
        };
        let mut device = bring_up(&world, None).unwrap();
        refuse(Opcode::AddVsi);
        for _ in 0..2 {
            let error = device.recover().unwrap_err();
            let is_down = matches!(*error, RecoverError::NotBroughtUp { .. });
            assert!(is_down, "{error}");
        }
        world.with(|world| world.clear_faults(0));
        if is_refused {
            refuse(Opcode::SetPhyConfig);
        }
        let report = device.shutdown();
        assert_eq!(report.leaked_bytes, 0, "{report:#?}");
        let failed: Vec<_> = report.failures.iter().map(|one| &one.undo).collect();
        match is_refused {
            false => assert_eq!(failed, [] as [&Undo; 0]),
            true => assert!(
                matches!(failed[..], [Undo::RestorePhyConfig { .. }]),
                "{failed:?}"
            ),
        }
        assert_eq!(snapshot(&world) == before, !is_refused);
        demand_no_breach(&world);
    }
}

#[test]
fn a_module_that_comes_in_service_brings_its_link_and_one_that_is_gone_is_no_failure() {
    for goes in [false, true] {
        let world = world();
        switch_link_off(&world);
        let before = snapshot(&world);
        world.with(|world| world.inject(0, Fault::ModuleAbsent));
        let device = bring_up(&world, None).unwrap();
        world.with(|world| world.clear_faults(0));
        assert_eq!(reported(&world, &device), [false, true]);
        assert_eq!(reported(&world, &device), [false; 0]);
        if goes {
            world.with(|world| world.inject(0, Fault::ModuleAbsent));
        }
        assert_eq!(device.shutdown().failures, []);
        if !goes {
            assert_eq!(snapshot(&world), before);
        }
        demand_no_breach(&world);
    }
}

#[test]
fn a_busy_phy_of_a_module_that_came_is_asked_again() {
    let world = world();
    switch_link_off(&world);
    world.with(|world| world.inject(0, Fault::ModuleAbsent));
    let device = bring_up(&world, None).unwrap();
    world.with(|world| world.clear_faults(0));
    let busy = Fault::AdminCommandFails {
        opcode: Opcode::GetPhyCapabilities.code(),
        code: u16::from(ReturnCode::Busy.code()),
    };
    world.with(|world| world.inject(0, busy));
    let queries_of_three_calls = || {
        let recorder = record::Recorder::in_memory(1 << 10);
        world.with(|world| world.record(&recorder));
        for _ in 0..3 {
            reported(&world, &device);
        }
        queries(&recorder)
    };
    assert!(queries_of_three_calls() > 1, "each attempt is one query");
    world.with(|world| world.clear_faults(0));
    let both = "what is possible and what is active";
    assert_eq!(queries_of_three_calls(), 2, "{both}");
    assert_eq!(queries_of_three_calls(), 0, "once for each module");
    assert_eq!(device.shutdown().failures, []);
    demand_no_breach(&world);
}

#[test]
fn a_module_that_is_exchanged_gets_the_settings_as_well() {
    let world = world();
    let device = bring_up(&world, None).unwrap();
    let queries_of = |faults: &[Fault]| {
        let recorder = record::Recorder::in_memory(1 << 10);
        world.with(|world| world.record(&recorder));
        for fault in faults {
            world.with(|world| world.inject(0, *fault));
            assert_eq!(reported(&world, &device), [false]);
            world.with(|world| world.clear_faults(0));
            assert_eq!(reported(&world, &device), [true]);
        }
        queries(&recorder)
    };
    assert_eq!(queries_of(&[Fault::LinkDown]), 0);
    assert_eq!(
        queries_of(&[Fault::ModuleAbsent]),
        2,
        "what is possible and what is active"
    );
    assert_eq!(queries_of(&[Fault::LinkDown]), 0, "once for each module");
    assert_eq!(device.shutdown().failures, []);
    demand_no_breach(&world);
}

/// The queries of the PHY so far.
fn queries(recorder: &record::Recorder) -> usize {
    let entries = recorder.take();
    let asks = entries.iter().filter(|entry| asks_the_phy(&entry.event));
    asks.count()
}

fn asks_the_phy(event: &record::Event) -> bool {
    let record::Event::Admin(command) = event else {
        return false;
    };
    let opcode = command.before[2..].first_chunk().copied();
    opcode.map(u16::from_le_bytes) == Some(Opcode::GetPhyCapabilities.code())
}

#[test]
fn a_device_that_still_loads_from_its_flash_is_waited_for() {
    let world = world();
    world.with(|world| world.inject(0, Fault::Reset(ResetKind::Core)));
    // The reset is over, the load is not.
    for _ in 0..15 {
        world.clock().pause(Duration::from_micros(100));
    }
    let device = bring_up(&world, None).unwrap();
    let warned = |(stage, text): (&str, &str)| stage == "pf-reset" && text.contains("waited");
    assert!(device.trace().warnings().any(warned));
    demand_no_breach(&world);
}

fn warnings_of_link(device: &Device) -> Vec<String> {
    let all = device.trace().warnings();
    let of_link = all.filter(|(stage, _)| *stage == "link");
    of_link.map(|(_, text)| text.to_owned()).collect()
}

#[test]
fn an_agent_of_data_centre_bridging_is_a_warning_with_its_remedy() {
    let world = world();
    let device = bring_up(&world, None).unwrap();
    assert_eq!(warnings_of_link(&device), [""; 0]);
    drop(device);
    world.with(|world| world.inject(0, Fault::LldpAgent));
    let device = bring_up(&world, None).unwrap();
    let warnings = warnings_of_link(&device);
    let [text] = &warnings[..] else {
        panic!("{warnings:?}");
    };
    for part in [
        "2 traffic classes, with priority flow control for priority 3",
        "traffic class 0 only",
        "fw-lldp-agent off",
    ] {
        assert!(text.contains(part), "{text}");
    }
    demand_no_breach(&world);
}
