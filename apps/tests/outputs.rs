//! The destinations of the command's output: closed pipes, full devices, files; and the state that
//! is left after Ctrl-C.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far beyond what anything takes here, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(120);

/// A line for every kind of command that prints.
const COMMANDS: [&str; 20] = [
    "doctor",
    "doctor --json",
    "bring-up",
    "bring-up --trace --json",
    "bring-up --fail-at list",
    "bench write lat -n 5",
    "bench write bw -n 5 -v --out_json --out_json_file -",
    "sim --runs 1 --seed 42 --steps 5 --trace",
    "info",
    "info --json",
    "devices",
    "config schema",
    "--help",
    "--version",
    "help bench",
    "model serve --help",
    "config sample",
    "port",
    "port --json --statistics",
    "forward --mode txonly --duration 1",
];

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command
        .args(line.split(' '))
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn run(line: &str, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Output {
    let child = command(line).stdout(stdout).stderr(stderr).spawn().unwrap();
    ended(child, line)
}

fn ended(mut child: Child, line: &str) -> Output {
    let end = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{line}: still running after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// The writing end of a pipe that nothing reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_closed_pipe_ends_every_command_quietly() {
    for line in COMMANDS {
        let output = run(line, closed(), Stdio::piped());
        let said = text(&output.stderr);
        assert!(!said.contains("panicked"), "{line}: {said}");
        assert_eq!(output.status.code(), Some(141), "{line}: {said}");
        assert!(!said.contains("ringside: "), "{line}: {said}");
    }
}

#[test]
fn a_full_device_is_an_error_with_its_reason() {
    for line in COMMANDS {
        let output = run(line, full(), Stdio::piped());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        let told = "ringside: cannot write to standard output: No space left on device";
        assert!(said.contains(told), "{line}: {said}");
    }
}

#[test]
fn a_closed_or_full_standard_error_changes_no_exit_code() {
    for (line, code) in [("bench -s 9999999", 2), ("info --device model:7", 3)] {
        for stderr in [closed(), full().into()] {
            let output = run(line, Stdio::null(), stderr);
            assert_eq!(output.status.code(), Some(code), "{line}");
        }
    }
    // The log goes there too.
    let mut logging = command("bring-up");
    logging.env("RUST_LOG", "trace");
    let child = logging.stdout(Stdio::null()).stderr(closed());
    assert_eq!(
        ended(child.spawn().unwrap(), "bring-up").status.code(),
        Some(0)
    );
}

#[test]
fn naming_the_file_of_the_report_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let line = format!("bench write lat -n 5 --out_json_file {}", path.display());
    let output = run(&line, Stdio::piped(), Stdio::piped());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_reader(File::open(&path).unwrap()).unwrap();
    assert_eq!(report["tables"][0]["rows"]["latency"][0]["iterations"], 5);
    assert_eq!(report.get("ended_early"), None);
    let quiet = run(
        "bench read lat -n 5 --out_json_file -",
        Stdio::piped(),
        Stdio::piped(),
    );
    let report: serde_json::Value = serde_json::from_slice(&quiet.stdout).unwrap();
    assert_eq!(report["tables"][0]["operation"], "read");
}

/// The line that a child prints and that begins with `start`.
fn wait_for(reader: &mut impl BufRead, start: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            panic!("no line begins with {start:?}:\n{seen}");
        }
        if line.starts_with(start) {
            return line;
        }
        seen += &line;
    }
}

fn signal(child: &Child, name: &str) {
    let words = ["-s", name, &child.id().to_string()];
    assert!(Command::new("kill").args(words).status().unwrap().success());
}

