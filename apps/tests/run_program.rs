//! The surroundings of a program of `ringside run`: signals, libraries, files, and its model's
//! failure. The programs of these tests use no verbs.

mod without_verbs;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use without_verbs::{Folder, until};

impl Folder {
    /// `ringside run` with these flags, a shell's script as its program, and $1 the folder.
    fn run(&self, flags: &[&str], script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.arg("run").args(flags);
        command.arg("--libraries").arg(self.path());
        command.args(["--", "sh", "-c", script, "sh"]);
        command.arg(self.path());
        command.env("XDG_RUNTIME_DIR", self.path());
        command
            .env_remove("LD_PRELOAD")
            .env_remove("LD_LIBRARY_PATH");
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

fn end(mut child: Child) -> Output {
    until("the command ends", || {
        child.try_wait().expect("ringside").is_some()
    });
    child.wait_with_output().expect("ringside")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// True if signal `number` is in a mask of /proc/PID/status.
fn is_in(status: &str, mask: &str, number: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix(mask));
    let bits = u64::from_str_radix(line.expect("a mask").trim(), 16).expect("a mask");
    bits >> (number - 1) & 1 == 1
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored_here_and_in_the_program() {
    let folder = Folder::new();
    let script = "cat /proc/self/status /proc/$PPID/status";
    for (ignored, number) in [("HUP", 1), ("INT", 2)] {
        let run = folder.run(&["--device", "model:0"], script);
        let mut shell = Command::new("sh");
        shell.arg("-c");
        shell.arg(format!("trap '' {ignored}; exec \"$@\""));
        shell.arg("sh").arg(run.get_program()).args(run.get_args());
        shell.env("XDG_RUNTIME_DIR", folder.path());
        let both = succeeded(&shell.output().expect("a shell"));
        let (program, command) = both.split_at(both.rfind("Name:").expect("two processes"));
        for status in [program, command] {
            assert!(is_in(status, "SigIgn:", number), "{ignored}: {status}");
        }
        assert!(command.contains("ringside"), "{command}");
    }
}

#[test]
fn a_hangup_comes_to_the_program_as_a_hangup_and_an_end_as_an_end() {
    let folder = Folder::new();
    let script = "trap 'echo hangup; exit 3' HUP; trap 'echo end; exit 4' TERM; : >\"$1/told\"; \
                  while :; do sleep 0.05; done";
    for (signal, said, code) in [("-HUP", "hangup\n", 3), ("-TERM", "end\n", 4)] {
        let run = folder.run(&["--device", "model:0"], script);
        let run = with_usual_signals(&run);
        until("the program has begun", || {
            folder.path().join("told").exists()
        });
        let sent = Command::new("kill")
            .args([signal, &run.id().to_string()])
            .status();
        assert!(sent.expect("kill").success());
        let output = end(run);
        assert_eq!(text(&output.stdout), said, "{output:?}");
        assert_eq!(output.status.code(), Some(code));
        std::fs::remove_file(folder.path().join("told")).expect("the file");
    }
}

/// Starts `run` with no signal ignored: `nohup` had the tests ignore some.
fn with_usual_signals(run: &Command) -> Child {
    let environment = run.get_envs();
    Command::new("env")
        .arg("--default-signal")
        .arg(run.get_program())
        .args(run.get_args())
        .envs(environment.filter_map(|(name, value)| Some((name, value?))))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ringside")
}

#[test]
fn a_signal_of_a_process_ends_the_program_and_the_command_with_it() {
    for (name, number) in [("INT", 2), ("QUIT", 3), ("USR1", 10), ("USR2", 12)] {
        let folder = Folder::new();
        // No core of the program is left.
        let script = "ulimit -c 0; echo $$ >\"$1/new\"; mv \"$1/new\" \"$1/told\"; exec sleep 90";
        let run = with_usual_signals(&folder.run(&["--device", "model:0"], script));
        let told = folder.path().join("told");
        until("the program has begun", || told.exists());
        let program = std::fs::read_to_string(&told).expect("the process's number");
        let mut kill = Command::new("kill");
        kill.args(["-s", name, &run.id().to_string()]);
        assert!(kill.status().expect("kill").success());
        let output = end(run);
        assert_eq!(
            output.status.code(),
            Some(128 + number),
            "{name}: {output:?}"
        );
        let program = Path::new("/proc").join(program.trim());
        assert!(!program.exists(), "{name}: the program is left");
    }
}

#[test]
fn libraries_of_a_relative_folder_are_found_after_the_program_has_changed_its_own() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("libs")).expect("a folder");
    std::fs::write(folder.path().join("libs/libibverbs.so.1"), "").expect("a library");
    let mut run = Command::new(env!("CARGO_BIN_EXE_ringside"));
    run.args(["run", "--device", "model:0", "--libraries", "libs", "--"]);
    run.args(["sh", "-c", "cd / && ls \"$LD_LIBRARY_PATH\""]);
    run.env("XDG_RUNTIME_DIR", folder.path());
    run.env("LD_LIBRARY_PATH", "").current_dir(folder.path());
    let shown = succeeded(&run.output().expect("ringside"));
    assert_eq!(shown, "libibverbs.so.1\n");
}

/// The dynamic linker splits `LD_PRELOAD` at spaces and colons.
#[test]
fn libraries_of_a_folder_that_the_linker_cannot_name_are_linked() {
    let folder = Folder::new();
    let libraries = folder.path().join("of a: name");
    std::fs::create_dir(&libraries).expect("a folder");
    for name in ["libibverbs.so.1", "ringside-files.so"] {
        std::fs::write(libraries.join(name), "").expect("a library");
    }
    let run = |runtime: &Path| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_ringside"));
        run.args(["run", "--device", "model:0", "--libraries"]);
        run.arg(&libraries).args(["--", "sh", "-c"]);
        // The linker says that an empty file is no library, and goes on.
        run.arg("ls \"$LD_LIBRARY_PATH/\"; echo \"$LD_PRELOAD\"");
        run.env("XDG_RUNTIME_DIR", runtime);
        run.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
        run.output().expect("ringside")
    };
    for _ in 0..2 {
        let shown = succeeded(&run(folder.path()));
        let (names, preload) = shown.trim().rsplit_once('\n').expect("lines");
        assert_eq!(names, "libibverbs.so.1\nringside-files.so");
        assert!(!preload.contains([' ', ':']), "{preload}");
        assert!(preload.ends_with("/ringside-files.so"), "{preload}");
    }
    // The runtime folder cannot be named either.
    let output = run(&libraries);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("splits a path at a space"), "{errors}");
}

