//! Queues and VSIs that another thread starts while the device is being shut down.

use crate::rig::{config, settings};
use ringside_bus::{Around, Function, FunctionError};
use ringside_lan::StopError;
use ringside_model::Stepped;
use ringside_pmd::Device;
use ringside_pmd::lan::{OpenPort, PortError, PortSettings, VsiSettings};
use ringside_spec::lan::registers::queues::{
    RECEIVE_QUEUE_CONTROL, RECEIVE_QUEUE_PROFILE, ReceiveQueueControl,
};
use ringside_testkit::{bring_up_function, world_settings};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The longest wait for another thread.
const LIMIT: Duration = Duration::from_secs(60);
/// The time that another thread has for a step that it must not make.
const PATIENCE: Duration = Duration::from_millis(300);

/// A write that a gate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    /// enables or disables a receive queue
    Enable { queue: u32, on: bool },
    /// clears the context of a receive queue
    Clear { queue: u32 },
}

#[derive(Default)]
struct State {
    hold: Option<Write>,
    held: bool,
    /// since the hold
    writes: Vec<Write>,
}

/// A function that holds one write back until another one has been made.
struct Gate {
    inner: Arc<dyn Function>,
    /// the write that ends the hold
    until: Option<Write>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn new(world: &Stepped, until: Option<Write>) -> Arc<Self> {
        Arc::new(Self {
            inner: world.function(0).expect("function 0"),
            until,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    fn hold(&self, write: Write) {
        let mut state = self.state();
        state.hold = Some(write);
        state.writes.clear();
    }

    fn wait_until_held(&self) {
        let waited = self
            .changed
            .wait_timeout_while(self.state(), LIMIT, |state| !state.held);
        assert!(waited.expect("no panic").0.held, "the write does not come");
    }

    fn open(&self) {
        self.state().held = false;
        self.changed.notify_all();
    }

    /// The last write for a queue since the hold.
    fn last(&self, queue: u32) -> Option<Write> {
        let state = self.state();
        let newest = state.writes.iter().rev();
        newest
            .copied()
            .find(|write| matches!(write, Write::Enable { queue: of, .. } if *of == queue))
    }

    fn before(&self, write: Write) {
        let mut state = self.state();
        if state.hold == Some(write) {
            (state.hold, state.held) = (None, true);
            self.changed.notify_all();
            let (limit, until) = match self.until {
                Some(_) => (PATIENCE, self.until),
                None => (LIMIT, None),
            };
            let closed = |state: &mut State| {
                state.held && !until.is_some_and(|until| state.writes.contains(&until))
            };
            let waited = self.changed.wait_timeout_while(state, limit, closed);
            state = waited.expect("no panic").0;
        }
        if state.hold.is_none() {
            state.writes.push(write);
            self.changed.notify_all();
        }
    }
}

impl Around for Gate {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        let queue = (0..2).find(|queue| RECEIVE_QUEUE_CONTROL.at(*queue) == offset);
        if let Some(queue) = queue {
            let on = ReceiveQueueControl(value).enable_request();
            self.before(Write::Enable { queue, on });
        }
        let cleared = (0..2).find(|queue| RECEIVE_QUEUE_PROFILE.at(*queue) == offset);
        if let Some(queue) = cleared.filter(|_| value == 0) {
            self.before(Write::Clear { queue });
        }
        self.inner.write32(bar, offset, value)
    }
}

/// A device behind a gate, with a port of two queues of which the second one is stopped.
fn behind(gate: &Arc<Gate>) -> (Device, OpenPort) {
    let function: Arc<dyn Function> = Arc::clone(gate) as _;
    let device = bring_up_function(function, 0, &config());
    let settings = PortSettings {
        receive_queues: 2,
        ..settings()
    };
    let mut open = device.open_port(&settings).expect("a port");
    open.receive[1].stop().expect("stopped");
    (device, open)
}

#[test]
fn queues_and_vsis_are_not_started_once_the_shutdown_stops_queues() {
    let world = Stepped::new(&world_settings(1));
    let gate = Gate::new(&world, None);
    let (device, mut open) = behind(&gate);
    gate.hold(Write::Enable {
        queue: 0,
        on: false,
    });
    let (started, added) = std::thread::scope(|scope| {
        let down = scope.spawn(|| device.shutdown());
        gate.wait_until_held();
        let started = open.receive[1].start();
        let further = VsiSettings {
            queues: settings(),
            ..VsiSettings::new([2, 0xE8, 0x10, 0, 0, 9])
        };
        let added = open.port.add_vsi(&further).map(drop);
        gate.open();
        let report = down.join().expect("shut down");
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        (started, added)
    });
    assert_eq!(started, Err(StopError::OutOfService));
    assert_eq!(added, Err(PortError::OutOfService));
    assert_eq!(gate.last(1), None, "the device uses the second queue");
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn a_queue_that_is_being_started_is_enabled_before_the_shutdown_disables_it() {
    let world = Stepped::new(&world_settings(1));
    let off = Write::Enable {
        queue: 1,
        on: false,
    };
    let gate = Gate::new(&world, Some(off));
    let (device, mut open) = behind(&gate);
    gate.hold(Write::Enable { queue: 1, on: true });
    let started = std::thread::scope(|scope| {
        let starter = scope.spawn(|| open.receive[1].start());
        gate.wait_until_held();
        let report = device.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        starter.join().expect("no panic")
    });
    assert_eq!(started, Ok(()));
    assert_eq!(gate.last(1), Some(off), "the device uses the second queue");
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn a_port_is_not_opened_while_another_thread_closes_the_former_one() {
    let world = Stepped::new(&world_settings(1));
    let gate = Gate::new(&world, None);
    let (device, open) = behind(&gate);
    // The last handle of the port is gone by then.
    gate.hold(Write::Clear { queue: 0 });
    let early = std::thread::scope(|scope| {
        let closing = scope.spawn(|| drop(open));
        gate.wait_until_held();
        let early = device.open_port(&settings()).map(drop);
        gate.open();
        closing.join().expect("no panic");
        early
    });
    assert_eq!(early, Err(PortError::AlreadyOpen));
    drop(device.open_port(&settings()).expect("a port"));
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
}
