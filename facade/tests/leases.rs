//! The address that a DHCP server grants, and the GID table.

use ringside::driver::lan::{OpenPort, PortSettings};
use ringside::lan::Burst;
use ringside::prelude::*;
use ringside_testkit::lease_for;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);
const SERVER: [u8; 4] = [10, 50, 0, 1];
const GRANTED: [u8; 4] = [10, 50, 0, 77];

/// A question by ARP for the station that has an address.
fn question(mac: [u8; 6], target: [u8; 4]) -> Vec<u8> {
    let mut sent = vec![0xFF; 6];
    sent.extend(mac);
    sent.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    sent.extend(mac);
    sent.extend(SERVER);
    sent.extend([0; 6]);
    sent.extend(target);
    sent
}

/// True for the answer by ARP of the station that has an address.
fn is_answer(frame: &[u8], of: [u8; 4]) -> bool {
    frame.get(12..14) == Some(&[8, 6])
        && frame.get(20..22) == Some(&[0, 2])
        && frame.get(28..32) == Some(&of)
}

/// A DHCP server that also asks for the station with [`GRANTED`].
#[derive(Default)]
struct Told {
    ends: AtomicBool,
    /// added to the last byte of the address that it grants
    further: AtomicU8,
    questions: AtomicU32,
    answers: AtomicU32,
}

/// Answers until it is told to end.
fn serve(mut port: OpenPort, told: &Told) {
    let mac = port.port.mac();
    let mut burst = Burst::with_limit(32);
    while !told.ends.load(Ordering::Relaxed) {
        port.receive[0].receive(&mut burst);
        let frames: Vec<Vec<u8>> = burst.drain().map(|packet| packet.to_vec()).collect();
        let answers = frames.iter().filter(|frame| is_answer(frame, GRANTED));
        told.answers
            .fetch_add(answers.count() as u32, Ordering::Relaxed);
        let mut granted = GRANTED;
        granted[3] += told.further.load(Ordering::Relaxed);
        let leases = frames
            .iter()
            .filter_map(|frame| lease_for(frame, (mac, SERVER), granted));
        let leases: Vec<_> = leases.collect();
        for sent in leases.into_iter().chain([question(mac, GRANTED)]) {
            let packet = port.pool.packet_with(&sent).expect("a buffer");
            burst.push(packet).expect("room");
            port.transmit[0].send(&mut burst);
            burst.clear();
        }
        told.questions.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The tests share the model of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device that gets its address from a server on another one.
struct Bed {
    _server: Device,
    thread: Option<std::thread::JoinHandle<()>>,
    told: Arc<Told>,
    device: Device,
}

impl Bed {
    fn new() -> Self {
        let server = ringside::open("model:1", &Config::default()).unwrap();
        let settings = PortSettings {
            promiscuous: true,
            ..PortSettings::default()
        };
        let port = server.driver().open_port(&settings).unwrap();
        let told = Arc::new(Told::default());
        let of_thread = Arc::clone(&told);
        let thread = std::thread::spawn(move || serve(port, &of_thread));
        let mut config = Config::default();
        config.network.dhcp = true;
        let device = ringside::open("model:0", &config).unwrap();
        Self {
            _server: server,
            thread: Some(thread),
            told,
            device,
        }
    }

    /// Asks 20 times for the station with [`GRANTED`]; returns the number of answers.
    fn answered(&self) -> u32 {
        let end = Instant::now() + LIMIT;
        let (questions, answers) = (&self.told.questions, &self.told.answers);
        let begin = questions.load(Ordering::Relaxed);
        answers.store(0, Ordering::Relaxed);
        while questions.load(Ordering::Relaxed) < begin + 20 {
            assert!(Instant::now() < end, "the server asks no more");
            std::thread::sleep(Duration::from_millis(1));
        }
        answers.load(Ordering::Relaxed)
    }

    fn finish(mut self) {
        self.told.ends.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn leased(device: &Device) -> IpAddr {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(leased) = device.leased_address() {
            return leased.address;
        }
        assert!(Instant::now() < end, "no lease");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_leased_address_is_told_and_goes_into_the_gid_table_and_stays_after_a_recovery() {
    let _alone = alone();
    let bed = Bed::new();
    let device = &bed.device;
    let granted = IpAddr::from(GRANTED);
    assert_eq!(leased(device), granted);
    let own = device.leased_address().unwrap();
    let gid = device.add_address(own).expect("into the GID table");
    assert_eq!(gid.address, own);
    let manager = device.connection_manager().unwrap();
    assert!(manager.addresses().contains(&granted));
    let listener = manager.listen(SocketAddr::new(granted, 7471), 1);
    listener.expect("a service at the leased address");
    drop(manager);

    device.recover().unwrap();
    assert_eq!(leased(device), granted, "after the recovery");

    // The stack answers for it as long as the lease lasts.
    device.remove_address(granted, None).unwrap();
    assert_eq!(device.leased_address(), Some(own));

    bed.finish();
}

/// The program has added the lease to the GID table, which a recovery keeps.
#[test]
fn a_former_lease_is_not_answered_for_after_a_recovery_with_another_one() {
    let _alone = alone();
    let bed = Bed::new();
    let device = &bed.device;
    let granted = IpAddr::from(GRANTED);
    assert_eq!(leased(device), granted);
    device
        .add_address(device.leased_address().unwrap())
        .unwrap();
    assert!(bed.answered() > 0);
    bed.told.further.store(1, Ordering::Relaxed);
    device.recover().unwrap();
    assert_ne!(leased(device), granted);
    assert_eq!(bed.answered(), 0);
    // It is the program's own from now on.
    device.remove_address(granted, None).unwrap();
    device
        .add_address("10.50.0.77/24".parse().unwrap())
        .unwrap();
    assert!(bed.answered() > 0);
    device.recover().unwrap();
    leased(device);
    assert!(bed.answered() > 0);
    bed.finish();
}
