//! Bring-up and teardown of the LAN half, on the embedded model in virtual time.

mod cards;

use ringside_bus::function::DmaAccess;
use ringside_bus::{Around, Function, FunctionError, Iova, Memory, PageSize, dma_pool};
use ringside_config::{Config, HugePages};
use ringside_model::function::ResetKind;
use ringside_model::{Fault, FunctionSnapshot, Stepped, WorldSettings};
use ringside_pmd::bring_up::{Undo, stage_names};
use ringside_pmd::ddp::PackageState;
use ringside_pmd::lan::FirmwareEvent;
use ringside_pmd::recovery::{FailureCause, Supervised, Supervision};
use ringside_pmd::trace::{Exchange, StageOutcome};
use ringside_pmd::{BringUpError, BringUpOptions, Device, StageError};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_testkit::config_without_package as config;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The last stage of the LAN half.
const LAST_STAGE: &str = "rdma-nodes";

fn world() -> Stepped {
    Stepped::new(&WorldSettings::with_functions(2))
}

fn function(world: &Stepped) -> Arc<dyn Function> {
    world.function(0).expect("function 0")
}

fn bring_up(world: &Stepped, fail_at: Option<&str>) -> Result<Device, Box<BringUpError>> {
    bring_up_with(world, &config(), fail_at)
}

fn bring_up_with(
    world: &Stepped,
    config: &Config,
    fail_at: Option<&str>,
) -> Result<Device, Box<BringUpError>> {
    let options = BringUpOptions {
        fail_at,
        ..BringUpOptions::default()
    };
    Device::bring_up(function(world), config, options)
}

fn snapshot(world: &Stepped) -> FunctionSnapshot {
    world.with(|world| {
        let function = world.function(0).expect("function 0");
        function.snapshot(world.space(0).expect("space 0"))
    })
}

