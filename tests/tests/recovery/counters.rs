//! Counters of the device that wrap while it is observed.

use ringside_bus::{Around, Function, FunctionError};
use ringside_pmd::lan::PortSettings;
use ringside_pmd::recovery::Supervision;
use ringside_spec::lan::registers::statistics::{PORT_RECEIVE_BYTES, VSI_RECEIVE_BYTES};
use ringside_testkit::{Bed, bring_up_function, config};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest wait of one thread for the other.
const LIMIT: Duration = Duration::from_secs(30);
/// 100 Gbit/s.
const BYTES_A_SECOND: u128 = 12_500_000_000;
/// Two turns of a counter of 40 bits, and some time.
const SECONDS: u64 = 200;

/// A function whose counters of received bytes count at the full rate of the port.
struct Busy {
    inner: Arc<dyn Function>,
    reads: AtomicUsize,
}

impl Around for Busy {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        let of_port = (0..8).map(|port| PORT_RECEIVE_BYTES.registers.at(port));
        let of_vsi = (0..768).map(|vsi| VSI_RECEIVE_BYTES.registers.at(vsi));
        if of_port.chain(of_vsi).any(|at| at == offset) {
            self.reads.fetch_add(1, Relaxed);
            let bytes = self.inner.clock().now().0 as u128 * BYTES_A_SECOND / 1_000_000_000;
            return Ok((bytes % (1 << 40)) as u64);
        }
        self.inner.read64(bar, offset)
    }
}

/// A function that waits in its first reading of a VSI's counter until another thread has dropped
/// the port.
struct Slow {
    inner: Arc<dyn Function>,
    begun: SyncSender<()>,
    dropped: Mutex<Receiver<()>>,
    has_waited: AtomicBool,
}

impl Around for Slow {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        let mut of_vsi = (0..768).map(|vsi| VSI_RECEIVE_BYTES.registers.at(vsi));
        let is_first = of_vsi.any(|at| at == offset) && !self.has_waited.swap(true, Relaxed);
        if is_first {
            self.begun.send(()).expect("the test waits");
            let dropped = self.dropped.lock().expect("one reading");
            dropped.recv_timeout(LIMIT).expect("a port that is dropped");
            // The other thread asks for a new port meanwhile.
            std::thread::sleep(Duration::from_millis(100));
        }
        self.inner.read64(bar, offset)
    }
}

#[test]
fn a_port_is_opened_again_while_counters_of_the_last_one_are_read() {
    let world = Bed::open();
    let (begun, has_begun) = sync_channel(1);
    let (is_dropped, dropped) = sync_channel(1);
    let slow = Arc::new(Slow {
        inner: world.function(0),
        begun,
        dropped: Mutex::new(dropped),
        has_waited: AtomicBool::new(true),
    });
    let device = bring_up_function(Arc::clone(&slow) as Arc<dyn Function>, 0, &config());
    let open = device.open_port(&PortSettings::default()).expect("a port");
    slow.has_waited.store(false, Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut supervision = Supervision::default();
            let clock = world.clock();
            for _ in 0..2 {
                let failed = device.observe(&mut supervision, &mut Vec::new());
                assert_eq!(failed.expect("events"), None);
                clock.pause(Duration::from_secs(11));
            }
        });
        has_begun
            .recv_timeout(LIMIT)
            .expect("a reading of counters");
        drop(open);
        is_dropped.send(()).expect("a reading that waits");
        let again = device.open_port(&PortSettings::default());
        drop(again.expect("the last port is closed"));
    });
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
}

#[test]
fn counters_of_a_device_that_is_observed_miss_no_turn() {
    let world = Bed::open();
    let busy = Arc::new(Busy {
        inner: world.function(0),
        reads: AtomicUsize::new(0),
    });
    let device = bring_up_function(Arc::clone(&busy) as Arc<dyn Function>, 0, &config());
    let open = device.open_port(&PortSettings::default()).expect("a port");
    let clock = world.clock();
    let begin = clock.now();
    let mut supervision = Supervision::default();
    busy.reads.store(0, Relaxed);
    while clock.now().since(begin) < Duration::from_secs(SECONDS) {
        let failed = device.observe(&mut supervision, &mut Vec::new());
        assert_eq!(failed.expect("events"), None);
        clock.pause(Duration::from_millis(500));
    }
    let reads = busy.reads.load(Relaxed);
    // Each time: the port's of two lists, and the VSI's.
    assert!(reads <= 3 * 20 + 3, "{reads} reads in {SECONDS} s");
    let least = u64::try_from(BYTES_A_SECOND).unwrap() * SECONDS;
    let all = device.statistics().expect("counters");
    let value = all.iter().find(|one| one.name == "rx_bytes.nic");
    let value = value.expect("a counter").value;
    assert!((least..least + least / 8).contains(&value), "{value}");
    let all = open.port.statistics().expect("counters");
    for name in ["rx_bytes", "rx_bytes.nic"] {
        let value = all.iter().find(|one| one.name == name);
        let value = value.expect("a counter").value;
        assert!(
            (least..least + least / 8).contains(&value),
            "{name}: {value}"
        );
    }
    drop(open);
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
}
