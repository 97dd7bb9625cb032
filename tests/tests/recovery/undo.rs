//! A firmware that does not answer while a device is shut down.

use ringside_bus::clock::Instant;
use ringside_bus::{Around, Function, FunctionError};
use ringside_model::{Fault, Stepped, WorldSettings};
use ringside_pmd::ShutdownReport;
use ringside_pmd::bring_up::Undo;
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::registers::control_queues::ADMIN_SEND;
use ringside_testkit::{bring_up_function, small_config};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The firmware stops for this time: longer than the 100 ms that a command has, and shorter than
/// that one and the next have.
const STOP: Duration = Duration::from_millis(130);

/// A function whose firmware stops for a while at one of the driver's commands.
struct Passing {
    inner: Arc<dyn Function>,
    world: Arc<Stepped>,
    /// commands until then; none if it does not stop, or has
    before: Mutex<Option<usize>>,
    /// the moment at which it goes on
    end: Mutex<Option<Instant>>,
}

impl Passing {
    fn stop_in(&self, commands: usize) {
        *self.before.lock().unwrap() = Some(commands);
    }
}

impl Around for Passing {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        let now = self.world.clock().now();
        let is_over = self.end.lock().unwrap().take_if(|end| *end <= now);
        if is_over.is_some() {
            let world = &self.world;
            world.with(|world| world.clear_fault(0, Fault::FirmwareStall));
        }
        self.inner.read32(bar, offset)
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        if offset == ADMIN_SEND.tail && value > 0 {
            let mut before = self.before.lock().unwrap();
            if before.take_if(|left| *left == 0).is_some() {
                self.world
                    .with(|world| world.inject(0, Fault::FirmwareStall));
                *self.end.lock().unwrap() = Some(self.world.clock().now().plus(STOP));
            }
            *before = before.map(|left| left - 1);
        }
        self.inner.write32(bar, offset, value)
    }
}

/// The end of a device.
struct Ended {
    report: ShutdownReport,
    /// its firmware has stopped, if that was wanted
    has_stopped: bool,
    is_as_found: bool,
}

/// Shuts a device down after `trouble`; no breach of the interface.
fn shut_down_with(trouble: impl FnOnce(&Passing)) -> Ended {
    let world = Arc::new(Stepped::new(&WorldSettings::with_functions(1)));
    let snapshot = || world.with(|world| world.snapshot(0)).expect("a function");
    let before = snapshot();
    let function = Arc::new(Passing {
        inner: world.function(0).expect("a function"),
        world: Arc::clone(&world),
        before: Mutex::default(),
        end: Mutex::default(),
    });
    let device = bring_up_function(Arc::clone(&function) as _, 0, &small_config());
    trouble(&function);
    let report = device.shutdown();
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
    let has_stopped = function.before.lock().unwrap().is_none();
    world.with(|world| world.clear_faults(0));
    Ended {
        report,
        has_stopped,
        is_as_found: snapshot() == before,
    }
}

/// At each command of the shutdown.
#[test]
fn a_firmware_that_stops_for_a_moment_leaves_nothing_behind() {
    for commands in 0..100 {
        let ended = shut_down_with(|function| function.stop_in(commands));
        let failures = &ended.report.failures;
        assert!(failures.is_empty(), "command {commands}: {failures:#?}");
        assert_eq!(ended.report.leaked_bytes, 0, "command {commands}");
        assert!(ended.is_as_found, "command {commands}");
        if !ended.has_stopped {
            assert!(commands > 10, "{commands} commands");
            return;
        }
    }
    panic!("a shutdown of more than 100 commands");
}

/// The queue set stays under its node, and so that under its parent: the firmware is not asked to
/// delete them. Clearing the configuration does.
#[test]
fn nodes_above_one_that_stays_are_left_to_clearing_the_configuration() {
    let silent = Fault::AdminCommandSilent {
        opcode: Opcode::DisableTransmitQueues.code(),
    };
    let ended = shut_down_with(|function| {
        function.world.with(|world| world.inject(0, silent));
    });
    let failures = &ended.report.failures;
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(ended.is_as_found);
}

/// The report says that the configuration stays, and names none of its parts.
#[test]
fn a_firmware_that_stops_for_good_is_reported_by_what_no_reset_takes_back() {
    let ended = shut_down_with(|function| {
        let world = &function.world;
        world.with(|world| world.inject(0, Fault::FirmwareStall));
    });
    let failures = &ended.report.failures;
    let failed: Vec<_> = failures.iter().map(|one| &one.undo).collect();
    assert!(failed.contains(&&Undo::ClearFunctionConfig), "{failed:#?}");
    let is_part = |undo: &&&Undo| {
        matches!(
            undo,
            Undo::DeleteNode { .. }
                | Undo::RemoveRdmaQueueSet { .. }
                | Undo::FreeVsi { .. }
                | Undo::RemoveMacRule { .. }
        )
    };
    assert_eq!(failed.iter().filter(is_part).count(), 0, "{failed:#?}");
    assert!(!ended.is_as_found, "the report says so");
    assert_eq!(ended.report.leaked_bytes, 0);
}