#[track_caller]
fn demand_no_breach(world: &Stepped) {
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn the_lan_half_comes_up_without_a_breach_of_the_interface() {
    let world = world();
    // Failing after the last LAN stage shows its trace, independent of later stages.
    let error = bring_up(&world, Some(LAST_STAGE)).unwrap_err();
    assert_eq!(error.cause, StageError::Injected, "{error}");
    for report in &error.trace.stages {
        let failed = matches!(report.outcome, StageOutcome::Failed(_));
        assert_eq!(failed, report.stage == LAST_STAGE, "{report:#?}");
        assert_eq!(report.exchanges_dropped, 0);
    }
    assert_eq!(error.undo_failures, []);
    demand_no_breach(&world);
}

#[test]
fn bring_up_failing_after_any_stage_leaves_the_device_as_found() {
    for stage in stage_names() {
        let world = world();
        let before = snapshot(&world);
        let error = bring_up(&world, Some(stage)).unwrap_err();
        assert_eq!((error.stage, &error.cause), (stage, &StageError::Injected));
        assert_eq!(error.undo_failures, [], "after {stage}");
        assert_eq!(error.leaked_bytes, 0, "after {stage}");
        assert_eq!(snapshot(&world), before, "after {stage}");
        demand_no_breach(&world);
    }
}

/// Commands of the LAN half with the stage that fails if they are refused.
const COMMANDS: &[(Opcode, &str)] = &[
    (Opcode::GetVersion, "admin-queue"),
    (Opcode::ClearFunctionConfig, "clear-pf-config"),
    (Opcode::DriverVersion, "driver-version"),
    (Opcode::ListDeviceCapabilities, "capabilities"),
    (Opcode::ListFunctionCapabilities, "capabilities"),
    (Opcode::ClearPxe, "clear-pxe"),
    (Opcode::ReadMac, "mac-address"),
    (Opcode::GetSwitchConfig, "switch-config"),
    (Opcode::QuerySchedulerResources, "scheduler"),
    (Opcode::GetDefaultTopology, "scheduler"),
    (Opcode::SetMacConfig, "mac-config"),
    (Opcode::GetPackageInfo, "ddp-package"),
    (Opcode::SetPortParameters, "port-params"),
    (Opcode::AddVsi, "vsi"),
    (Opcode::AddSwitchRules, "mac-filters"),
    (Opcode::SetEventMask, "link"),
    (Opcode::GetPhyCapabilities, "link"),
    (Opcode::UpdateVsi, "vsi-rdma-filter"),
    (Opcode::AddSchedulerElements, "rdma-nodes"),
];

/// Commands whose refusal is a warning of their stage, and whose silence is an error.
const TOLERATED: &[(Opcode, &str)] = &[
    (Opcode::QuerySchedulerElements, "scheduler"),
    (Opcode::DeleteSchedulerElements, "scheduler"),
];

#[test]
fn a_command_that_is_refused_fails_its_stage_and_leaves_the_device_as_found() {
    for (opcode, stage) in COMMANDS {
        let world = world();
        let before = snapshot(&world);
        let fault = Fault::AdminCommandFails {
            opcode: opcode.code(),
            code: u16::from(ReturnCode::NotPermitted.code()),
        };
        world.with(|world| world.inject(0, fault));
        let error = bring_up(&world, None).unwrap_err();
        assert_eq!(error.stage, *stage, "{opcode:?}: {error}");
        let text = error.to_string();
        assert!(text.contains("eperm"), "{opcode:?}: {text}");
        assert_eq!(error.leaked_bytes, 0, "{opcode:?}");
        assert_eq!(snapshot(&world), before, "{opcode:?}: {error}");
        demand_no_breach(&world);
    }
}

#[test]
fn a_refusal_of_the_schedulers_default_tree_is_a_warning() {
    for (opcode, stage) in TOLERATED {
        let world = world();
        let before = snapshot(&world);
        let fault = Fault::AdminCommandFails {
            opcode: opcode.code(),
            code: u16::from(ReturnCode::Invalid.code()),
        };
        world.with(|world| world.inject(0, fault));
        let device = bring_up(&world, None).unwrap();
        let warned = |(at, text): (&str, &str)| at == *stage && text.contains("einval");
        assert!(device.trace().warnings().any(warned), "{opcode:?}");
        world.with(|world| world.clear_faults(0));
        assert_eq!(device.shutdown().failures, [], "{opcode:?}");
        assert_eq!(snapshot(&world), before, "{opcode:?}");
        demand_no_breach(&world);
    }
}

#[test]
fn a_command_that_is_never_answered_fails_its_stage_and_leaves_the_device_as_found() {
    for (opcode, stage) in COMMANDS.iter().chain(TOLERATED) {
        let world = world();
        let before = snapshot(&world);
        let fault = Fault::AdminCommandSilent {
            opcode: opcode.code(),
        };
        world.with(|world| world.inject(0, fault));
        let error = bring_up(&world, None).unwrap_err();
        assert_eq!(error.stage, *stage, "{opcode:?}: {error}");
        assert!(
            error.to_string().contains("no answer"),
            "{opcode:?}: {error}"
        );
        assert_eq!(error.leaked_bytes, 0, "{opcode:?}");
        assert_eq!(snapshot(&world), before, "{opcode:?}: {error}");
        // Firmware that does not respond cannot confirm that its queue is switched off.
        let breaches = world.with(|world| world.breaches(0));
        assert!(breaches.is_empty(), "{opcode:?}: {breaches:#?}");
    }
}

#[test]
fn a_device_that_never_gets_ready_fails_at_its_deadline() {
    for (fault, stage, register) in [
        (Fault::ResetNeverEnds, "pf-reset", "PFGEN_CTRL"),
        (Fault::FirmwareNeverReady, "pf-reset", "GLNVM_ULD"),
        (
            Fault::ProtocolEngineStatus(0x81),
            "protocol-engine",
            "GLPE_CPUSTATUS",
        ),
    ] {
        let world = world();
        world.with(|world| world.inject(0, fault));
        let error = bring_up(&world, None).unwrap_err();
        assert_eq!(error.stage, stage, "{error}");
        let text = error.to_string();
        assert!(text.contains(register) && text.contains(" ms"), "{text}");
        assert_eq!(error.leaked_bytes, 0, "{text}");
        assert!(snapshot(&world).mappings.is_empty(), "{text}");
        demand_no_breach(&world);
    }
}

#[test]
fn without_a_package_the_device_reports_safe_mode_and_offers_no_rdma() {
    let world = world();
    world.with(|world| world.inject(0, Fault::NoPackageLoaded));
    let before = snapshot(&world);
    let device = bring_up(&world, None).unwrap();
    let reason = device.facts().rdma_unavailable.clone().unwrap();
    assert!(
        reason.contains("safe mode") && reason.contains("/nonexistent"),
        "{reason}"
    );
    let package = device.facts().package.clone().unwrap();
    assert!(
        matches!(package.state, PackageState::SafeMode(_)),
        "{package:?}"
    );
    let skipped = |stage: &str| {
        let mut stages = device.trace().stages.iter();
        let report = stages.find(|report| report.stage == stage).unwrap();
        matches!(report.outcome, StageOutcome::Skipped(_))
    };
    assert!(skipped("vsi-rdma-filter") && skipped("protocol-engine") && !skipped("vsi"));
    assert!(
        device
            .trace()
            .warnings()
            .any(|(stage, _)| stage == "ddp-package")
    );
    let report = device.shutdown();
    assert_eq!(report.failures, []);
    assert_eq!(snapshot(&world), before);
    demand_no_breach(&world);
}

#[test]
fn a_package_that_is_required_and_missing_fails_bring_up() {
    let world = world();
    world.with(|world| world.inject(0, Fault::NoPackageLoaded));
    let mut config = config();
    config.ddp.require = true;
    let error = bring_up_with(&world, &config, None).unwrap_err();
    assert_eq!(error.stage, "ddp-package");
    assert!(error.to_string().contains("ddp.require"), "{error}");
}

#[test]
fn a_link_that_stays_down_is_a_warning() {
    let world = world();
    world.with(|world| {
        world.inject(0, Fault::LinkDown);
        world.inject(0, Fault::NoPackageLoaded);
    });
    let mut config = config();
    config.link.wait_ms = 50;
    let device = bring_up_with(&world, &config, None).unwrap();
    assert_eq!(device.facts().link.map(|link| link.up), Some(false));
    let warned = |(stage, text): (&str, &str)| stage == "link" && text.contains("50 ms");
    assert!(device.trace().warnings().any(warned));
}

#[test]
fn bus_mastering_is_off_before_memory_is_given_back() {
    let world = world();
    let error = bring_up(&world, Some(LAST_STAGE)).unwrap_err();
    let at = |wanted: Undo| {
        error
            .undone
            .iter()
            .position(|undo| *undo == wanted)
            .unwrap()
    };
    let (queue, reset) = (at(Undo::ShutDownAdminQueue), at(Undo::ResetFunction));
    let (silent, memory) = (at(Undo::DisableBusMastering), at(Undo::CloseDmaPool));
    assert!(queue < reset && reset < silent && silent < memory);
}

#[test]
fn every_command_in_the_trace_has_request_and_answer() {
    let world = world();
    let error = bring_up(&world, Some(LAST_STAGE)).unwrap_err();
    let exchanges = error.trace.stages.iter().flat_map(|stage| &stage.exchanges);
    let commands: Vec<_> = exchanges
        .filter_map(|exchange| match exchange {
            Exchange::Command {
                opcode,
                asked,
                answered,
                ..
            } => Some((*opcode, asked, answered)),
            _ => None,
        })
        .collect();
    for (opcode, _) in COMMANDS {
        assert!(
            commands.iter().any(|(code, ..)| *code == opcode.code()),
            "{opcode:?}"
        );
    }
    assert!(
        commands
            .iter()
            .all(|(_, asked, answered)| !asked.is_empty() && !answered.is_empty())
    );
}

#[test]
fn a_stage_that_does_not_exist_is_refused_before_anything_is_done() {
    let world = world();
    let before = snapshot(&world);
    let error = bring_up(&world, Some("no-such-stage")).unwrap_err();
    assert!(error.to_string().contains("no-such-stage") && error.to_string().contains("claim"));
    assert_eq!(snapshot(&world), before);
}

/// A function that gives the device no memory.
struct Memoryless(Arc<dyn Function>);

impl Around for Memoryless {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.0
    }

    fn map_dma(
        &self,
        _: Iova,
        _: &Memory,
        _: Range<usize>,
        _: DmaAccess,
    ) -> Result<(), FunctionError> {
        Err(FunctionError::Unsupported {
            backend: "test",
            operation: "map memory".into(),
        })
    }
}

