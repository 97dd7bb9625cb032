use super::*;
use rand::{Rng, SeedableRng};
use ringside_clock::Instant;
use ringside_pmd::rdma::{Endpoint, RemoteRegion};

/// Far beyond the duration of every test.
const LIMIT: Duration = Duration::from_secs(30);
/// For deadlines that should expire.
const SHORT: Duration = Duration::from_millis(30);

/// Real time.
struct RealTime(std::time::Instant);

impl Clock for RealTime {
    fn now(&self) -> Instant {
        Instant(self.0.elapsed().as_nanos() as u64)
    }

    fn pause(&self, at_most: Duration) {
        std::thread::sleep(at_most);
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(RealTime(std::time::Instant::now()))
}

fn greeting(last_octet: u8) -> Greeting {
    Greeting {
        endpoint: Endpoint {
            queue_pair: 17,
            start_psn: 0xABCDEF,
            address: [10, 0, 0, last_octet].into(),
            mac: [2, 0, 0, 0, 0, last_octet],
            path_mtu: 1024,
        },
        regions: vec![RemoteRegion {
            address: 0x1_0000_0000,
            key: 0x1234_5678,
            length_bytes: 4096,
        }],
    }
}

fn listener() -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), clock()).unwrap()
}

/// Connects, and returns the greeting of a peer that runs `peer` with the connection; `limit` is
/// the limit of the greeting.
fn greet_with(
    limit: Duration,
    peer: impl FnOnce(TcpStream) + Send + 'static,
) -> Result<Greeting, SessionError> {
    let listener = listener();
    let address = listener.address();
    let other = std::thread::spawn(move || peer(TcpStream::connect(address).unwrap()));
    let mut session = listener.accept(LIMIT).unwrap();
    let outcome = session.greet(&greeting(1), limit);
    drop(session);
    other.join().unwrap();
    outcome
}

/// The same with a peer that has sent `first` before the time of the greeting begins.
fn greet_after(
    first: Vec<u8>,
    limit: Duration,
    peer: impl FnOnce(TcpStream) + Send + 'static,
) -> Result<Greeting, SessionError> {
    let listener = listener();
    let address = listener.address();
    let (sent, is_sent) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&first).unwrap();
        sent.send(()).unwrap();
        peer(stream);
    });
    let mut session = listener.accept(LIMIT).unwrap();
    is_sent.recv_timeout(LIMIT).unwrap();
    let outcome = session.greet(&greeting(1), limit);
    drop(session);
    other.join().unwrap();
    outcome
}

/// Keeps the connection open until the other side closes it.
fn hold(mut stream: TcpStream) {
    let mut sink = [0; 4096];
    while stream.read(&mut sink).is_ok_and(|length| length > 0) {}
}

#[test]
fn two_sides_greet_several_times_synchronise_and_part() {
    let listener = listener();
    let address = listener.address();
    let side = |mut session: Session, own: u8, other: u8| {
        for add in [0, 100] {
            let learnt = session.greet(&greeting(own + add), LIMIT).unwrap();
            assert_eq!(learnt, greeting(other + add));
        }
        session.synchronise(Step::Connected, LIMIT).unwrap();
        session.synchronise(Step::Done, LIMIT).unwrap();
    };
    let other = std::thread::spawn(move || side(connect(address, LIMIT, clock()).unwrap(), 2, 1));
    side(listener.accept(LIMIT).unwrap(), 1, 2);
    other.join().unwrap();
}

