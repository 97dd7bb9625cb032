//! Our own driver, from bring-up to shutdown, over sockets.

use super::Served;
use ringside_pmd::Device;
use ringside_pmd::rdma::Flags;
use ringside_testkit::{ConnectedEnd, bring_up_all, bring_up_function, config, connect, shut_down};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// Brings up both functions of a server.
pub(super) fn devices(served: &Served) -> [Device; 2] {
    bring_up_all(|index| Some(served.client(index.into())), &config())
}

pub(super) fn ends(devices: &[Device; 2], bytes: usize) -> [ConnectedEnd; 2] {
    connect(devices.each_ref(), bytes, |config| config)
}

/// Writes `bytes` from one end into the other and compares them there.
fn write_and_compare(from: &mut ConnectedEnd, to: &ConnectedEnd, id: u64, bytes: &[u8]) {
    assert!(from.source.write(0, bytes));
    let piece = from.source.slice(0..bytes.len()).unwrap();
    let remote = to.target.remote().at(0);
    from.queue_pair
        .write(id, &[piece], remote, Flags::SIGNALLED)
        .unwrap();
    from.queue_pair.ring();
    assert_eq!(from.wait_one().id, id);
    let mut arrived = vec![0; bytes.len()];
    assert!(to.target.read(0, &mut arrived));
    assert!(
        arrived == bytes,
        "write {id} of {} bytes arrived wrong",
        bytes.len()
    );
}

fn drive(doorbell_page: bool) {
    let served = Served::start(doorbell_page);
    let devices = devices(&served);
    {
        let mut ends = ends(&devices, 1 << 20);
        let [left, right] = &mut ends;
        for (id, length) in [(1, 1), (2, 8), (3, 4097), (4, 1 << 20)] {
            let pattern: Vec<u8> = (0..length)
                .map(|at| (at * 31 + id as usize) as u8)
                .collect();
            write_and_compare(left, right, id, &pattern);
            write_and_compare(right, left, id + 100, &pattern);
        }
    }
    shut_down(devices);
    let breaches = served.with(|world| [world.breaches(0), world.breaches(1)]);
    assert_eq!(breaches, [vec![], vec![]], "the driver broke the interface");
}

#[test]
fn the_driver_moves_data_over_sockets_with_a_mapped_doorbell_page() {
    drive(true);
}

#[test]
fn the_driver_moves_data_over_sockets_with_every_doorbell_a_message() {
    drive(false);
}

/// The name of the variable that makes the test below play the driver that is killed.
const VICTIM: &str = "RINGSIDE_TEST_VICTIM";

/// A process that brings function 0 up and reports it, until it is killed.
fn victim(socket: &str) -> ! {
    let function = super::connect(socket.as_ref());
    let device = bring_up_function(function, 0, &config());
    let _domain = device.protection_domain().unwrap();
    println!("victim is up");
    std::thread::sleep(2 * LIMIT);
    panic!("the process was not killed");
}

#[test]
fn a_driver_process_that_is_killed_leaves_a_function_that_can_be_brought_up_again() {
    if let Ok(socket) = std::env::var(VICTIM) {
        victim(&socket);
    }
    let served = Served::start(true);
    for _ in 0..2 {
        let name = "driver::a_driver_process_that_is_killed_leaves_a_function_that_can_be_brought_up_again";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(VICTIM, &served.sockets[0])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let up = lines
            .map_while(Result::ok)
            .any(|line| line.contains("victim is up"));
        assert!(up, "the victim did not come up: {:?}", child.wait());
        assert_ne!(served.with(|world| world.snapshot(0).unwrap().mappings), []);
        child.kill().unwrap();
        child.wait().unwrap();
        let begin = Instant::now();
        while !served.with(|world| world.snapshot(0).unwrap().mappings.is_empty()) {
            assert!(begin.elapsed() < LIMIT, "its end was not seen");
        }
    }
    shut_down([bring_up_function(served.client(0), 0, &config())]);
}

/// Half of a round trip by writes of eight bytes, the fastest of several batches.
fn ping_pong(ends: &mut [ConnectedEnd; 2], rounds: u64) -> Duration {
    let [left, right] = ends;
    let mut best = Duration::MAX;
    for batch in 0..10u64 {
        let begin = Instant::now();
        for round in 1..=rounds {
            let stamp = (batch * rounds + round).to_le_bytes();
            for (from, to) in [(0, 1), (1, 0)] {
                let pair = [&mut *left, &mut *right];
                let (from, to) = if from < to {
                    let [from, to] = pair;
                    (from, to)
                } else {
                    let [to, from] = pair;
                    (from, to)
                };
                assert!(from.source.write(0, &stamp));
                let piece = from.source.slice(0..8).unwrap();
                let flags = Flags::SIGNALLED;
                let remote = to.target.remote().at(0);
                from.queue_pair
                    .write(round, &[piece], remote, flags)
                    .unwrap();
                from.queue_pair.ring();
                let mut arrived = [0; 8];
                while arrived != stamp {
                    assert!(to.target.read(0, &mut arrived));
                    assert!(begin.elapsed() < LIMIT, "round {round}");
                }
                from.wait_one();
            }
        }
        best = best.min(begin.elapsed() / (2 * rounds as u32));
    }
    best
}

/// A report, with a bound that only a broken data path exceeds: machines differ.
#[test]
fn a_mapped_doorbell_needs_no_message_on_the_data_path() {
    let served = Served::start(true);
    let devices = devices(&served);
    let mut ends = ends(&devices, 4096);
    ping_pong(&mut ends, 200);
    let half = ping_pong(&mut ends, 2000);
    println!("8-byte write, half round trip over vfio-user: {half:?}");
    assert!(half < Duration::from_millis(1), "{half:?}");
    drop(ends);
    shut_down(devices);
}
