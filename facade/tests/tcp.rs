//! TCP over the port of an opened device, in real time: waits and their ends.

use ringside::NetworkError;
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use ringside::stack::{ResolveError, TcpConnection, TcpError, TcpListener};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

mod pair;

const WAIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);
const PORT: u16 = 7000;

/// Opens a function of the model; each test has functions and a network of its own.
fn open(index: u16, third: u8, last: u8) -> Device {
    let mut config = Config::default();
    config.model.functions = 16;
    config.network.addresses = vec![format!("10.30.{third}.{last}/24").parse().unwrap()];
    ringside::open(&format!("model:{index}"), &config).unwrap()
}

fn at(third: u8, last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 30, third, last]), PORT)
}

fn tcp(error: NetworkError) -> TcpError {
    match error {
        NetworkError::Tcp(error) => error,
        other => panic!("{other}"),
    }
}

/// Two devices and a connection from the first to the second.
fn connected(first: u16, third: u8) -> ([Device; 2], TcpListener, [TcpConnection; 2]) {
    let devices = [open(first, third, 1), open(first + 1, third, 2)];
    let listener = devices[1].listen_tcp(at(third, 2), 4).unwrap();
    let near = devices[0].connect_tcp(at(third, 2), WAIT).unwrap();
    let far = listener.accept(WAIT).unwrap();
    (devices, listener, [near, far])
}

#[test]
fn each_wait_ends_at_its_limit_with_its_reason() {
    let (devices, listener, [mut near, mut far]) = connected(0, 0);
    let began = Instant::now();
    let silent = near.read(&mut [0], SHORT);
    assert_eq!(
        silent,
        Err(TcpError::Silent {
            peer: at(0, 2),
            limit: SHORT
        })
    );
    let (address, limit) = (at(0, 2), SHORT);
    assert_eq!(
        listener.accept(SHORT).unwrap_err(),
        TcpError::NoPeer { address, limit }
    );
    let refused = devices[0].connect_tcp(SocketAddr::new(at(0, 2).ip(), 9), WAIT);
    assert!(matches!(tcp(refused.unwrap_err()), TcpError::Refused(_)));
    let absent = tcp(devices[0].connect_tcp(at(0, 77), SHORT).unwrap_err());
    assert_eq!(
        absent,
        TcpError::Unanswered {
            peer: at(0, 77),
            limit
        }
    );
    assert!(began.elapsed() < WAIT, "{:?}", began.elapsed());
    let absent = tcp(devices[0].connect_tcp(at(0, 77), WAIT).unwrap_err());
    let text = absent.to_string();
    let no_answer = |error: &TcpError| {
        matches!(
            error,
            TcpError::Unreachable {
                error: ResolveError::NoAnswer { .. },
                ..
            }
        )
    };
    assert!(no_answer(&absent) && text.contains("10.30.0.77"), "{text}");
    // The peer takes nothing: the writer stops once the windows are full.
    let stalled = near.write_all(&vec![1; 1 << 20], Duration::from_millis(500));
    assert!(
        matches!(stalled, Err(TcpError::Stalled { .. })),
        "{stalled:?}"
    );
    // A close is confirmed once the peer's stack has all of it.
    far.write_all(b"bye", WAIT).unwrap();
    far.close(WAIT).unwrap();
    let mut text = [0; 8];
    assert_eq!(near.read(&mut text, WAIT), Ok(3));
    assert_eq!(near.read(&mut text, WAIT), Ok(0));
}

/// A call that waits for long ends as soon as its device fails; the recovered device connects again
/// by another stack, and its shutdown ends that one's calls.
#[test]
fn a_wait_ends_with_its_device_and_not_at_its_limit() {
    let long = Duration::from_secs(600);
    let ([left, _right], _listener, [mut near, mut far]) = connected(2, 1);
    let reading = std::thread::spawn(move || near.read(&mut [0], long));
    std::thread::sleep(SHORT);
    let model = left.model().unwrap();
    model.with(|world| world.inject(2, Fault::Reset(ResetKind::Function)));
    assert_eq!(reading.join().unwrap(), Err(TcpError::OutOfService));
    let (end, mut events) = (Instant::now() + WAIT, Vec::new());
    while !events.contains(&Event::DeviceRecovered { life: 2 }) {
        assert!(Instant::now() < end, "no recovery: {events:?}");
        left.poll_events(&mut events).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut again = left.connect_tcp(at(1, 2), WAIT).unwrap();
    // The new stack knows nothing of the first connection, and resets it.
    far.write_all(b"x", WAIT).unwrap();
    let broken = TcpError::Broken(far.peer());
    assert_eq!(far.read(&mut [0], WAIT), Err(broken));
    let reading = std::thread::spawn(move || again.read(&mut [0], long));
    std::thread::sleep(SHORT);
    assert!(left.shutdown().failures.is_empty());
    assert_eq!(reading.join().unwrap(), Err(TcpError::Ended));
}

/// More connections one after the other than there are sockets: each ends once its peer has all.
#[test]
fn connections_beyond_the_number_of_sockets_close_without_an_error() {
    let devices = [open(12, 12, 1), open(13, 12, 2)];
    let listener = devices[1].listen_tcp(at(12, 2), 8).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..40 {
                    let mut far = listener.accept(WAIT).unwrap();
                    let mut bytes = [0; 100];
                    while far.read(&mut bytes, WAIT).unwrap() > 0 {}
                    far.write_all(b"the answer", WAIT).unwrap();
                    far.close(WAIT).unwrap();
                }
            });
            threads.spawn(|| {
                for _ in 0..40 {
                    let mut near = devices[0].connect_tcp(at(12, 2), WAIT).unwrap();
                    near.write_all(b"the question", WAIT).unwrap();
                    near.finish();
                    let (mut all, mut bytes) = (Vec::new(), [0; 100]);
                    while let count @ 1.. = near.read(&mut bytes, WAIT).unwrap() {
                        all.extend_from_slice(&bytes[..count]);
                    }
                    assert_eq!(all, b"the answer");
                }
            });
        }
    });
}

/// Bytes both ways while queue pairs of the same devices write.
#[test]
fn a_connection_goes_on_beside_rdma_traffic() {
    const LENGTH: usize = 300_000;
    let mut ends = pair::connected(6);
    let address = |end: &pair::End| SocketAddr::new(end.device.local_addresses().unwrap()[0], PORT);
    let to = address(&ends[1]);
    let listener = ends[1].device.listen_tcp(to, 1).unwrap();
    let mut near = ends[0].device.connect_tcp(to, WAIT).unwrap();
    let mut far = listener.accept(WAIT).unwrap();
    let (source, target) = (ends[0].region(65_536), ends[1].region(65_536));
    let talking = std::thread::spawn(move || {
        let sent = vec![0x5A; LENGTH];
        let writing = std::thread::spawn(move || near.write_all(&sent, WAIT).map(|()| near));
        let (mut count, mut piece) = (0, [0; 5000]);
        while count < LENGTH {
            let length = far.read(&mut piece, WAIT).unwrap();
            assert!(length > 0 && piece[..length].iter().all(|byte| *byte == 0x5A));
            count += length;
        }
        drop(writing.join().unwrap().unwrap());
        count
    });
    let mut id = 0;
    while !talking.is_finished() || id < 20 {
        id += 1;
        let place = target.remote().at(0);
        let slice = source.slice(0..65_536).unwrap();
        ends[0]
            .queue_pair
            .write(id, &[slice], place, Flags::SIGNALLED)
            .unwrap();
        ends[0].queue_pair.ring();
        ends[0].wait(id);
    }
    assert_eq!(talking.join().unwrap(), LENGTH);
}