#[test]
fn a_runtime_folder_that_is_empty_or_relative_is_none() {
    let folder = Folder::new();
    for runtime in ["", "relative"] {
        let output = folder
            .run(&["--device", "model:0"], "true")
            .env("XDG_RUNTIME_DIR", runtime)
            .current_dir(folder.path())
            .output();
        succeeded(&output.expect("ringside"));
        for made in ["ringside", "relative"] {
            assert!(!folder.path().join(made).exists(), "{made}");
        }
    }
}

#[test]
fn a_runtime_folder_that_is_a_link_is_said_so() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("/tmp", folder.path().join("ringside")).expect("a link");
    let output = folder.run(&["--device", "model:0"], "true").output();
    let errors = text(&output.expect("ringside").stderr);
    assert!(errors.contains("is a symbolic link"), "{errors}");
}

#[test]
fn files_of_a_device_go_with_its_last_program() {
    let folder = Folder::new();
    let files = folder.at("device-model_0.files");
    let make = "mkdir -p \"$1/ringside/device-model_0.files\"";
    let waits = format!("{make}; : >\"$1/told\"; until [ -e \"$1/go\" ]; do sleep 0.05; done");
    let first = folder.run(&["--device", "model:0"], &waits).spawn();
    let first = first.expect("ringside");
    until("the program has begun", || {
        folder.path().join("told").exists()
    });
    let second = folder.run(&["--device", "model:0"], "true").output();
    succeeded(&second.expect("ringside"));
    assert!(files.exists(), "the first program has them");
    std::fs::write(folder.path().join("go"), "").expect("a file");
    succeeded(&end(first));
    assert!(!files.exists());
    // Those of a command that was killed go when the next program starts.
    std::fs::create_dir(&files).expect("a folder");
    let script = "ls \"$1/ringside\"";
    let seen = folder.run(&["--device", "model:0"], script).output();
    let seen = succeeded(&seen.expect("ringside"));
    assert!(!seen.contains(".files"), "{seen}");
}

#[test]
fn a_relative_device_is_found_from_any_folder_and_has_files_of_its_own() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("x")).expect("a folder");
    let script = "cd / && echo \"$RINGSIDE_DEVICE\" && ls \"$1/ringside\"";
    let mut locks = Vec::new();
    for socket in ["x/a.sock", "x_a.sock"] {
        let device = format!("vfio-user:{socket}");
        let mut run = folder.run(&["--device", &device], script);
        let shown = succeeded(&run.current_dir(folder.path()).output().expect("ringside"));
        let (told, files) = shown.split_once('\n').expect("two lines");
        let whole = folder.path().join(socket);
        assert_eq!(told, format!("vfio-user:{}", whole.display()));
        locks.push(files.lines().filter(|name| name.ends_with(".lock")).count());
    }
    assert_eq!(locks, [1, 2], "both devices have one lock");
}