#[test]
fn ctrl_c_shows_what_was_measured_until_then() {
    for (test, name) in [
        ("write lat", "INT"),
        ("read bw", "TERM"),
        ("send bw", "INT"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let line = format!(
            "bench {test} -s 64 -D 60 --out_json_file {}",
            path.display()
        );
        let mut command = command(&line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        wait_for(&mut reader, " #bytes ");
        std::thread::sleep(Duration::from_millis(1000));
        signal(&child, name);
        // As `timeout` does, which signals the process and its group.
        signal(&child, name);
        let row = wait_for(&mut reader, " 64 ");
        let iterations: u64 = row.split_whitespace().nth(1).unwrap().parse().unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let output = ended(child, &line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{test}: {rest}{said}");
        assert!(said.contains("ringside: interrupted; "), "{test}: {said}");
        assert!(rest.contains("; 0 kinds of breach"), "{test}: {rest}");
        let report = std::fs::read_to_string(&path).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let kind = if test.ends_with("lat") {
            "latency"
        } else {
            "bandwidth"
        };
        let row = &report["tables"][0]["rows"][kind][0];
        assert_eq!(row["iterations"], iterations, "{test}");
        assert!(iterations > 0, "{test}");
        assert!(report["ended_early"].is_string(), "{test}");
    }
}

#[test]
fn ctrl_c_shows_the_runs_of_a_simulation_until_then() {
    for flags in ["", " --json"] {
        let line = format!("sim --runs 100000000 --steps 50{flags}");
        let mut command = command(&line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = child.spawn().unwrap();
        // Before that a signal would end the process as any other.
        let status = format!("/proc/{}/status", child.id());
        let end = Instant::now() + LIMIT;
        let catches = || {
            let text = std::fs::read_to_string(&status).unwrap();
            let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() & 2 != 0
        };
        while !catches() {
            assert!(Instant::now() < end, "{line}: it catches no signal");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(300));
        signal(&child, "INT");
        let output = ended(child, &line);
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(130), "{line}: {shown}{said}");
        assert!(said.contains("ringside: interrupted; "), "{line}: {said}");
        if flags.is_empty() {
            assert!(shown.contains(" runs from seed 1 on"), "{shown}");
            assert!(shown.contains("ended early: a signal came"), "{shown}");
        } else {
            let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
            assert!(report["runs"].is_u64(), "{shown}");
            assert_eq!(report["ended_early"], "a signal came", "{shown}");
        }
    }
}

#[test]
fn the_trace_of_a_simulation_leaves_its_json_alone() {
    let line = "sim --runs 1 --seed 42 --steps 5 --trace --json";
    let output = run(line, Stdio::piped(), Stdio::piped());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["runs"], 1);
    let plain = run(
        "sim --runs 1 --seed 42 --steps 5 --trace",
        Stdio::piped(),
        Stdio::null(),
    );
    let step = text(&plain.stdout).lines().next().unwrap().to_owned();
    assert!(text(&output.stderr).contains(&step), "{step}");
}

#[test]
fn a_file_on_a_full_device_is_named() {
    for flag in ["--hgrm", "--pcap"] {
        let line = format!("bench write lat -n 5 {flag} /dev/full");
        let output = run(&line, Stdio::null(), Stdio::piped());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        let named = said.contains("/dev/full") && said.contains("No space left on device");
        assert!(named, "{line}: {said}");
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut command = command("bench --chaos --chaos-kinds firmware-stall --chaos-rounds 1000");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut reader, "   1 ");
    // Enough signals to have one before the first is acted on and one long after it was noticed.
    let end = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end);
        signal(&child, "INT");
        std::thread::sleep(Duration::from_millis(20));
    }
    use std::os::unix::process::ExitStatusExt;
    let status = child.wait().unwrap();
    assert!(
        status.code() == Some(130) || status.signal() == Some(2),
        "{status}"
    );
}

