//! Programs on models: their folder, their start and their end.

use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The folder with `libibverbs.so.1`, linked from the archive of this build.
pub(crate) fn libraries() -> &'static Path {
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
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new("which").arg(program).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    let may_miss = std::env::var_os("CI").is_none();
    assert!(
        is_there || may_miss,
        "{program} is missing: .ci/run --tools"
    );
    is_there
}

/// True if this user may make a network namespace. Otherwise prints that the test is not run, and
/// fails in the CI.
pub(crate) fn has_namespaces() -> bool {
    let made = own_network("true").status();
    let is_allowed = made.is_ok_and(|status| status.success());
    if !is_allowed {
        let may_miss = std::env::var_os("CI").is_none();
        assert!(may_miss, "user namespaces are needed: allow them");
        eprintln!("user namespaces are not allowed: not run");
    }
    is_allowed
}

/// A command that runs a script in a network of its own, as root there. Further arguments are those
/// of the script, from `$1` on.
pub(crate) fn own_network(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "bash", "-c"]);
    command.args([script, "-"]);
    command
}

/// The folder of sockets. A model that a failed test left there is ended.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Waits until a program has started a model here and claimed port 0. Returns the process id of
    /// the model.
    pub(crate) fn wait_for_model(&self) -> String {
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            assert!(Instant::now() < limit, "the model does not start");
            let pid = std::fs::read_to_string(self.pid_file()).unwrap_or_default();
            if !pid.is_empty() && self.path().join("ringside/0.lock").exists() {
                return pid;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.path().join("ringside/model.pid")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.pid_file()).unwrap_or_default();
        if pid.trim().parse::<u32>().is_ok() {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

pub(crate) fn start(folder: &Path, port: &str, program: &[&str]) -> Child {
    // The machine of the tests may have a route to 10.0.0.1.
    run_with(folder, &["--port", port, "--loopback", "always"], program)
}

pub(crate) fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    text
}

/// One pair of programs at a time: server, client and model poll without end, and there may be two
/// cores.
pub(crate) static ONE_PAIR: Mutex<()> = Mutex::new(());

/// Runs a client until its output is what is wanted: it fails as long as the server does not
/// listen, and on a busy machine that takes seconds. Returns its last output, also if the server
/// has ended or never listens.
pub(crate) fn client_of(
    server: &mut Child,
    is_wanted: impl Fn(&Output) -> bool,
    mut client: impl FnMut() -> Child,
) -> Output {
    let limit = Instant::now() + Duration::from_secs(40);
    loop {
        let output = client().wait_with_output().expect("the client");
        let is_over = server.try_wait().is_ok_and(|end| end.is_some());
        if is_wanted(&output) || is_over || Instant::now() > limit {
            return output;
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// True for a program that has ended with 0.
pub(crate) fn has_succeeded(output: &Output) -> bool {
    output.status.success()
}

/// True for a program that was ended by `kill -9`, or whose command was.
pub(crate) fn was_killed(output: &Output) -> bool {
    output.status.code() == Some(128 + 9) || output.status.signal() == Some(9)
}

/// Runs server and client.
pub(crate) fn meet(server: &[&str], client: &[&str]) -> [String; 2] {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let mut waiting = start(folder.path(), "0", server);
    let client = client_of(&mut waiting, has_succeeded, || {
        start(folder.path(), "1", client)
    });
    let server = waiting.wait_with_output().expect("the server");
    let texts = [succeeded(&server), succeeded(&client)];
    assert!(
        !folder.pid_file().exists(),
        "the last program ends the model"
    );
    texts
}

/// Runs a program with itself; the client gets more arguments. Nothing if it is not installed.
pub(crate) fn meet_with(server: &[&str], more: &[&str]) -> Option<[String; 2]> {
    let program = server.first().expect("a program");
    if !is_installed(program) {
        eprintln!("{program} is not installed: not run");
        return None;
    }
    let client = [server, more].concat();
    Some(meet(server, &client))
}

/// Compiles a program of `capi/tests`; nothing if the headers are missing.
pub(crate) fn compiled(name: &str, folder: &Path) -> Option<String> {
    let source = format!("{}/../capi/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    compiled_with(&source, folder, &[])
}

/// Compiles a program with more flags; nothing if the headers are missing.
pub(crate) fn compiled_with(source: &str, folder: &Path, flags: &[&str]) -> Option<String> {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        let may_miss = std::env::var_os("CI").is_none();
        assert!(may_miss, "librdmacm-dev is missing: .ci/run --tools");
        return None;
    }
    let program = folder.join(Path::new(source).file_stem().expect("a file"));
    let mut compile = Command::new("cc");
    compile.args([
        "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", source, "-o",
    ]);
    compile
        .arg(&program)
        .args(flags)
        .args(["-lrdmacm", "-libverbs"]);
    succeeded(&compile.output().expect("cc"));
    Some(program.to_str().expect("a path").to_owned())
}

/// The `ringside run` that `timeout` has started.
pub(crate) fn family(timeout: u32) -> u32 {
    let list = std::fs::read_to_string(format!("/proc/{timeout}/task/{timeout}/children"));
    let list = list.expect("the children of timeout");
    list.trim().parse().expect("one child")
}

/// The children of a process that run a program of that name.
pub(crate) fn children(parent: u32, name: &str) -> Vec<String> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let list = list.unwrap_or_default();
    let is_program = |pid: &&str| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        command.trim() == name
    };
    let found = list.split_whitespace().filter(is_program);
    found.map(str::to_owned).collect()
}

/// Both ends of a wire, on a loopback address that no other process and no other test uses; the
/// kernel gives the ports to no socket that names none.
pub(crate) fn ends_of_a_wire() -> [String; 2] {
    static WIRES: AtomicU8 = AtomicU8::new(1);
    let wire = WIRES.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let place = |port: u16| format!("127.{}.{low}.{wire}:{port}", 1 + high % 200);
    let (a, b) = (place(20_000), place(20_001));
    [format!("udp:{b}@{a}"), format!("udp:{a}@{b}")]
}

/// `ringside run` with more flags before the program.
pub(crate) fn run_with(folder: &Path, flags: &[&str], program: &[&str]) -> Child {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "50", env!("CARGO_BIN_EXE_ringside"), "run"]);
    command.args(flags).arg("--libraries").arg(libraries());
    command.arg("--").args(program);
    command.env("XDG_RUNTIME_DIR", folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("ringside")
}

/// A process that is ended with the test.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A model's server for sockets; its control socket lies beside the first one, with the extension
/// `control`.
pub(crate) fn serve(sockets: &[&Path]) -> Ended {
    let control = sockets[0].with_extension("control");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.args(["model", "serve"]);
    for socket in sockets {
        command.arg("--socket").arg(socket);
    }
    command.arg("--control").arg(&control);
    let served = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let server = Ended(served.expect("the server"));
    let limit = Instant::now() + Duration::from_secs(30);
    while UnixStream::connect(&control).is_err() {
        assert!(Instant::now() < limit, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// A program on a function of a server, by its socket.
pub(crate) fn on_socket(program: &str, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", libraries())
        .env("RINGSIDE_DEVICE", format!("vfio-user:{}", socket.display()));
    command
}