/// A program of a test: an executable file.
fn executable(path: &Path, content: &[u8], mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, content).expect("a program");
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("a mode");
}

/// `ringside run` of a program of a test.
fn of_program(folder: &Folder, program: &Path, arguments: &[&str]) -> Output {
    let mut run = Command::new(env!("CARGO_BIN_EXE_ringside"));
    run.args(["run", "--device", "model:0", "--libraries"]);
    run.arg(folder.path())
        .arg("--")
        .arg(program)
        .args(arguments);
    run.env("XDG_RUNTIME_DIR", folder.path());
    run.stdin(Stdio::null()).output().expect("ringside")
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    let folder = Folder::new();
    let script = folder.path().join("script");
    executable(&script, b"echo \"$1 of $RINGSIDE_DEVICE\"\n", 0o755);
    let shown = succeeded(&of_program(&folder, &script, &["first"]));
    assert_eq!(shown, "first of model:0\n");
}

#[test]
fn a_missing_interpreter_is_named() {
    let folder = Folder::new();
    let script = folder.path().join("script");
    executable(&script, b"#!/none/interpreter -x\n", 0o755);
    let output = of_program(&folder, &script, &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("its interpreter /none/interpreter is not"),
        "{said}"
    );
    let output = of_program(&folder, Path::new("/none/program"), &[]);
    let said = text(&output.stderr);
    assert!(!said.contains("interpreter"), "{said}");
}

/// A file of 64 bits without a segment of the dynamic linker: it returns 0 at once.
fn static_program() -> Vec<u8> {
    // mov $60, %eax; xor %edi, %edi; syscall
    let code = [0xB8, 60, 0, 0, 0, 0x31, 0xFF, 0x0F, 0x05];
    let (base, place) = (0x40_0000_u64, 120_u64);
    let length = place + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for half in [2_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [base + place, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for half in [1_u32, 5] {
        file.extend(half.to_le_bytes());
    }
    for word in [0, base, base, length, length, 4096] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

#[test]
fn a_program_that_loads_no_library_is_told() {
    let folder = Folder::new();
    let program = folder.path().join("program");
    if cfg!(target_arch = "x86_64") {
        executable(&program, &static_program(), 0o755);
        let output = of_program(&folder, &program, &[]);
        succeeded(&output);
        let said = text(&output.stderr);
        assert!(said.contains("program is linked statically"), "{said}");
    }
    let output = of_program(&folder, Path::new("true"), &[]);
    succeeded(&output);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_number_of_processes_that_is_none_is_no_model() {
    for number in ["-5", "-1", "0"] {
        let folder = Folder::new();
        std::fs::create_dir(folder.at("")).expect("a folder");
        std::fs::write(folder.at("model.pid"), number).expect("a file");
        succeeded(&folder.run(&[], "true").output().expect("ringside"));
    }
}

/// /dev/full refuses what is written once the buffer is full, or at the end.
#[test]
fn a_capture_that_fails_is_told_by_the_command_that_ends_the_model() {
    let folder = Folder::new();
    let capture = ["--pcap", "/dev/full"];
    let output = folder.run(&capture, "true").output().expect("ringside");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let said = "the model ended with exit code 1: /dev/full: writing the capture";
    assert!(errors.contains(said), "{errors}");
    // A program that fails keeps its exit code, and the message is there too.
    let output = folder.run(&capture, "exit 7").output().expect("ringside");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{errors}");
    assert!(errors.contains(said), "{errors}");
    // The next model has its own end.
    succeeded(&folder.run(&[], "true").output().expect("ringside"));
}

#[test]
fn a_capture_to_a_standard_stream_is_refused() {
    let folder = Folder::new();
    for stream in ["/dev/stdout", "/dev/fd/2", "/proc/self/fd/1"] {
        let output = folder.run(&["--pcap", stream], "true").output();
        let output = output.expect("ringside");
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("name a file, or a pipe"), "{errors}");
    }
}

#[test]
fn a_capture_to_a_pipe_waits_for_its_reader_and_says_so() {
    let folder = Folder::new();
    let pipe = folder.path().join("frames");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let mut run = folder.run(&["--pcap", pipe.to_str().expect("a name")], "true");
    let errors = folder.path().join("errors");
    run.stderr(std::fs::File::create(&errors).expect("a file"));
    let running = run.spawn().expect("ringside");
    let said = || std::fs::read_to_string(&errors).expect("a file");
    until("the command says what it waits for", || {
        said().contains("starts once a program reads")
    });
    // The header of a capture, and no frame: the program sends none.
    let captured = std::fs::read(&pipe).expect("a capture");
    assert_eq!(captured.len(), 24);
    assert!(end(running).status.success(), "{}", said());
}

#[test]
fn a_runtime_folder_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let folder = Folder::new();
    let mut runtime = folder.path().to_path_buf().into_os_string().into_vec();
    runtime.extend(b"/\xff");
    let mut run = folder.run(&["--device", "model:0"], "true");
    run.env("XDG_RUNTIME_DIR", std::ffi::OsString::from_vec(runtime));
    let output = run.output().expect("ringside");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("name a folder in UTF-8"), "{errors}");
}

/// A shell that sets the limit of file sizes, for itself and for `ringside run` in its place.
fn limited(folder: &Folder, limit: &str, script: &str) -> Output {
    let run = folder.run(&["--port", "0"], script);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"])
        .arg(run.get_program())
        .args(run.get_args());
    shell.env("XDG_RUNTIME_DIR", folder.path());
    shell.output().expect("a shell")
}

#[test]
fn a_model_has_the_highest_limit_of_file_sizes_that_it_may_have() {
    let folder = Folder::new();
    let of = |process: &str| format!("grep 'Max file size' /proc/{process}/limits");
    let script = format!("{}; {}", of("$(cat \"$1/ringside/model.pid\")"), of("self"));
    // 1 MiB: less than the doorbell page needs.
    let shown = succeeded(&limited(&folder, "-S -f 2048", &script));
    let (model, program) = shown.trim().split_once('\n').expect("two limits");
    let [soft, hard] = values(model);
    assert_eq!(soft, hard, "{shown}");
    // The program keeps what the user has set.
    assert_eq!(values(program), ["1048576", hard], "{shown}");
}

/// Soft and hard limit in a line of /proc/PID/limits.
fn values(line: &str) -> [&str; 2] {
    let mut words = line.split_whitespace().skip(3);
    [words.next(), words.next()].map(|word| word.expect("a limit"))
}

#[test]
fn a_limit_of_file_sizes_that_no_model_fits_is_named_with_its_remedy() {
    let folder = Folder::new();
    let output = limited(&folder, "-f 2048", ": >\"$1/told\"");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    for part in [
        "limit of file sizes is 1048576 bytes",
        "ulimit -f unlimited",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
    assert!(!folder.path().join("told").exists());
}

#[test]
fn a_program_that_its_limit_of_file_sizes_ends_is_told_of() {
    let folder = Folder::new();
    let output = folder
        .run(&["--device", "model:0"], "kill -XFSZ $$")
        .output();
    let output = output.expect("ringside");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + 25), "{errors}");
    assert!(errors.contains("ulimit -f unlimited"), "{errors}");
}

