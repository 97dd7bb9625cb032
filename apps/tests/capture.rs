//! `ringside capture` and rules on the command line, on the model.

mod running;

use running::{LIMIT, end, start};
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::process::Child;
use std::time::{Duration, Instant};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The packets of a file: interface, direction, bytes.
fn packets(file: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        let length = number(at + 4) as usize;
        assert_eq!(
            number(at + length - 4) as usize,
            length,
            "both ends say the length"
        );
        if number(at) == 6 {
            let bytes = number(at + 20) as usize;
            let data = file[at + 28..at + 28 + bytes].to_vec();
            let options = at + 28 + bytes.next_multiple_of(4);
            assert_eq!(
                number(options),
                4 << 16 | 2,
                "the option with the direction"
            );
            found.push((number(at + 8), number(options + 4), data));
        }
        at += length;
    }
    found
}

/// The times of a file's packets, nanoseconds.
fn times(file: &[u8]) -> Vec<u64> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        if number(at) == 6 {
            found.push(u64::from(number(at + 12)) << 32 | u64::from(number(at + 16)));
        }
        at += number(at + 4) as usize;
    }
    found
}

/// Says what tshark makes of a file: a line for each packet, or that tshark is not there.
fn tshark(file: &str) -> Option<Vec<String>> {
    let fields = [
        "frame.interface_id",
        "frame.packet_flags_direction",
        "frame.len",
        "frame.cap_len",
        "_ws.col.Protocol",
        "_ws.malformed",
    ];
    let mut command = std::process::Command::new("tshark");
    command.args(["-n", "-r", file, "-T", "fields", "-E", "separator=,"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            use std::io::Write;
            // CI has it; elsewhere the test says what it left out.
            let told = format!("not run: tshark over a capture: {error}");
            let _ = writeln!(std::io::stderr(), "{told}");
            assert!(std::env::var_os("CI").is_none(), "{told}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout).lines().map(str::to_owned).collect())
}

/// tshark finds the packets that the file has, whole, on the interface and in the direction named.
fn same_in_tshark(file: &str, found: &[(u32, u32, Vec<u8>)]) {
    let Some(lines) = tshark(file) else {
        return;
    };
    assert_eq!(lines.len(), found.len());
    for (line, (on, towards, bytes)) in lines.iter().zip(found) {
        let parts: Vec<&str> = line.split(',').collect();
        let [interface, direction, length, captured, protocol, malformed] = parts[..] else {
            panic!("{line}");
        };
        let number = |part: &str| match part.strip_prefix("0x") {
            Some(digits) => usize::from_str_radix(digits, 16).unwrap(),
            None => part.parse::<usize>().unwrap(),
        };
        let expected = (*on as usize, *towards as usize, bytes.len(), bytes.len());
        let told = (
            number(interface),
            number(direction),
            number(length),
            number(captured),
        );
        assert_eq!(told, expected, "{line}");
        assert!(!protocol.is_empty() && malformed.is_empty(), "{line}");
    }
}

/// Waits until a program has made its socket.
fn wait_for(path: &std::path::Path, child: &mut Child) {
    let end = Instant::now() + LIMIT;
    while !path.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended first");
        assert!(Instant::now() < end, "no socket after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_running_forwarder_is_captured_by_filter_count_and_direction() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mirror");
    let file = folder.path().join("x.pcapng");
    let (socket_text, file_text) = (socket.to_str().unwrap(), file.to_str().unwrap());
    let line = [
        "forward",
        "--device",
        "model:0",
        "--device",
        "model:1",
        "--mode",
        "flowgen,rxonly",
        "--stats-period",
        "0",
        "--duration",
        "60",
        "--mirror",
        socket_text,
    ];
    let mut forward = start(line);
    wait_for(&socket, &mut forward);
    // One after the other: the second finds the mirror free again.
    for (direction, flag, interface) in [("out", 2, 0), ("in", 1, 1)] {
        let line = [
            "capture",
            "--attach",
            socket_text,
            "--write",
            file_text,
            "--count",
            "50",
            "--json",
            "--direction",
            direction,
            "udp",
            "and",
            "not",
            "arp",
        ];
        let output = end(start(line));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&told["packets"], &told["ended_by"]),
            (&50.into(), &"count".into())
        );
        let found = packets(&std::fs::read(&file).unwrap());
        assert_eq!(found.len(), 50);
        same_in_tshark(file_text, &found);
        for (on, towards, bytes) in found {
            assert_eq!((on, towards), (interface, flag));
            assert_eq!(bytes[12..14], [8, 0]);
            assert_eq!(bytes[23], 17);
        }
    }
    let line = [
        "capture",
        "--attach",
        socket_text,
        "--write",
        file_text,
        "--size",
        "5000",
        "--json",
    ];
    let output = end(start(line));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["ended_by"], "size");
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!(bytes <= 5000 && told["bytes"] == bytes, "{told}");
    let line = [
        "capture",
        "--attach",
        socket_text,
        "--write",
        file_text,
        "--duration",
        "1",
        "tcp",
    ];
    let output = end(start(line));
    assert!(
        text(&output.stdout).starts_with("0 packets written"),
        "{output:?}"
    );
    forward.kill().unwrap();
    forward.wait().unwrap();
}