#[test]
fn a_taken_address_and_a_foreign_one_cannot_be_listened_on() {
    let first = listener();
    for address in [first.address(), "192.0.2.1:4791".parse().unwrap()] {
        let error = Listener::bind(address, clock()).unwrap_err();
        assert!(matches!(error, SessionError::Listen { .. }), "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn accepting_without_a_peer_ends_at_the_deadline() {
    let error = listener().accept(SHORT).unwrap_err();
    assert!(
        matches!(error, SessionError::NoPeer { limit: SHORT, .. }),
        "{error}"
    );
}

#[test]
fn connecting_without_a_listener_is_an_error_that_names_it() {
    let address = listener().address();
    for limit in [LIMIT, Duration::ZERO] {
        let error = connect(address, limit, clock()).unwrap_err();
        assert!(matches!(error, SessionError::Connect { .. }), "{error}");
        assert!(error.to_string().contains("listening side first"));
    }
}

#[test]
fn a_silent_peer_is_distinguished_from_one_that_stops_within_a_message() {
    let error = greet_with(SHORT, hold).unwrap_err();
    assert!(matches!(error, SessionError::Silent { .. }), "{error}");
    let first = greeting(2).encode().unwrap()[..9].to_vec();
    let error = greet_after(first, Duration::from_millis(300), hold).unwrap_err();
    assert!(
        matches!(error, SessionError::Incomplete { received: 9, .. }),
        "{error}"
    );
}

#[test]
fn a_peer_that_sends_byte_by_byte_does_not_outlast_the_deadline() {
    let bytes = greeting(2).encode().unwrap();
    let first = bytes[..1].to_vec();
    let error = greet_after(first, Duration::from_millis(200), move |mut stream| {
        // Never sends the last byte, and never pauses as long as the deadline.
        for &byte in &bytes[1..bytes.len() - 1] {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        hold(stream);
    })
    .unwrap_err();
    assert!(matches!(error, SessionError::Incomplete { .. }), "{error}");
}

#[test]
fn a_peer_that_closes_early_is_reported_with_the_bytes_received() {
    for length in [0, 1, 8, 20, 47, 48, 67] {
        let error = greet_with(LIMIT, move |mut stream| {
            // The greeting is read first, so that closing sends an end and not a reset.
            let mut theirs = vec![0; greeting(1).encode().unwrap().len()];
            stream.read_exact(&mut theirs).unwrap();
            let bytes = greeting(2).encode().unwrap();
            stream.write_all(&bytes[..length]).unwrap();
        })
        .unwrap_err();
        assert!(
            matches!(error, SessionError::Closed { received, .. } if received == length),
            "{length}: {error}"
        );
    }
}

#[test]
fn another_protocol_another_version_and_too_much_data_are_distinguished() {
    let say = |bytes: Vec<u8>| {
        greet_with(LIMIT, move |mut stream| {
            stream.write_all(&bytes).unwrap();
            hold(stream);
        })
        .unwrap_err()
    };
    let request = format!("GET / HTTP/1.1\r\n{}", "x".repeat(100_000));
    let error = say(request.into_bytes());
    assert!(matches!(
        error,
        SessionError::Greeting(GreetingError::NotRingside { .. })
    ));
    let mut bytes = greeting(2).encode().unwrap();
    bytes[9] = 200;
    assert!(matches!(
        say(bytes),
        SessionError::Greeting(GreetingError::Version { found: 200, .. })
    ));
    let mut bytes = greeting(2).encode().unwrap();
    bytes[10..12].copy_from_slice(&u16::MAX.to_be_bytes());
    assert!(matches!(
        say(bytes),
        SessionError::Greeting(GreetingError::Malformed { .. })
    ));
}

#[test]
fn random_bytes_end_in_an_error_and_never_in_a_panic() {
    let seed = 11;
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let good = greeting(2).encode().unwrap();
    for round in 0..200 {
        let mut bytes = vec![0; random.random_range(0..300)];
        random.fill(&mut bytes[..]);
        // Some inputs pass the check of magic and version.
        let keep = random.random_range(0..=12).min(bytes.len());
        bytes[..keep].copy_from_slice(&good[..keep]);
        let outcome = greet_with(LIMIT, move |mut stream| {
            let mut theirs = vec![0; greeting(1).encode().unwrap().len()];
            stream.read_exact(&mut theirs).unwrap();
            // The other side may have refused and closed already.
            let _ = stream.write_all(&bytes);
        });
        if let Ok(learnt) = outcome {
            assert!(learnt.endpoint.check().is_ok(), "seed {seed}, {round}");
        }
    }
}

#[test]
fn a_peer_at_another_step_is_named() {
    let listener = listener();
    let address = listener.address();
    let other = std::thread::spawn(move || {
        connect(address, LIMIT, clock())
            .unwrap()
            .synchronise(Step::Done, LIMIT)
            .unwrap_err()
    });
    let error = listener
        .accept(LIMIT)
        .unwrap()
        .synchronise(Step::Connected, LIMIT)
        .unwrap_err();
    for (error, own, found) in [
        (error, Step::Connected, b'D'),
        (other.join().unwrap(), Step::Done, b'R'),
    ] {
        assert!(
            matches!(error, SessionError::OutOfStep { expected, found: was, .. }
                if expected == own && was == found),
            "{error}"
        );
    }
}

#[test]
fn a_peer_that_disconnects_before_it_is_done_is_reported() {
    let listener = listener();
    let address = listener.address();
    let other = std::thread::spawn(move || drop(connect(address, LIMIT, clock()).unwrap()));
    let mut session = listener.accept(LIMIT).unwrap();
    other.join().unwrap();
    let error = session.synchronise(Step::Done, LIMIT).unwrap_err();
    assert!(matches!(error, SessionError::Closed { .. }), "{error}");
}

/// Returns a session with a peer that runs `peer` with its own session.
fn session_with(
    peer: impl FnOnce(Session) + Send + 'static,
) -> (Session, std::thread::JoinHandle<()>) {
    let listener = listener();
    let address = listener.address();
    let other = std::thread::spawn(move || peer(connect(address, LIMIT, clock()).unwrap()));
    (listener.accept(LIMIT).unwrap(), other)
}

#[test]
fn beats_before_a_step_are_skipped() {
    let (mut session, other) = session_with(|mut peer| {
        peer.keep_alive().unwrap();
        peer.keep_alive().unwrap();
        peer.synchronise(Step::Done, LIMIT).unwrap();
    });
    session.synchronise(Step::Done, LIMIT).unwrap();
    other.join().unwrap();
}

#[test]
fn a_glance_takes_beats_leaves_steps_and_sees_the_end() {
    let (mut session, other) = session_with(|mut peer| {
        peer.keep_alive().unwrap();
        peer.synchronise(Step::Prepared, LIMIT).unwrap();
    });
    assert_eq!(session.peek(LIMIT).unwrap(), Some(b'.'));
    for _ in 0..2 {
        assert_eq!(session.peek(LIMIT).unwrap(), Some(b'P'));
    }
    session.synchronise(Step::Prepared, LIMIT).unwrap();
    other.join().unwrap();
    let error = session.peek(LIMIT).unwrap_err();
    assert!(matches!(error, SessionError::Closed { .. }), "{error}");
}

#[test]
fn a_peek_at_a_silent_peer_waits_no_longer_than_its_limit() {
    let (mut session, other) = session_with(|mut peer| {
        let _ = peer.receive(&mut [0], LIMIT);
    });
    for limit in [Duration::ZERO, SHORT] {
        let began = std::time::Instant::now();
        assert_eq!(session.peek(limit).unwrap(), None);
        assert!(began.elapsed() >= limit && began.elapsed() < LIMIT / 2);
    }
    drop(session);
    other.join().unwrap();
}

#[test]
fn a_peer_that_fails_reports_its_reason_at_every_step() {
    let long = "reason \u{1b}[31m".repeat(100);
    for glance in [true, false] {
        let reason = long.clone();
        let (mut session, other) = session_with(move |mut peer| {
            // Unread bytes of the other side must not discard the reason.
            peer.keep_alive().unwrap();
            peer.fail(&reason);
        });
        session.send(&[b'P'; 100], LIMIT).unwrap();
        let error = if glance {
            assert_eq!(session.peek(LIMIT).unwrap(), Some(b'.'));
            session.peek(LIMIT).unwrap_err()
        } else {
            session.synchronise(Step::Done, LIMIT).unwrap_err()
        };
        let SessionError::PeerFailed { reason, .. } = &error else {
            panic!("{error}");
        };
        assert!(reason.starts_with("reason  [31m"), "{reason}");
        assert!(reason.len() <= MAX_REASON && !reason.contains('\u{1b}'));
        drop(session);
        other.join().unwrap();
    }
}

#[test]
fn messages_of_the_application_arrive_whole_or_not_at_all() {
    let (mut session, other) = session_with(|mut peer| {
        peer.send(b"twelve bytes", LIMIT).unwrap();
        peer.send(b"four", LIMIT).unwrap();
    });
    let mut bytes = [0; 12];
    session.receive(&mut bytes, LIMIT).unwrap();
    assert_eq!(&bytes, b"twelve bytes");
    other.join().unwrap();
    let error = session.receive(&mut bytes, LIMIT).unwrap_err();
    assert!(
        matches!(error, SessionError::Closed { received: 4, .. }),
        "{error}"
    );
}
