//! Servers without work.

use super::*;

#[test]
fn a_server_whose_sockets_have_nothing_makes_one_system_call_for_all_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = ServerSettings::new(vec![directory.path().join("0.sock")]);
    settings.spin = Duration::ZERO;
    let mut server = Server::bind(&settings).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    assert!(server.adopt(0, theirs));
    let look_and_rest = |server: &mut Server, now: Instant| {
        server.next_look = now;
        while server.round_at(now) {
            server.next_look = now;
        }
        assert!(server.rest(now));
    };
    let now = server.clock.now();
    look_and_rest(&mut server, now);
    assert!(server.next_look > now, "the sleep has looked");
    // Without any message there is a look now and then.
    let later = now.plus(LOOK_WITHIN);
    server.rest(later);
    assert_eq!(server.next_look, later);
    // A message ends the sleep, and is taken in the next round.
    while server.clock.now() < later {
        std::thread::yield_now();
    }
    let now = server.clock.now();
    look_and_rest(&mut server, now);
    assert!(server.next_look > now);
    let mut raw = Raw(Stream::new(ours).unwrap());
    let header = Header::command(1, Command::Version, false, &Raw::version());
    raw.0.send(header, &[]).unwrap();
    server.rest(now);
    assert_eq!(server.next_look, now);
    assert!(server.round_at(now));
}