#[test]
fn what_cannot_be_captured_is_refused_by_name() {
    let cases: [(&[&str], i32, &str); 7] = [
        (&["capture", "--write", "-", "udpp"], 2, "udpp"),
        (
            &["capture", "--write", "-", "--attach", "/none/x"],
            3,
            "--mirror /none/x",
        ),
        (&["capture", "--write", "/none/x"], 2, "/none/x"),
        (
            &["capture", "--write", "-", "--size", "10"],
            2,
            "the headers of this file have 72 bytes; choose 72 or more",
        ),
        (
            &["capture", "--write", "/dev/full", "--duration", "60"],
            1,
            "--write /dev/full: No space left",
        ),
        // An option after the filter is an option.
        (
            &["capture", "--write", "-", "udp", "--duration", "x"],
            2,
            "--duration",
        ),
        (
            &["forward", "--mirror", "/none/x", "--duration", "1"],
            2,
            "--mirror /none/x",
        ),
    ];
    for (line, code, named) in cases {
        let output = end(start(line));
        assert_eq!(output.status.code(), Some(code), "{line:?}");
        assert!(
            text(&output.stderr).contains(named),
            "{}",
            text(&output.stderr)
        );
    }
}

/// As the socket of a mirror that serves another capture, which is accepted later.
#[test]
fn a_capture_without_a_greeting_ends_after_a_while_and_at_a_signal_at_once() {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mirror");
    let listener = UnixListener::bind(&socket).unwrap();
    let line = || {
        let socket = socket.to_str().unwrap();
        ["capture", "--attach", socket, "--write", "-"]
    };
    let begin = Instant::now();
    let output = end(start(line()));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no greeting within 5 s"), "{said}");
    assert!(begin.elapsed() >= Duration::from_secs(5));
    let capture = start(line());
    let accepted = [listener.accept().unwrap().0, listener.accept().unwrap().0];
    // The handler of signals is installed before the socket is opened.
    let id = rustix::process::Pid::from_child(&capture);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = end(capture);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    drop(accepted);
    // A line without end is refused, and not gathered.
    let capture = start(line());
    let (mut stream, _) = listener.accept().unwrap();
    let written = (0..1024).find(|_| stream.write_all(&[b'x'; 4096]).is_err());
    assert!(written.is_some(), "it reads on after 4 MiB");
    let output = end(capture);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let id = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(id, signal).unwrap();
}