#[test]
fn without_memory_nothing_is_claimed_of_the_firmware_and_the_device_is_left_as_found() {
    let world = world();
    let before = snapshot(&world);
    let function = Arc::new(Memoryless(function(&world)));
    let error = Device::bring_up(function, &config(), BringUpOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("map memory"), "{text}");
    assert!(
        text.contains("the device was left as it was found"),
        "{text}"
    );
    assert_eq!(error.undo_failures, []);
    assert_eq!(snapshot(&world), before);
    demand_no_breach(&world);
}

#[test]
fn the_pool_falls_back_and_reports_it_when_huge_pages_are_short() {
    let world = world();
    world.with(|world| world.inject(0, Fault::NoPackageLoaded));
    let mut config = config();
    config.memory.hugepages = HugePages::Auto;
    let device = bring_up_with(&world, &config, None).unwrap();
    let usage = device.pool().unwrap().usage();
    // On a machine that has huge pages there is no warning.
    assert_eq!(
        usage.fallback.is_some(),
        usage.page_size == Some(PageSize::FourKiB)
    );
    assert_eq!(dma_pool::kept_forever_bytes(), 0);
}

#[test]
fn a_device_that_is_shut_down_is_left_as_found() {
    for count in [1, 2] {
        let world = world();
        let before = snapshot(&world);
        for _ in 0..count {
            let device = bring_up(&world, None).unwrap();
            assert_eq!(device.facts().rdma_unavailable, None);
            let report = device.shutdown();
            assert_eq!((report.failures, report.leaked_bytes), (vec![], 0));
            assert_eq!(snapshot(&world), before);
        }
        demand_no_breach(&world);
    }
}

