//! `ringside tap`: two kernels' stacks talk over two ports of one model. Runs in namespaces of its
//! own.

use ringside_testkit::in_namespaces;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the copy that is the client of the TCP connection: where it connects to.
const CLIENT: &str = "RINGSIDE_TEST_CLIENT";
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes that cross the connection each way.
const BYTES: usize = 300_000;

/// A program that ends with this value.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Its next line.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ringside() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.env_remove("RUST_LOG");
    command
}

/// A TAP interface over a function of the served model, in this namespace or in one of its own.
fn tap(own_namespace: bool, socket: &str, rest: &str) -> Running {
    let mut command = match own_namespace {
        false => ringside(),
        true => {
            let mut command = Command::new("unshare");
            command.arg("-n").arg(env!("CARGO_BIN_EXE_ringside"));
            command
        }
    };
    let device = format!("vfio-user:{socket}");
    command
        .args(["tap", "--device", &device, "--json"])
        .args(rest.split(' '));
    let mut running = Running::start(&mut command);
    let first = running.line();
    assert!(first.contains("\"kind\":\"up\""), "{first}");
    running
}

/// Runs a command in the namespace of a process, or in this one.
fn run(of: Option<u32>, line: &str) {
    let line = match of {
        Some(process) => format!("nsenter -t {process} -n {line}"),
        None => line.to_owned(),
    };
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {told}");
}

struct Pair {
    near: Running,
    far: Running,
    server: Running,
    control: String,
    _folder: tempfile::TempDir,
}

impl Pair {
    /// Has the model raise or end a fault of the near function.
    fn fault(&self, words: &str) {
        let words = words.split(' ');
        let mut tell = ringside();
        tell.args(["model", "tell", &self.control]).args(words);
        let output = tell.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
    }

    /// Reports of the near side until one has a count that is not 0.
    fn wait_for(&mut self, count: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let line = self.near.line();
            let report: Value = serde_json::from_str(&line).unwrap();
            if report[count].as_u64().unwrap() > 0 {
                return;
            }
            assert!(Instant::now() < end, "{line}");
        }
    }
}