/// A model with two functions in a process of its own; ended with the test.
struct Served {
    folder: tempfile::TempDir,
    child: Child,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = command("model serve --doorbell-page");
        for name in ["a", "b"] {
            child.arg("--socket").arg(folder.path().join(name));
        }
        child.arg("--control").arg(folder.path().join("control"));
        child.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        wait_for(
            &mut BufReader::new(child.stdout.take().unwrap()),
            "function 1 ",
        );
        Self { folder, child }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn rounds_before_a_failure_or_a_signal_are_in_the_report() {
    for ends in ["the server", "a signal"] {
        let mut served = Served::start();
        let (a, b, control, json) = (
            served.path("a"),
            served.path("b"),
            served.path("control"),
            served.path("report.json"),
        );
        let line = format!(
            "bench --chaos --chaos-kinds function-reset --chaos-rounds 100000 --device vfio-user:{a} \
             --peer vfio-user:{b} --chaos-control {control} --out_json_file {json}"
        );
        let mut command = command(&line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        wait_for(&mut reader, "   2 ");
        if ends == "the server" {
            served.child.kill().unwrap();
        } else {
            signal(&child, "INT");
        }
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let output = ended(child, &line);
        let said = text(&output.stderr);
        let code = if ends == "a signal" { 130 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{ends}: {rest}{said}");
        assert!(rest.contains(" requests completed and "), "{ends}: {rest}");
        let report: serde_json::Value =
            serde_json::from_reader(File::open(&json).unwrap()).unwrap();
        assert!(report["events"].as_u64().unwrap() >= 2, "{ends}: {report}");
        let why = report["ended_early"].as_str().unwrap();
        let told = if ends == "a signal" {
            "interrupted"
        } else {
            "round "
        };
        assert!(why.contains(told), "{ends}: {why}");
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_fault_that_is_not_raised() {
    let served = Served::start();
    let line = format!(
        "bench --chaos --chaos-prompt --chaos-kinds link-down --device vfio-user:{} --peer vfio-user:{}",
        served.path("a"),
        served.path("b")
    );
    let mut command = command(&line);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut reader, "raise: fault ");
    let asked = Instant::now();
    signal(&child, "TERM");
    wait_for(&mut reader, "raise: clear ");
    // The wait itself takes 30 s.
    assert!(asked.elapsed() < Duration::from_secs(20));
    let output = ended(child, &line);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
}

#[test]
fn the_first_figure_comes_within_twelve_lines_and_no_warning_twice() {
    let output = run("bench write lat -n 5", Stdio::piped(), Stdio::null());
    let shown = text(&output.stdout);
    let lines: Vec<_> = shown.lines().collect();
    let figure = lines.iter().position(|line| line.starts_with(" 8 "));
    assert!(figure.is_some_and(|index| index < 12), "{shown}");
    if std::thread::available_parallelism().unwrap().get() > 1 {
        let placed = lines.iter().filter(|line| line.contains("cache line"));
        assert_eq!(placed.count(), 1, "{shown}");
    }
    let mut warnings: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("warning: "))
        .collect();
    warnings.sort();
    let all = warnings.len();
    warnings.dedup();
    assert_eq!(warnings.len(), all, "{shown}");
    assert!(!shown.contains("  admin-queue"), "{shown}");
    let verbose = run("bench write lat -n 5 -v", Stdio::piped(), Stdio::null());
    let shown = text(&verbose.stdout);
    assert_eq!(shown.matches("  admin-queue ").count(), 2, "{shown}");
}

#[test]
fn a_file_that_cannot_be_made_is_refused_before_the_run() {
    // Nothing can be made in /proc, by root neither.
    for line in [
        "bench write lat -n 5 --hgrm /proc/no.hgrm",
        "bench write lat -n 5 --out_json",
        "bench --chaos --chaos-rounds 1 --out_json",
    ] {
        let mut command = command(line);
        command.current_dir("/proc").stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let output = ended(child, line);
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("cannot be written: "), "{line}: {said}");
        assert_eq!(shown, "", "{line}");
    }
}

#[test]
fn a_command_that_does_not_begin_leaves_old_files_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (old, other, socket, none) = (path("old"), path("other"), path("socket"), path("none"));
    std::fs::write(&old, "old").unwrap();
    std::fs::write(&other, "old").unwrap();
    // More than the device has.
    let config = path("config");
    std::fs::write(&config, "[rdma]\nqueue_pairs = 262141\n").unwrap();
    let serve = format!("model serve --socket {socket}");
    for (line, code) in [
        (format!("capture --device vfio-user:{none} -w {old}"), 3),
        (format!("capture --attach {none} -w {old}"), 3),
        (format!("bench write lat --config {config} --pcap {old}"), 3),
        // the path of a file is none of a socket
        (format!("{serve} --record {old} --control {other}"), 2),
        (format!("{serve} --pcap {old} --control {other}"), 2),
        (format!("{serve} --record {old} --dgram {other},{none}"), 2),
        (format!("{serve} --record {old} --pcap {none}/x"), 2),
    ] {
        let output = run(&line, Stdio::null(), Stdio::piped());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        for path in [&old, &other] {
            let kept = std::fs::read_to_string(path).unwrap();
            assert_eq!(kept, "old", "{line}: {said}");
        }
    }
}

#[test]
fn every_file_of_a_distribution_is_checked_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let last = folder.path().join("lat-rdma_read-latency-8388608-b.hgrm");
    std::fs::create_dir(&last).unwrap();
    let hgrm = folder.path().join("lat.hgrm");
    let hgrm = hgrm.display();
    for (flags, named) in [
        (
            format!("{hgrm}"),
            "latency-8388608-b.hgrm cannot be written",
        ),
        (
            format!(
                "{hgrm} --pcap {}",
                folder
                    .path()
                    .join("lat-rdma_read-latency-2-b.hgrm")
                    .display()
            ),
            "--hgrm and --pcap name the same path",
        ),
        ("/dev/null".to_owned(), "is no ordinary file"),
    ] {
        let line = format!("bench read lat -a -n 5 --hgrm {flags}");
        let output = run(&line, Stdio::piped(), Stdio::piped());
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(named), "{line}: {said}");
        assert_eq!(shown, "", "{line}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn a_report_is_written_even_if_a_distribution_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let line = format!(
        "bench write lat -n 5 --hgrm /dev/full --out_json_file {}",
        path.display()
    );
    let output = run(&line, Stdio::null(), Stdio::piped());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_reader(File::open(&path).unwrap()).unwrap();
    assert_eq!(report["tables"][0]["rows"]["latency"][0]["iterations"], 5);
}

