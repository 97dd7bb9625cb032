//! A device that another process has, or that is not there.

use super::harness::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::PoisonError;

/// The program `owner` on a socket; with the folder of the files, as under `ringside run`, it waits
/// for a device that is in use.
fn owner(program: &str, socket: &Path, files: Option<&Path>) -> Command {
    let mut command = on_socket(program, socket);
    command
        .env_remove("RINGSIDE_FILES")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(files) = files {
        command.env("RINGSIDE_FILES", files);
    }
    command
}

/// Its lines: the errno value, the milliseconds, the reason.
fn refusal(output: &Output) -> (i32, u64, String) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let [errno, took, reason] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("not three lines: {text}");
    };
    let number = |line: &str| line.split_whitespace().find_map(|word| word.parse().ok());
    let errno = number(errno).expect("an errno value");
    (
        errno as i32,
        number(took).expect("a time"),
        reason.to_owned(),
    )
}

#[test]
fn a_second_process_gets_ebusy_and_the_name_of_the_owner() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("owner", folder.path()) else {
        return;
    };
    let socket = folder.path().join("socket");
    let _server = serve(&[&socket]);
    let mut first = Ended(owner(&program, &socket, None).spawn().expect("the owner"));
    let mut lines = BufReader::new(first.0.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("a line"), "open");

    let busy = owner(&program, &socket, None)
        .output()
        .expect("the program");
    let (errno, took_ms, reason) = refusal(&busy);
    assert_eq!(errno, 16, "EBUSY: {reason}");
    let named = format!("owner (pid {})", first.0.id());
    assert!(reason.contains(&named), "{reason}");
    assert!(reason.contains(&socket.display().to_string()), "{reason}");
    assert!(String::from_utf8_lossy(&busy.stderr).contains(&named));
    assert!(took_ms < 2000, "{took_ms} ms: it has nothing to wait for");
    // Another program, which knows nothing of this library, shows the reason too.
    if is_installed("ibv_devinfo") {
        let other = owner("ibv_devinfo", &socket, None).output();
        let other = other.expect("ibv_devinfo");
        assert!(!other.status.success(), "{other:?}");
        let errors = String::from_utf8_lossy(&other.stderr);
        assert!(errors.contains(&named), "{errors}");
    }

    // Where the process that writes the files may be the owner, a program waits for its end.
    let files = folder.path().join("files");
    std::fs::create_dir(&files).expect("a folder");
    let waited = owner(&program, &socket, Some(&files)).output();
    let (errno, took_ms, reason) = refusal(&waited.expect("the program"));
    assert_eq!(errno, 16, "{reason}");
    assert!(took_ms >= 2000, "{took_ms} ms");

    drop(first.0.stdin.take());
    assert!(first.0.wait().expect("the owner").success());
    let mut next = Ended(
        owner(&program, &socket, None)
            .spawn()
            .expect("the next one"),
    );
    let mut lines = BufReader::new(next.0.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("a line"), "open");
}

#[test]
fn a_device_that_is_not_there_is_no_busy_one_and_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("owner", folder.path()) else {
        return;
    };
    // A socket whose server has ended: it is listed, and cannot be opened.
    let socket = folder.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
    let files = folder.path().join("files");
    std::fs::create_dir(&files).expect("a folder");
    let output = owner(&program, &socket, Some(&files)).output();
    let (errno, took_ms, reason) = refusal(&output.expect("the program"));
    assert_eq!(errno, 19, "ENODEV: {reason}");
    assert!(took_ms < 2000, "{took_ms} ms");
    // A card that this machine does not have is not even listed.
    let mut card = owner(&program, &socket, Some(&files));
    card.env("RINGSIDE_DEVICE", "0000:ff:1f.7");
    let output = card.output().expect("the program");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "no device: 19\n", "{output:?}");
}
