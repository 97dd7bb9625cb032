use super::*;
use crate::ports::{Capture, WireReport};
use ringside_model::WorldSettings;
use std::sync::Arc;

struct Rig {
    folder: tempfile::TempDir,
    world: World,
    control: Control,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = World::new(&WorldSettings::with_functions(2));
        let sources = Sources {
            sockets: vec!["a".into(), "b".into()],
            before: (0..2).map(|index| world.snapshot(index).unwrap()).collect(),
            wires: WireReport::default(),
            capture: None,
        };
        let control = Control::bind(&folder.path().join("control"), sources).unwrap();
        Self {
            folder,
            world,
            control,
            now: Instant(0),
        }
    }

    fn client(&self) -> UnixStream {
        let client = UnixStream::connect(self.folder.path().join("control")).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }

    fn turn(&mut self) {
        for _ in 0..4 {
            self.now = self.now.plus(LOOK_EVERY);
            self.control.turn(&mut self.world, self.now);
        }
    }

    fn ask(&mut self, client: &mut UnixStream, line: &str) -> Value {
        client.write_all(line.as_bytes()).unwrap();
        client.write_all(b"\n").unwrap();
        self.turn();
        let mut bytes = vec![0; 65_536];
        let count = client.read(&mut bytes).unwrap();
        serde_json::from_slice(&bytes[..count]).unwrap()
    }
}

#[test]
fn the_server_is_asked_to_end() {
    let mut rig = Rig::new();
    let mut client = rig.client();
    let refused = rig.ask(&mut client, "end");
    assert_eq!(refused["ok"], false, "{refused}");
    let end = Arc::new(AtomicBool::new(false));
    rig.control.set_end(Arc::clone(&end));
    let refused = rig.ask(&mut client, "end now");
    assert_eq!(refused["ok"], false, "{refused}");
    assert!(!end.load(Ordering::Relaxed));
    assert_eq!(rig.ask(&mut client, "end"), json!({"ok": true}));
    assert!(end.load(Ordering::Relaxed));
}

#[test]
fn faults_begin_and_end_as_they_are_told() {
    let mut rig = Rig::new();
    let mut client = rig.client();
    let answer = rig.ask(&mut client, "fault 1 link-down");
    assert_eq!(answer, json!({"ok": true, "began": "link-down"}));
    rig.ask(&mut client, "fault 1 admin-fails 0x601 5");
    rig.ask(&mut client, "fault wire drop 1000 7");
    let function = |rig: &Rig| rig.world.function(1).unwrap().faults().to_vec();
    assert_eq!(function(&rig).len(), 2);
    let status = rig.ask(&mut client, "status");
    assert_eq!(status["ok"], true);
    let faults = json!(["link-down", "admin-fails 0x0601 5"]);
    assert_eq!(status["functions"][1]["faults"], faults);
    assert_eq!(status["functions"][0]["faults"], json!([]));
    assert_eq!(status["wire_faults"], json!(["drop 1000 7"]));
    rig.ask(&mut client, "clear 1 link-down");
    assert_eq!(function(&rig).len(), 1);
    rig.ask(&mut client, "clear 1");
    assert_eq!(function(&rig), []);
    rig.ask(&mut client, "clear wire drop 1");
    assert_eq!(rig.world.switch().faults(), []);
    rig.ask(&mut client, "fault wire drop 1000 7");
    rig.ask(&mut client, "fault wire corrupt 1000 7");
    assert_eq!(rig.world.switch().faults().len(), 2);
    rig.ask(&mut client, "clear wire");
    assert_eq!(rig.world.switch().faults(), []);
}

#[test]
fn faults_are_cleared_by_name_whatever_their_numbers_are() {
    let mut rig = Rig::new();
    let mut client = rig.client();
    rig.ask(&mut client, "fault wire drop 1000 7");
    rig.ask(&mut client, "fault wire corrupt 1000 7");
    assert_eq!(rig.ask(&mut client, "clear wire drop")["ok"], true);
    let left: Vec<_> = rig
        .world
        .switch()
        .faults()
        .iter()
        .map(Fault::name)
        .collect();
    assert_eq!(left, ["corrupt"]);
    for fault in [
        "admin-fails 0x601 5",
        "admin-fails 0x602 5",
        "dma-refused 3",
    ] {
        rig.ask(&mut client, &format!("fault 1 {fault}"));
    }
    for name in ["admin-fails", "dma-refused"] {
        assert_eq!(rig.ask(&mut client, &format!("clear 1 {name}"))["ok"], true);
        let function = rig.world.function(1).unwrap();
        assert!(function.faults().iter().all(|fault| fault.name() != name));
    }
    assert_eq!(rig.ask(&mut client, "clear 2 admin-fails")["ok"], false);
    for (usage, _) in FAULTS {
        let name = usage.split(' ').next().unwrap();
        let known = name.parse::<Fault>().ok().or_else(|| example(name));
        assert_eq!(known.map(|fault| fault.name()), Some(name));
    }
}