#[test]
fn a_device_that_is_dropped_is_left_as_found() {
    let world = world();
    let before = snapshot(&world);
    drop(bring_up(&world, None).unwrap());
    assert_eq!(snapshot(&world), before);
}

#[test]
fn a_link_that_goes_down_is_reported_once() {
    let world = world();
    let device = bring_up(&world, None).unwrap();
    let up = device.link_state().unwrap();
    assert!(up.up && up.megabits_per_second == Some(100_000), "{up:?}");
    assert_eq!(device.poll_firmware_events().unwrap(), []);
    world.with(|world| world.inject(0, Fault::LinkDown));
    let clock = world.clock();
    for _ in 0..10 {
        clock.pause(Duration::from_millis(1));
    }
    let down = device.poll_firmware_events().unwrap();
    assert!(
        matches!(down.as_slice(), [FirmwareEvent::Link(state)] if !state.up),
        "{down:?}"
    );
    assert_eq!(device.poll_firmware_events().unwrap(), []);
    demand_no_breach(&world);
}

/// A package of three buffers; the last holds labels and is not downloaded. The layout is that of
/// the reference, byte by byte.
fn synthetic_package() -> Vec<u8> {
    let buffer = |kind: u32, data: &[u8]| {
        let mut bytes = vec![0; 4096];
        bytes[0..2].copy_from_slice(&1u16.to_le_bytes());
        bytes[2..4].copy_from_slice(&(12 + data.len() as u16).to_le_bytes());
        bytes[4..8].copy_from_slice(&kind.to_le_bytes());
        bytes[8..10].copy_from_slice(&12u16.to_le_bytes());
        bytes[10..12].copy_from_slice(&(data.len() as u16).to_le_bytes());
        bytes[12..12 + data.len()].copy_from_slice(data);
        bytes
    };
    let mut metadata = vec![1, 3, 99, 0];
    metadata.extend_from_slice(b"Synthetic package           ");
    metadata.extend_from_slice(&7u32.to_le_bytes());
    let buffers = [
        buffer(1, &metadata),
        buffer(56, &[0; 92]),
        buffer(0x8000_0018, &[0; 2]),
    ];
    let mut segment = 0x10u32.to_le_bytes().to_vec();
    segment.extend_from_slice(&[1, 3, 0, 0]);
    let size = 44 + 12 + buffers.len() * 4096;
    segment.extend_from_slice(&(size as u32).to_le_bytes());
    segment.extend_from_slice(&[0; 32]);
    for count in [0, 0, buffers.len() as u32] {
        segment.extend_from_slice(&count.to_le_bytes());
    }
    segment.extend(buffers.concat());
    let mut file = vec![1, 0, 0, 0];
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&12u32.to_le_bytes());
    file.extend(segment);
    file
}