/// Waits until a file has a packet, while its capture runs.
fn wait_for_packets(file: &std::path::Path, capture: &mut Child, at_least: usize) {
    let deadline = Instant::now() + LIMIT;
    while packets(&std::fs::read(file).unwrap_or_default()).len() < at_least {
        assert!(capture.try_wait().unwrap().is_none(), "it ended first");
        assert!(Instant::now() < deadline, "no packet in the file");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_attached_capture_writes_while_nothing_comes_and_ends_well_at_a_hang_up() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let (socket, file) = (folder.path().join("mirror"), folder.path().join("x.pcapng"));
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (to, out) = (socket.to_str().unwrap(), file.to_str().unwrap());
    let mut capture = start(["capture", "--attach", to, "--write", out, "--json"]);
    let (mut mirror, _) = listener.accept().unwrap();
    mirror
        .write_all(b"ringside-mirror 2\n[\"port\"]\n")
        .unwrap();
    // Time, losses, both lengths, port, direction, then the frame.
    let mut copy = vec![0; 32 + 60];
    copy[8] = 3;
    copy[16..20].copy_from_slice(&60_u32.to_le_bytes());
    copy[20..24].copy_from_slice(&60_u32.to_le_bytes());
    mirror.write_all(&copy).unwrap();
    wait_for_packets(&file, &mut capture, 1);
    signal(&capture, rustix::process::Signal::HUP);
    // The mirror tells no losses: the capture ends without them, 2 s later.
    let began = Instant::now();
    let output = end(capture);
    assert!(began.elapsed() >= std::time::Duration::from_millis(1500));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["packets"], &told["lost"], &told["ended_by"]),
        (&1.into(), &3.into(), &"interrupt".into())
    );
}

#[test]
fn a_capture_that_is_interrupted_before_its_size_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.pcapng");
    let out = file.to_str().unwrap();
    let mut capture = start(["capture", "--write", out, "--size", "100000"]);
    let deadline = Instant::now() + LIMIT;
    // The headers are there once packets are waited for.
    while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        assert!(capture.try_wait().unwrap().is_none(), "it ended first");
        assert!(Instant::now() < deadline, "no headers");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&capture, rustix::process::Signal::INT);
    let output = end(capture);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
}

#[test]
fn the_socket_of_a_program_that_was_killed_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mirror");
    // As after a kill: the file stays.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let path = socket.to_str().unwrap();
    let output = end(start(["forward", "--mirror", path, "--duration", "1"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!socket.exists(), "it is removed at the end");
    let held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let output = end(start(["forward", "--mirror", path, "--duration", "1"]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("already listening"), "{said}");
    drop(held);
}

#[test]
fn a_port_of_its_own_is_captured_for_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.pcapng");
    let line = [
        "capture",
        "--write",
        file.to_str().unwrap(),
        "--duration",
        "1",
        "--json",
    ];
    let output = end(start(line));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["packets"], &told["ended_by"]),
        (&0.into(), &"duration".into())
    );
    assert!(packets(&std::fs::read(&file).unwrap()).is_empty());
}

#[test]
fn rules_of_a_port_are_shown_and_those_that_it_refuses_are_named() {
    let rule = "udp4 dst-port 9 action 2-3 mark 7 count";
    let line = [
        "port",
        "--queues",
        "4",
        "--rule",
        rule,
        "--rule",
        "ether proto 0x0806 action 1",
        "--json",
    ];
    let output = end(start(line));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["rules"][0]["rule"], rule);
    assert_eq!(shown["rules"][0]["packets"], 0);
    assert_eq!(shown["rules"][1]["rule"], "ether proto 0x0806 action 1");
    for (rule, code, named) in [
        ("udp4 dst-port 9 action 4", 1, "queue 4"),
        ("udp4 dport 9 action 1", 2, "dport"),
        ("udp4 action 1", 1, "without fields"),
    ] {
        let output = end(start(["port", "--queues", "4", "--rule", rule]));
        assert_eq!(output.status.code(), Some(code), "{rule}");
        assert!(
            text(&output.stderr).contains(named),
            "{}",
            text(&output.stderr)
        );
    }
}

/// `ringside model serve` with one function, and a wire to a socket of the test. Dropping it ends
/// it.
struct Served {
    child: Child,
    wire: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Served {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let wire = UnixDatagram::bind(path("far")).unwrap();
        let ends = format!("{},{}", path("near"), path("far"));
        let socket = path("nic");
        let line = ["model", "serve", "--socket", &socket, "--dgram", &ends];
        let mut child = start(line.iter().chain(more));
        for name in [&socket, &path("near")] {
            wait_for(std::path::Path::new(name), &mut child);
        }
        wire.connect(path("near")).unwrap();
        Self {
            child,
            wire,
            folder,
        }
    }

