//! The numbers that reports of the bench and of captures have, against what has happened.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// The JSON that a command writes to standard output; it has to succeed.
fn report(line: &str) -> Value {
    report_of(&mut Command::new(env!("CARGO_BIN_EXE_ringside")), line)
}

fn report_of(command: &mut Command, line: &str) -> Value {
    let output = command
        .args(line.split(' '))
        .args(["--out_json", "--out_json_file", "-"])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_total_of_a_lost_link_includes_the_time_for_which_it_is_down() {
    let report = report("bench --chaos --chaos-kinds link-down --chaos-rounds 2");
    let times = report["kinds"][0]["times"].as_array().unwrap();
    let least = |part: &str| {
        let found = times.iter().find(|spread| spread["part"] == part);
        found.unwrap()["min_usec"].as_f64().unwrap()
    };
    assert!(least("total") >= 20_000.0, "{times:?}");
    assert!(least("detect") > 0.0, "{times:?}");
}

#[test]
fn the_path_mtu_is_that_of_the_configuration_unless_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    std::fs::write(&file, "[rdma]\npath_mtu = 1024\n").unwrap();
    let line = format!("--config {} bench write lat -n 10 -s 8", file.display());
    let mtu = |flag: &str| report(&format!("{line}{flag}"))["tables"][0]["mtu"].clone();
    assert_eq!((mtu(""), mtu(" -m 2048")), (1024.into(), 2048.into()));
    std::fs::write(&file, "[rdma]\npath_mtu = 1024\n[link]\nmtu = 1500\n").unwrap();
    assert_eq!(mtu(""), 1024);
    let refused = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(format!("{line} -m 2048").split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("-m 2048: link.mtu of the configuration has room for 1024 bytes"),
        "{said}"
    );
}

#[test]
fn a_report_says_whether_driver_and_model_have_one_core_between_them() {
    let core = ringside_bus::pinning::allowed_cores()[0];
    let line = "bench write lat -n 10 -s 8";
    let mut confined = Command::new("taskset");
    confined.args(["-c", &core.to_string(), env!("CARGO_BIN_EXE_ringside")]);
    let one = report_of(&mut confined, line);
    assert_eq!(one["placement"]["one_core"], true, "{one}");
    let cores = &report(line)["placement"];
    let is_one = cores["model_core"].is_null();
    assert_eq!(cores.get("one_core").is_some(), is_one, "{cores}");
}

/// A head as a mirror sends it: losses of a direction, bytes, direction, and the mark of the last.
fn head(lost: u8, bytes: u8, is_sent: bool, is_last: bool) -> [u8; 32] {
    let mut head = [0; 32];
    (head[8], head[16], head[20]) = (lost, bytes, bytes);
    (head[26], head[27]) = (is_sent.into(), is_last.into());
    head
}

/// A capture that is attached to a mirror, of which the caller plays the part.
fn attached(folder: &std::path::Path, flags: &[&str]) -> (Child, UnixStream) {
    let socket = folder.join("mirror");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(["capture", "--json", "--attach"])
        .arg(&socket)
        .arg("--write")
        .arg(folder.join("x.pcapng"))
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + LIMIT;
    let mut mirror = loop {
        match listener.accept() {
            Ok((mirror, _)) => break mirror,
            Err(error) => assert!(Instant::now() < end, "no capture: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    mirror.set_nonblocking(false).unwrap();
    mirror.set_read_timeout(Some(LIMIT)).unwrap();
    mirror
        .write_all(b"ringside-mirror 2\n[\"port\"]\n")
        .unwrap();
    for is_sent in [false, true] {
        mirror.write_all(&head(3, 60, is_sent, false)).unwrap();
        mirror.write_all(&[0; 60]).unwrap();
    }
    (child, mirror)
}

/// The exit code of a capture, what it reports, and what it says.
fn captured(child: Child) -> (Option<i32>, Value, String) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = serde_json::from_slice(&output.stdout).expect(&said);
    (output.status.code(), told, said)
}

/// Waits until a capture's file has as many packets: blocks of type 6.
fn wait_for_packets(file: &std::path::Path, packets: u64) {
    let end = Instant::now() + LIMIT;
    loop {
        let bytes = std::fs::read(file).unwrap_or_default();
        let mut rest = bytes.as_slice();
        let mut found = 0;
        while let Some(head) = rest.first_chunk::<8>() {
            let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
            let Some(behind) = rest.get(number(4) as usize..) else {
                break;
            };
            found += u64::from(number(0) == 6);
            rest = behind;
        }
        if found >= packets {
            return;
        }
        assert!(Instant::now() < end, "{found} packets in the file");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_capture_has_the_losses_until_its_end_of_its_direction() {
    for (flags, packets, lost) in [
        (&["--direction", "in"][..], 1, 40),
        (&["--direction", "out"], 1, 50),
        (&[], 2, 90),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (child, mut mirror) = attached(folder.path(), flags);
        wait_for_packets(&folder.path().join("x.pcapng"), packets);
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        // It ends its side of the stream.
        assert_eq!(mirror.read(&mut [0]).unwrap(), 0);
        mirror.write_all(&head(40, 0, false, true)).unwrap();
        mirror.write_all(&head(50, 0, true, true)).unwrap();
        drop(mirror);
        let (code, told, said) = captured(child);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(told["ended_by"], "interrupt", "{told}");
        let both = (&told["packets"], &told["lost"]);
        assert_eq!(both, (&packets.into(), &lost.into()), "{flags:?}: {told}");
    }
}

#[test]
fn a_capture_that_is_given_up_fails_and_one_whose_program_ends_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (child, mirror) = attached(folder.path(), &[]);
    drop(mirror);
    let (code, told, said) = captured(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("gave this capture up"), "{said}");
    assert_eq!(
        (&told["packets"], &told["ended_by"]),
        (&2.into(), &"a failure".into())
    );
    let folder = tempfile::tempdir().unwrap();
    let (child, mut mirror) = attached(folder.path(), &[]);
    for is_sent in [false, true] {
        mirror.write_all(&head(4, 0, is_sent, true)).unwrap();
    }
    drop(mirror);
    let (code, told, said) = captured(child);
    assert_eq!(code, Some(0), "{said}");
    let ended = (&told["lost"], &told["ended_by"]);
    assert_eq!(ended, (&8.into(), &"the end of the other program".into()));
}