#[test]
fn a_package_that_is_found_is_downloaded_and_rdma_is_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ice.pkg"), synthetic_package()).unwrap();
    let world = world();
    world.with(|world| world.inject(0, Fault::NoPackageLoaded));
    let mut config = config();
    config.ddp.search = vec![folder.path().into()];
    let device = bring_up_with(&world, &config, None).unwrap();
    let package = device.facts().package.clone().unwrap();
    assert_eq!(package.state, PackageState::Downloaded);
    let active = package.active.unwrap();
    assert_eq!((active.version, active.track_id), ([1, 3, 99, 0], 7));
    assert_eq!(device.facts().rdma_unavailable, None);
    let downloads = device
        .trace()
        .stages
        .iter()
        .flat_map(|stage| &stage.exchanges);
    let code = Opcode::DownloadPackage.code();
    let sent = downloads
        .filter(|one| matches!(one, Exchange::Command { opcode, .. } if *opcode == code))
        .count();
    assert_eq!(sent, 2);
    assert_eq!(device.shutdown().failures, []);
    demand_no_breach(&world);
}

#[test]
fn in_safe_mode_foreign_resets_and_stalled_firmware_are_detected_and_recovered_from() {
    let world = world();
    world.with(|world| world.inject(0, Fault::NoPackageLoaded));
    let before = snapshot(&world);
    let mut device = bring_up(&world, None).unwrap();
    let mut supervision = Supervision::new(Duration::from_millis(5), Duration::from_millis(5));
    let mut life = 1;
    for (fault, cause) in [
        (
            Fault::Reset(ResetKind::Function),
            FailureCause::FunctionReset,
        ),
        (Fault::Reset(ResetKind::Core), FailureCause::CoreReset),
        (Fault::FirmwareStall, FailureCause::FirmwareSilent),
        (
            Fault::Reset(ResetKind::Function),
            FailureCause::FunctionReset,
        ),
    ] {
        for _ in 0..3 {
            let supervised = device.supervise(&mut supervision, &mut Vec::new()).unwrap();
            assert!(
                matches!(supervised, Supervised::InService),
                "{supervised:?}"
            );
            world.clock().pause(Duration::from_millis(10));
        }
        world.with(|world| world.inject(0, fault));
        let recovered = (0..1000).find_map(|_| {
            world.clock().pause(Duration::from_millis(1));
            match device.supervise(&mut supervision, &mut Vec::new()).unwrap() {
                Supervised::Recovered(report) => Some(report),
                _ => None,
            }
        });
        let report = recovered.expect("recovered");
        life += 1;
        assert_eq!((report.cause, report.life), (cause, life));
    }
    assert_eq!(device.shutdown().failures, []);
    assert_eq!(snapshot(&world), before);
    demand_no_breach(&world);
}

#[test]
fn a_damaged_package_is_safe_mode_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ice.pkg"), &synthetic_package()[..5000]).unwrap();
    let world = world();
    world.with(|world| world.inject(0, Fault::NoPackageLoaded));
    let mut config = config();
    config.ddp.search = vec![folder.path().into()];
    let device = bring_up_with(&world, &config, None).unwrap();
    let reason = device.facts().rdma_unavailable.clone().unwrap();
    assert!(reason.contains("cut short"), "{reason}");
}

#[test]
fn a_trace_can_be_written_as_json() {
    let world = world();
    let device = bring_up(&world, None).unwrap();
    let json = serde_json::to_value(device.trace()).unwrap();
    let stages = json["stages"].as_array().unwrap();
    assert_eq!(stages.len(), stage_names().len());
    let first = &stages[4]["exchanges"].as_array().unwrap()[0];
    assert!(first["kind"].is_string(), "{first}");
}