#[test]
fn programs_with_the_address_sanitizer_start_after_a_preloaded_library() {
    let folder = Folder::new();
    let ran = |given: Option<&str>| {
        let mut run = folder.run(&["--device", "model:0"], "echo \"$ASAN_OPTIONS\"");
        run.env_remove("ASAN_OPTIONS");
        run.envs(given.map(|given| ("ASAN_OPTIONS", given)));
        succeeded(&run.output().expect("ringside"))
    };
    assert_eq!(ran(None), "\n", "nothing is preloaded");
    // The linker says that an empty file is no library, and goes on.
    std::fs::write(folder.path().join("ringside-files.so"), "").expect("a library");
    assert_eq!(ran(None), "verify_asan_link_order=0\n");
    let added = "detect_leaks=0:verify_asan_link_order=0\n";
    assert_eq!(ran(Some("detect_leaks=0")), added);
    assert_eq!(
        ran(Some("verify_asan_link_order=1")),
        "verify_asan_link_order=1\n"
    );
}

#[test]
fn the_help_names_the_ports_of_a_model() {
    let help = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(["run", "--help"])
        .output();
    let help = succeeded(&help.expect("ringside"));
    assert!(help.contains("0 to 7"), "{help}");
}

/// They are on this command line, although the model is the process that fails.
#[test]
fn wires_and_captures_that_the_model_cannot_use_are_wrong_arguments() {
    let folder = Folder::new();
    for flags in [
        ["--wire", "udp:nosuchhost.invalid"],
        ["--pcap", "/proc/none.pcap"],
    ] {
        let output = end(folder.run(&flags, "true").spawn().expect("ringside"));
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("the model did not start: "), "{errors}");
    }
}
