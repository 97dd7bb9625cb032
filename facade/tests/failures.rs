//! A failed device that nothing recovers: those that wait for it learn of the failure each time,
//! and it stays failed until the program recovers it.

use ringside::bus::Readable;
use ringside::driver::lan::{PortError, PortSettings};
use ringside::driver::rdma::RdmaError;
use ringside::driver::recovery::{Supervised, Supervision};
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// The functions of the model are opened by one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn open(thread: bool) -> Device {
    let mut config = Config::default();
    config.housekeeping.thread = thread;
    config.housekeeping.recover = false;
    ringside::open("model:0", &config).unwrap()
}

fn reset(device: &Device) {
    let model = device.model().unwrap();
    model.with(|world| world.inject(0, Fault::Reset(ResetKind::Function)));
}

fn on_tokio<T>(run: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(run)
}

/// The results of two waits, each within the limit.
async fn two_waits<T>(readable: &Readable, take: impl Fn() -> T) -> [T; 2] {
    let wait = async || {
        let waited = tokio::time::timeout(LIMIT, readable.take(&take)).await;
        waited.expect("it does not wake up").unwrap()
    };
    [wait().await, wait().await]
}

/// tokio is told of a descriptor that becomes readable, and not of one that stays so.
#[test]
fn each_asynchronous_wait_after_a_failure_ends() {
    let _one = ONE.lock();
    let device = open(true);
    let interrupts = device.interrupts().unwrap();
    let open = device.driver().open_port(&PortSettings::default()).unwrap();
    let packets = open.port.receive_interrupt(&[0]).unwrap();
    on_tokio(async {
        let completions = Readable::new(&interrupts).unwrap();
        let received = Readable::new(&packets).unwrap();
        reset(&device);
        let failed = two_waits(&received, || packets.take()).await;
        assert_eq!(failed, [const { Err(PortError::OutOfService) }; 2]);
        for failed in two_waits(&completions, || interrupts.take()).await {
            assert!(
                matches!(failed, Err(RdmaError::DeviceFailed { .. })),
                "{failed:?}"
            );
        }
    });
}

/// A program that takes no notice of the end of its events leaves time to other tasks.
#[test]
fn a_task_whose_descriptor_stays_readable_lets_others_run() {
    let _one = ONE.lock();
    let device = open(true);
    let events = device.events().unwrap();
    on_tokio(async {
        let readable = Readable::new(&events).unwrap();
        let _ = device.shutdown();
        let forever = async {
            loop {
                readable.take(|| events.is_over()).await.unwrap();
            }
        };
        let ended = tokio::time::timeout(Duration::from_millis(20), forever).await;
        assert!(ended.is_err(), "the limit was noticed");
    });
}

#[test]
fn a_device_that_is_not_to_be_recovered_waits_for_the_program() {
    let _one = ONE.lock();
    let device = open(false);
    let mut supervision = Supervision::new(Duration::ZERO, Duration::ZERO);
    let mut supervise = || device.supervise(&mut supervision, &mut Vec::new());
    assert!(matches!(supervise(), Ok(Supervised::InService)));
    reset(&device);
    let began = Instant::now();
    let mut waits = 0;
    while waits < 50 {
        match supervise() {
            Ok(Supervised::InService) => assert_eq!(waits, 0, "it is in service by itself"),
            Ok(Supervised::Waiting(_)) => waits += 1,
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < LIMIT, "no failure is noticed");
    }
    assert_eq!(device.life(), 1);
    assert!(device.failure().is_some());
    device.recover().unwrap();
    assert_eq!(device.life(), 2);
    assert!(matches!(supervise(), Ok(Supervised::InService)));
}
