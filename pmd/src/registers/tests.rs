use super::*;
use ringside_bus::double::{Double, Script};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A device whose writes take as long as the test wants.
struct Slow {
    begun: Sender<u32>,
    goes_on: Receiver<()>,
    written: Vec<u32>,
}

impl Script for Slow {
    fn read(&self, _: u64) -> u32 {
        0
    }

    fn write(&mut self, _: u64, value: u32) {
        self.begun.send(value).expect("a test");
        self.goes_on.recv().expect("a test");
        self.written.push(value);
    }
}

#[test]
fn writes_under_way_are_done_when_registers_are_closed_and_later_ones_are_refused() {
    let (begun, begins) = channel();
    let (go_on, goes_on) = channel();
    let slow = Slow {
        begun,
        goes_on,
        written: Vec::new(),
    };
    let device = Arc::new(Double::new(slow, Duration::ZERO));
    let all = Registers::new(Arc::clone(&device) as Arc<dyn Function>, Recorder::new());
    let gated = all.gated();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| gated.clone().write(0, 1));
        assert_eq!(begins.recv(), Ok(1));
        let closing = scope.spawn(|| gated.close());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!closing.is_finished(), "a write is under way");
        go_on.send(()).expect("a writer");
        closing.join().expect("no panic");
        writer.join().expect("no panic").expect("it began before");
    });
    // Writes that come later do not wait.
    for _ in 0..2 {
        go_on.send(()).expect("a writer");
    }
    let refused = gated.clone().write_quietly(0, 2).expect_err("closed");
    assert!(matches!(refused, FunctionError::Ended { .. }), "{refused}");
    // Those of others are not concerned.
    all.write(0, 3).expect("not closed");
    assert_eq!(device.script().written, [1, 3]);
}

/// A device whose counters read all ones, and its identity register as it says.
struct Ones {
    identity: u32,
}

impl Script for Ones {
    fn read(&self, offset: u64) -> u32 {
        match offset {
            IDENTITY => self.identity,
            _ => u32::MAX,
        }
    }

    fn write(&mut self, _: u64, _: u32) {}
}

#[test]
fn a_counter_of_all_ones_is_none_of_a_device_that_is_gone() {
    let registers = |identity| {
        let device = Arc::new(Double::new(Ones { identity }, Duration::ZERO));
        Registers::new(device, Recorder::new())
    };
    let there = registers(3);
    assert_eq!(there.read_quietly(0x38_0000).expect("there"), u32::MAX);
    assert_eq!(there.read64_quietly(0x38_0000).expect("there"), u64::MAX);
    let gone = registers(u32::MAX);
    let narrow = gone.read_quietly(0x38_0000).map(u64::from);
    for read in [narrow, gone.read64_quietly(0x38_0000)] {
        let error = read.expect_err("gone");
        assert!(matches!(error, FunctionError::Gone { .. }), "{error}");
    }
}