    fn device(&self) -> String {
        format!("vfio-user:{}", self.folder.path().join("nic").display())
    }

    fn file(&self) -> String {
        let path = self.folder.path().join("x.pcapng");
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_capture_whose_device_is_gone_ends_with_its_totals() {
    let mut served = Served::start(&[]);
    let (device, file) = (served.device(), served.file());
    let line = ["capture", "--device", &device, "--write", &file, "--json"];
    let mut capture = start(line);
    served.wire.set_nonblocking(true).unwrap();
    let mut frame = [0xFF; 60];
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 0x88, 0xB5]);
    let path = std::path::Path::new(&file);
    let deadline = Instant::now() + LIMIT;
    while packets(&std::fs::read(path).unwrap_or_default()).is_empty() {
        let _ = served.wire.send(&frame);
        assert!(capture.try_wait().unwrap().is_none(), "it ended first");
        assert!(Instant::now() < deadline, "no packet in the file");
        std::thread::sleep(Duration::from_millis(20));
    }
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let output = end(capture);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the device is gone"), "{said}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["ended_by"], "a failure");
    assert!(told["packets"].as_u64().unwrap() > 0, "{told}");
}

/// The device's time stamps have 32 bits, which are used up after 4.3 s.
#[test]
fn packets_of_a_served_model_have_the_times_of_its_clock() {
    const EVERY: Duration = Duration::from_millis(100);
    const COUNT: usize = 55;
    let served = Served::start(&["--timer", "controlled"]);
    let (device, file) = (served.device(), served.file());
    let count = COUNT.to_string();
    let line = [
        "capture",
        "--device",
        &device,
        "--write",
        &file,
        "--device-time",
        "--json",
        "--count",
        &count,
        "ether",
        "proto",
        "0x88b5",
    ];
    let began = Instant::now();
    let mut capture = start(line);
    let mut frame = [0xFF; 60];
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 0x88, 0xB5]);
    let mut sent = Vec::new();
    while capture.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < LIMIT, "the capture does not end");
        frame[14..22].copy_from_slice(&(sent.len() as u64).to_le_bytes());
        sent.push(Instant::now());
        served.wire.send(&frame).unwrap();
        std::thread::sleep(EVERY);
    }
    let output = end(capture);
    let lasted = began.elapsed().as_nanos() as u64;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["packets"], &told["unstamped"]),
        (&COUNT.into(), &0.into())
    );
    let bytes = std::fs::read(&file).unwrap();
    let (times, packets) = (times(&bytes), packets(&bytes));
    assert_eq!((times.len(), packets.len()), (COUNT, COUNT));
    // The clock began when the port was opened: these times are none of the day.
    assert!(*times.last().unwrap() < lasted, "{times:?}");
    assert!(times.is_sorted(), "{times:?}");
    let number = |at: usize| u64::from_le_bytes(packets[at].2[14..22].try_into().unwrap()) as usize;
    let first = number(0);
    for (at, time) in times.iter().enumerate() {
        let on_wire = (sent[number(at)] - sent[first]).as_nanos() as i64;
        let stamped = (time - times[0]) as i64;
        // A busy machine delays a frame; a lost carry is 4.3 s.
        assert!(
            (stamped - on_wire).abs() < 2_000_000_000,
            "packet {at}: {on_wire} ns on the wire, {stamped} ns in the file"
        );
    }
    let described = b"time of the device's clock at the arrival";
    assert!(bytes.windows(described.len()).any(|part| part == described));
    same_in_tshark(&file, &packets);
}

#[test]
fn a_device_without_a_timer_refuses_time_stamps_by_name() {
    for (flags, named) in [
        (&[][..], "the firmware reports no timer"),
        (&["--timer", "stopped"], "timer 0, which does not run"),
    ] {
        let served = Served::start(flags);
        let (device, file) = (served.device(), served.file());
        for line in [
            &[
                "capture",
                "--device",
                &device,
                "--write",
                &file,
                "--device-time",
            ][..],
            &["forward", "--device", &device, "--device-time"],
        ] {
            let output = end(start(line));
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{line:?}: {told}");
            assert!(told.contains(named), "{told}");
        }
    }
}