#[test]
fn what_is_not_understood_is_refused_with_the_reason_and_changes_nothing() {
    let mut rig = Rig::new();
    let mut client = rig.client();
    for (line, reason) in [
        ("", "commands"),
        ("statusx", "commands"),
        ("status 0", "commands"),
        ("fault", "neither"),
        ("fault 0", "link-down"),
        ("fault 2 link-down", "no function 2"),
        ("fault x link-down", "neither"),
        ("fault wire link-down", "of a function"),
        ("fault 0 drop 7", "of the wire"),
        ("fault 0 admin-fails 1", "needs"),
        ("clear 2", "no function 2"),
        ("clear 0 nothing", "link-down"),
        ("clear 0 drop", "of the wire"),
        ("clear wire admin-fails", "of a function"),
        ("flush", "--pcap"),
    ] {
        let answer = rig.ask(&mut client, line);
        assert_eq!(answer["ok"], false, "{line}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(reason), "{line}: {error}");
    }
    assert_eq!(rig.world.function(0).unwrap().faults(), []);
    assert_eq!(rig.ask(&mut client, "help")["ok"], true);
}

#[test]
fn a_capture_that_failed_is_not_flushed_with_success() {
    let mut rig = Rig::new();
    let mut client = rig.client();
    let good = Capture::create(&rig.folder.path().join("good.pcap")).unwrap();
    good.tap()(Instant(0), 0, &[0; 60]);
    rig.control.sources.capture = Some(Arc::new(good));
    let answer = rig.ask(&mut client, "flush");
    assert_eq!(answer, json!({"ok": true, "captured_frames": 1}));
    let full = Capture::create(Path::new("/dev/full")).unwrap();
    full.tap()(Instant(0), 0, &[0; 60]);
    rig.control.sources.capture = Some(Arc::new(full));
    for _ in 0..2 {
        let answer = rig.ask(&mut client, "flush");
        assert_eq!(answer["ok"], false);
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains("/dev/full"), "{error}");
    }
}

#[test]
fn an_answer_of_any_length_is_sent_whole_and_further_ones_wait_for_its_reader() {
    let mut rig = Rig::new();
    let mut client = rig.client();
    client.write_all(&b"help\n".repeat(800)).unwrap();
    rig.turn();
    let unread = rig.control.clients[0].answer.len();
    assert!(unread > MAX_UNREAD_BYTES / 2, "{unread}");
    let mut lines = 0;
    let mut bytes = vec![0; 1 << 16];
    // More turns than the answers need.
    for _ in 0..10_000 {
        rig.turn();
        while let Ok(count) = client.read(&mut bytes) {
            assert!(count > 0, "let go after {lines} answers");
            lines += bytes[..count].iter().filter(|byte| **byte == b'\n').count();
        }
        let unread = rig.control.clients[0].answer.len();
        assert!(unread < 2 * MAX_UNREAD_BYTES, "{unread}");
        if lines == 800 {
            break;
        }
    }
    assert_eq!(lines, 800);
    let long = "x".repeat(3 * MAX_UNREAD_BYTES);
    let served = &mut rig.control.clients[0];
    client.write_all(b"status\n").unwrap();
    assert!(served.turn(|_| json!(long)).0);
    let mut taken = 0;
    while taken < long.len() + 3 {
        assert!(served.turn(|_| Value::Null).0);
        taken += client.read(&mut bytes).unwrap();
    }
    assert_eq!(taken, long.len() + 3);
}

#[test]
fn clients_that_babble_stall_or_crowd_are_let_go_and_others_served() {
    let mut rig = Rig::new();
    let mut babbler = rig.client();
    for _ in 0..4 {
        // It may have been let go by the second.
        let _ = babbler.write_all(&[b'x'; MAX_LINE_BYTES]);
        rig.turn();
    }
    assert_eq!(babbler.read(&mut [0; 10]).ok(), Some(0), "let go");
    // A line is too long with its end, too.
    let mut talker = rig.client();
    let line = [&[b'x'; MAX_LINE_BYTES + 1][..], b"\n"].concat();
    talker.write_all(&line).unwrap();
    rig.turn();
    rig.turn();
    assert_eq!(talker.read(&mut [0; 10]).ok(), Some(0), "let go");
    let mut staller = rig.client();
    for _ in 0..50_000 {
        let _ = staller.write(b"help\n");
        rig.turn();
    }
    let mut crowd: Vec<_> = (0..MAX_CLIENTS + 4).map(|_| rig.client()).collect();
    for _ in 0..MAX_CLIENTS + 10 {
        rig.turn();
    }
    assert_eq!(rig.control.clients.len(), MAX_CLIENTS);
    // A client that comes last is served, and one that has just said something stays.
    let mut eldest = crowd.swap_remove(10);
    assert_eq!(rig.ask(&mut eldest, "clear 0")["ok"], true);
    for _ in 0..MAX_CLIENTS - 1 {
        let mut client = rig.client();
        assert_eq!(rig.ask(&mut client, "clear 0")["ok"], true);
        crowd.push(client);
    }
    assert_eq!(rig.control.clients.len(), MAX_CLIENTS);
    assert_eq!(rig.ask(&mut eldest, "clear 0")["ok"], true);
    assert_eq!(crowd[20].read(&mut [0; 10]).ok(), Some(0), "let go");
    drop(staller);
    let mut awaited = Vec::new();
    rig.control.descriptors(&mut awaited);
    assert_eq!(awaited.len(), 1 + rig.control.clients.len());
}