#[test]
fn a_capture_that_is_not_whole_is_named_after_a_signal_too() {
    let line = "bench write bw -s 4096 -D 60 --pcap /dev/full";
    let mut command = command(line);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut reader, " #bytes ");
    signal(&child, "INT");
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    let output = ended(child, line);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{rest}{said}");
    let named = said.contains("the capture in /dev/full is not whole");
    assert!(named && said.contains("interrupted"), "{said}");
}

#[test]
fn one_path_for_two_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let same = folder.path().join("same");
    let same = same.display();
    for flags in [
        format!("--hgrm {same} --out_json_file {same}"),
        format!("--pcap {same} --hgrm {same}"),
    ] {
        let line = format!("bench write lat -n 5 {flags}");
        let output = run(&line, Stdio::piped(), Stdio::piped());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("name the same path"), "{line}: {said}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

/// A command under a limit of this process's resources.
fn limited(limit: &str, line: &str) -> Output {
    let mut command = Command::new("prlimit");
    command.arg(limit).arg(env!("CARGO_BIN_EXE_ringside"));
    let command = command.args(line.split(' ')).env_remove("RUST_LOG");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped());
    ended(child.stderr(Stdio::piped()).spawn().unwrap(), line)
}

#[test]
fn the_limit_of_a_file_is_named_and_ends_nothing_without_a_word() {
    // Memory for a device comes from files too.
    let output = limited("--fsize=1000", "info");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("`ulimit -f unlimited`"), "{said}");
}

#[test]
fn a_missing_descriptor_is_not_told_as_a_missing_core() {
    for files in 4..12 {
        let output = limited(&format!("--nofile={files}:{files}"), "info");
        let said = text(&output.stderr);
        assert!(!said.contains("(none known)"), "{files}: {said}");
    }
}

/// The README shows the output of a run: its columns are those that the bench prints.
#[test]
fn the_readme_shows_the_columns_of_the_bench() {
    let readme = include_str!("../../README.md");
    let printed = run("bench write lat -n 5", Stdio::piped(), Stdio::piped());
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let printed = text(&printed.stdout);
    let columns = |all: &str| {
        let mut lines = all
            .lines()
            .skip_while(|line| !line.starts_with(" #bytes"))
            .map(|line| line.split_whitespace().map(str::to_owned));
        let head: Vec<String> = lines.next().expect("a head").collect();
        let mut rows = lines.map(Iterator::collect::<Vec<String>>);
        let row = rows.find(|row| row.iter().all(|word| word.parse::<f64>().is_ok()));
        assert_eq!(row.expect("a row").len(), head.len(), "{head:?}");
        head
    };
    assert_eq!(columns(readme), columns(&printed));
    // So are the lines around them, with any numbers.
    let shape = |line: &str| line.replace(|one: char| one.is_ascii_digit(), "");
    let shapes: Vec<String> = printed.lines().map(shape).collect();
    for part in [
        "Driven: ",
        "A cache line takes",
        "Latency Test",
        " Queue pairs: ",
        " messages verified byte by byte",
    ] {
        let shown = readme.lines().find(|line| line.contains(part)).expect(part);
        // Cores that other programs use cannot be measured: the bench says so instead.
        let is_busy = part == "A cache line takes" && printed.contains("was not measured");
        assert!(
            is_busy || shapes.contains(&shape(shown)),
            "{shown:?} is not in\n{printed}"
        );
    }
}
