//! `ringside run`: unmodified programs of the distribution, two at a time on one model.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The folder with `libibverbs.so.1`, linked from the archive of this build.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let own = std::env::current_exe().expect("this test");
        let deps = own.parent().expect("deps");
        let files = std::fs::read_dir(deps).expect("deps").flatten();
        let archive = files
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("libringside_capi") && name.ends_with(".a")
            })
            .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
        let folder = tempfile::tempdir().expect("a folder").keep();
        let link = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi/link");
        let linked = Command::new(link)
            .arg(archive.expect("the archive of this build"))
            .arg(&folder)
            .status();
        assert!(linked.expect("capi/link").success());
        folder
    })
}

/// False where the program is missing, which only a machine that is not CI's may be.
fn is_installed(program: &str) -> bool {
    let found = Command::new("which").arg(program).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    let may_miss = std::env::var_os("CI").is_none();
    assert!(
        is_there || may_miss,
        "{program} is missing: .ci/run --tools"
    );
    is_there
}

/// The folder of sockets. A model that a failed test left there is ended.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn pid_file(&self) -> PathBuf {
        self.path().join("ringside/model.pid")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(self.pid_file()) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

fn start(folder: &Path, port: &str, program: &[&str]) -> Child {
    let mut command = Command::new("timeout");
    command
        .args([
            "-k",
            "5",
            "50",
            env!("CARGO_BIN_EXE_ringside"),
            "run",
            "--port",
            port,
        ])
        .arg("--libraries")
        .arg(libraries())
        .arg("--")
        .args(program)
        .env("XDG_RUNTIME_DIR", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("ringside")
}

fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    text
}

/// Runs server and client; the client again until the server listens.
fn meet(server: &[&str], client: &[&str]) -> [String; 2] {
    let folder = Folder::new();
    let mut waiting = start(folder.path(), "0", server);
    let limit = Instant::now() + Duration::from_secs(40);
    let client = loop {
        let output = start(folder.path(), "1", client).wait_with_output();
        let output = output.expect("the client");
        let over = Instant::now() > limit || waiting.try_wait().is_ok_and(|end| end.is_some());
        if output.status.success() || over {
            break output;
        }
        std::thread::sleep(Duration::from_millis(300));
    };
    let server = waiting.wait_with_output().expect("the server");
    let texts = [succeeded(&server), succeeded(&client)];
    assert!(
        !folder.pid_file().exists(),
        "the last program ends the model"
    );
    texts
}

#[test]
fn two_ping_pongs_meet_on_one_model_and_compare_every_byte() {
    if !is_installed("ibv_rc_pingpong") {
        eprintln!("ibverbs-utils is not installed: not run");
        return;
    }
    let port = (20_000 + std::process::id() % 20_000).to_string();
    let common = ["ibv_rc_pingpong", "-g", "1", "-n", "50", "-c", "-p", &port];
    let mut client = common.to_vec();
    client.push("localhost");
    for text in meet(&common, &client) {
        assert!(text.contains("50 iters in"), "{text}");
        assert!(!text.contains("invalid data"), "{text}");
    }
}

#[test]
fn two_ping_pongs_sleep_on_their_completion_channels() {
    if !is_installed("ibv_rc_pingpong") {
        eprintln!("ibverbs-utils is not installed: not run");
        return;
    }
    let port = (40_000 + std::process::id() % 20_000).to_string();
    let common = ["ibv_rc_pingpong", "-g", "1", "-n", "50", "-e", "-p", &port];
    let mut client = common.to_vec();
    client.push("localhost");
    for text in meet(&common, &client) {
        assert!(text.contains("50 iters in"), "{text}");
    }
}

#[test]
fn a_program_that_does_not_exist_is_said_so() {
    let folder = Folder::new();
    let child = start(folder.path(), "2", &["no-such-program-here"]);
    let output = child.wait_with_output().expect("ringside");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no-such-program-here"), "{errors}");
    assert!(!folder.pid_file().exists());
}