/// Waits until the kernel shows a word for an interface of this namespace.
fn wait_for_state(interface: &str, state: &str) {
    let end = Instant::now() + LIMIT;
    loop {
        let mut shown = Command::new("ip");
        let shown = shown.args(["link", "show", "dev", interface]).output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        if shown.contains(state) {
            return;
        }
        assert!(Instant::now() < end, "{shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two interfaces over one wire: one in this namespace, the other in its own.
fn pair(rest: &str) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let sockets = [path("a"), path("b")];
    let control = path("control");
    let mut serve = ringside();
    serve.args(["model", "serve", "--doorbell-page", "--control", &control]);
    for socket in &sockets {
        serve.args(["--socket", socket]);
    }
    let server = Running::start(serve.stderr(Stdio::null()));
    let end = Instant::now() + LIMIT;
    while !sockets
        .iter()
        .all(|socket| std::path::Path::new(socket).exists())
    {
        assert!(Instant::now() < end, "no sockets after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    run(None, "ip link set lo up");
    let near = tap(false, &sockets[0], &format!("--interface near0 {rest}"));
    let far = tap(true, &sockets[1], &format!("--interface far0 {rest}"));
    let process = far.child.id();
    run(None, "ip addr add 10.98.0.1/24 dev near0");
    run(Some(process), "ip addr add 10.98.0.2/24 dev far0");
    Pair {
        near,
        far,
        server,
        control,
        _folder: folder,
    }
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

/// Sends one pattern and expects the other.
fn talk(mut stream: TcpStream, send: u8, expect: u8) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&pattern(send)).unwrap());
    let mut received = vec![0; BYTES];
    stream.read_exact(&mut received).unwrap();
    assert!(received == pattern(expect), "bytes differ");
    sender.join().unwrap();
}

/// A TCP connection from the far namespace to the near one, bytes both ways.
fn tcp(pair: &Pair, test: &str) {
    let listener = TcpListener::bind("10.98.0.1:7000").unwrap();
    let process = pair.far.child.id().to_string();
    let mut client = Command::new("nsenter")
        .args(["-t", &process, "-n"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CLIENT, "10.98.0.1:7000")
        .spawn()
        .unwrap();
    listener.set_nonblocking(true).unwrap();
    let end = Instant::now() + LIMIT;
    let stream = loop {
        if let Ok((stream, _)) = listener.accept() {
            break stream;
        }
        assert!(Instant::now() < end, "no connection after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    stream.set_nonblocking(false).unwrap();
    talk(stream, 1, 2);
    assert!(client.wait().unwrap().success());
}

/// The part of the client, in the copy that is one.
fn is_client() -> bool {
    let Some(to) = std::env::var_os(CLIENT) else {
        return false;
    };
    let stream = TcpStream::connect(to.to_str().unwrap()).unwrap();
    talk(stream, 2, 1);
    true
}

/// Datagrams of every size up to the MTU, answered by the kernel: an echo request each.
fn ping(process: u32, bytes: usize) {
    let line = format!("ping -n -c 3 -i 0.2 -W 5 -M do -s {} 10.98.0.1", bytes - 28);
    run(Some(process), &line);
}

fn have_ping() -> bool {
    let found = Command::new("ping").arg("-V").output().is_ok();
    if !found {
        let told = "no echo requests, there is no ping here: install iputils-ping";
        assert!(std::env::var_os("CI").is_none(), "{told}");
        eprintln!("SKIPPED: {told}");
    }
    found
}

#[test]
fn kernels_ping_and_talk_tcp_over_two_ports() {
    if is_client() || !in_namespaces("kernels_ping_and_talk_tcp_over_two_ports") {
        return;
    }
    let mut pair = pair("--mtu 1500 --stats-period 1");
    if have_ping() {
        ping(pair.far.child.id(), 100);
        ping(pair.far.child.id(), 1500);
    }
    tcp(&pair, "kernels_ping_and_talk_tcp_over_two_ports");
    let end = Instant::now() + LIMIT;
    let is_interval = |line: &str| line.contains("\"kind\":\"interval\"");
    while pair.near.line().contains("\"to_kernel\":{\"packets\":0,") {
        assert!(Instant::now() < end, "no packet for the kernel in a report");
    }
    assert!(is_interval(&pair.near.line()));
}

#[test]
fn frames_that_the_device_drops_are_counted_and_intervals_add_up() {
    const NAME: &str = "frames_that_the_device_drops_are_counted_and_intervals_add_up";
    if is_client() || !in_namespaces(NAME) || !have_ping() {
        return;
    }
    let mut pair = pair("--stats-period 1");
    let near = rustix::process::Pid::from_child(&pair.near.child);
    let signal = |signal| rustix::process::kill_process(near, signal).unwrap();
    ping(pair.far.child.id(), 100);
    let process = pair.far.child.id();
    let line = format!("-t {process} -n ping -q -n -c 9000 -l 9000 -w 2 10.98.0.1");
    // More echo requests than the ring of a command that stands still has descriptors, if the far
    // command takes them.
    let burst = || {
        signal(rustix::process::Signal::STOP);
        let sent = Command::new("nsenter").args(line.split(' ')).output();
        signal(rustix::process::Signal::CONT);
        sent.unwrap();
    };
    let packets = |report: &Value| report["to_kernel"]["packets"].as_u64().unwrap();
    let dropped = |report: &Value| report["device_dropped"].as_u64().unwrap();
    let (mut intervals, mut seen, mut reports) = ((0, 0), 0, 0);
    burst();
    let end = Instant::now() + LIMIT;
    // Two reports after the one with the drops: what they repeat would be too much.
    while seen < 3 {
        let line = pair.near.line();
        assert!(Instant::now() < end, "{line}");
        let report: Value = serde_json::from_str(&line).unwrap();
        intervals.0 += packets(&report);
        intervals.1 += dropped(&report);
        seen += u32::from(intervals.1 > 0);
        reports += 1;
        if intervals.1 == 0 && reports % 5 == 0 {
            burst();
        }
    }
    signal(rustix::process::Signal::INT);
    let total = loop {
        let line = pair.near.line();
        let report: Value = serde_json::from_str(&line).unwrap();
        if report["kind"] == "total" {
            break report;
        }
        intervals.0 += packets(&report);
        intervals.1 += dropped(&report);
    };
    assert!(
        intervals.0 > 0 && intervals.0 <= packets(&total),
        "{intervals:?}, {total}"
    );
    assert_eq!(intervals.1, dropped(&total), "{intervals:?}, {total}");
}

#[test]
fn large_frames_of_one_vlan_cross() {
    if is_client() || !in_namespaces("large_frames_of_one_vlan_cross") {
        return;
    }
    let pair = pair("--mtu 9000 --vlan 100");
    if have_ping() {
        ping(pair.far.child.id(), 9000);
    }
    tcp(&pair, "large_frames_of_one_vlan_cross");
}

#[test]
fn a_device_that_was_reset_carries_again_and_one_that_is_gone_ends_the_command() {
    const NAME: &str =
        "a_device_that_was_reset_carries_again_and_one_that_is_gone_ends_the_command";
    if is_client() || !in_namespaces(NAME) {
        return;
    }
    let mut pair = pair("--stats-period 1");
    pair.fault("fault 0 function-reset");
    pair.wait_for("recoveries");
    tcp(&pair, NAME);
    pair.fault("fault 0 link-down");
    wait_for_state("near0", "NO-CARRIER");
    pair.fault("clear 0 link-down");
    wait_for_state("near0", "LOWER_UP");
    tcp(&pair, NAME);
    pair.server.child.kill().unwrap();
    let mut rest = String::new();
    pair.near.out.read_to_string(&mut rest).unwrap();
    assert!(
        rest.lines().last().unwrap().contains("\"kind\":\"total\""),
        "{rest}"
    );
    assert_eq!(pair.near.child.wait().unwrap().code(), Some(1));
}

#[test]
fn frames_beyond_the_mtu_are_counted_and_not_sent_and_a_signal_before_the_end_is_told() {
    const NAME: &str =
        "frames_beyond_the_mtu_are_counted_and_not_sent_and_a_signal_before_the_end_is_told";
    if is_client() || !in_namespaces(NAME) {
        return;
    }
    let mut pair = pair("--mtu 1500 --stats-period 1 --duration 1000");
    run(None, "ip link set near0 mtu 3000");
    let socket = UdpSocket::bind("10.98.0.1:0").unwrap();
    socket.set_broadcast(true).unwrap();
    for _ in 0..3 {
        socket.send_to(&[7; 2500], "10.98.0.255:9").unwrap();
    }
    pair.wait_for("too_long");
    let process = rustix::process::Pid::from_child(&pair.near.child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    assert_eq!(pair.near.child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_interface_that_cannot_be_used_is_refused_with_the_cause() {
    if !in_namespaces("an_interface_that_cannot_be_used_is_refused_with_the_cause") {
        return;
    }
    run(None, "ip tuntap add dev tun0 mode tun");
    run(None, "ip tuntap add dev many0 mode tap multi_queue");
    for interface in ["lo", "tun0", "many0"] {
        let mut tap = ringside();
        tap.args(["tap", "--interface", interface, "--duration", "1"]);
        let output = tap.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(
            said.contains("no TAP interface with a single queue"),
            "{said}"
        );
    }
}

#[test]
fn an_interface_that_root_has_made_needs_no_right_and_one_that_differs_does() {
    const NAME: &str = "an_interface_that_root_has_made_needs_no_right_and_one_that_differs_does";
    if !in_namespaces(NAME) {
        return;
    }
    run(None, "ip tuntap add dev own mode tap user 0");
    run(
        None,
        "ip link set own address 02:e8:10:00:00:01 mtu 1500 up",
    );
    for (mtu, code) in [("1500", 0), ("1400", 3)] {
        // The owner of the interface, without CAP_NET_ADMIN.
        let output = Command::new("setpriv")
            .args(["--bounding-set", "-net_admin"])
            .arg(env!("CARGO_BIN_EXE_ringside"))
            .args(["tap", "--interface", "own", "--duration", "1", "--mtu", mtu])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{mtu}: {said}");
        let remedy = "do it as root: `ip link set dev own address 02:e8:10:00:00:01 mtu 1400 up`";
        assert_eq!(said.contains(remedy), code == 3, "{said}");
    }
}
