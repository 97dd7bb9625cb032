//! The program: its environment, its start and its end.

use super::elf;
use super::loopback;
use super::options::Run;
use super::signals::PassedOn;
use crate::failure::Failure;
use crate::users::name_of;
use anyhow::{Context, anyhow};
use ringside_config::LogFormat;
use rustix::process::{Pid, kill_process};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// The time between two checks for the end of the program.
const LOOK: Duration = Duration::from_millis(10);

/// The error of a file that the kernel cannot execute. C: `ENOEXEC`.
const NO_FORMAT: i32 = rustix::io::Errno::NOEXEC.raw_os_error();

/// The libraries that a program finds before rdma-core's.
const VERBS: &str = "libibverbs.so.1";
const MANAGER: &str = "librdmacm.so.1";

/// The characters that the dynamic linker splits `LD_PRELOAD` and `LD_LIBRARY_PATH` at, or
/// expands. Source: ld.so(8).
const OF_THE_LINKER: &[u8] = b" :;$";

/// The options of a program that was built with `-fsanitize=address`. Source:
/// AddressSanitizerFlags.
const ASAN_OPTIONS: &str = "ASAN_OPTIONS";

/// The option that decides whether such a program starts if a library was loaded before its own.
const ASAN_LINK_ORDER: &str = "verify_asan_link_order";

/// The folder of the C libraries, as an absolute path: the program may change its folder.
pub(super) fn libraries(options: &Run) -> Result<PathBuf, Failure> {
    let beside = || {
        let own = std::env::current_exe().ok()?;
        let beside = own.parent()?.join("c-libraries");
        // as `capi/build --prefix` installs them
        let installed = own.parent()?.parent()?.join("lib/ringside");
        let is_there = |folder: &PathBuf| folder.join(VERBS).is_file();
        Some(
            Some(installed)
                .filter(|it| !is_there(&beside) && is_there(it))
                .unwrap_or(beside),
        )
    };
    let folder = options
        .libraries
        .clone()
        .or_else(beside)
        .unwrap_or_default();
    if folder.join(VERBS).is_file() {
        return Ok(std::path::absolute(folder).context("finding the folder of the libraries")?);
    }
    if folder.as_os_str().is_empty() {
        return Err(Failure::usage(anyhow!(
            "the place of this command is not known, which /proc tells: name the folder of \
             libibverbs.so.1 with --libraries"
        )));
    }
    Err(Failure::usage(anyhow!(
        "no libibverbs.so.1 in {}: build it with capi/build, or name its folder with --libraries",
        folder.display()
    )))
}

/// A path of the libraries that the dynamic linker takes whole: their own, or that of a symbolic
/// link in `folder`.
fn for_the_linker(libraries: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let is_whole = |path: &Path| {
        let bytes = path.as_os_str().as_encoded_bytes();
        !bytes.iter().any(|byte| OF_THE_LINKER.contains(byte))
    };
    if is_whole(libraries) {
        return Ok(libraries.to_owned());
    }
    // Programs with different libraries have different links.
    let link = folder.join(format!("libraries-{}", name_of(libraries)));
    if !is_whole(&link) {
        return Err(Failure::usage(anyhow!(
            "{}: the dynamic linker splits a path at a space, a colon, a semicolon or a $, and so \
             that of a link in {}: name the libraries with --libraries by a path without them, such \
             as a symbolic link",
            libraries.display(),
            folder.display()
        )));
    }
    let linked = match std::os::unix::fs::symlink(libraries, &link) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            match std::fs::read_link(&link).is_ok_and(|target| target == libraries) {
                true => Ok(()),
                false => Err(error),
            }
        }
        linked => linked,
    };
    linked.with_context(|| format!("linking {} to the libraries", link.display()))?;
    Ok(link)
}

/// The user's options, and one more: the preloaded library does not keep the program from starting.
/// A user's own choice stays.
fn for_the_sanitizer(given: Option<OsString>) -> OsString {
    let mut options = given.unwrap_or_default();
    let name = ASAN_LINK_ORDER.as_bytes();
    let mut parts = options.as_encoded_bytes().windows(name.len());
    if !parts.any(|part| part == name) {
        if !options.is_empty() {
            options.push(":");
        }
        options.push(format!("{ASAN_LINK_ORDER}=0"));
    }
    options
}

/// A program that the kernel does not know the format of, such as a script without a first line
/// `#!`: the shell runs it, as by execvp(3).
fn by_shell(command: &Command) -> std::io::Result<Command> {
    let file = elf::find(command.get_program());
    let file = file.ok_or(ErrorKind::NotFound)?;
    let mut shell = Command::new("/bin/sh");
    shell.arg(file).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Ok(shell)
}

/// Runs a program to its end; `each_look` is called meanwhile. The model must outlive it, and so
/// must this command.
pub(super) fn to_its_end(
    command: &mut Command,
    mut each_look: impl FnMut(),
) -> std::io::Result<ExitStatus> {
    let name = command.get_program();
    if let Some(reason) = elf::ignores_libraries(name) {
        eprintln!(
            "ringside: {} {reason}: it does not find ringside's libraries, and has no RDMA device by them",
            name.display()
        );
    }
    let mut signals = PassedOn::catch()?;
    let mut child = match command.spawn() {
        Err(error) if error.raw_os_error() == Some(NO_FORMAT) => by_shell(command)?.spawn()?,
        spawned => spawned?,
    };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for signal in signals.take() {
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process(pid, signal);
            }
        }
        each_look();
        std::thread::sleep(LOOK);
    }
}

/// The places that a program gets.
pub(super) struct Places<'a> {
    /// The user's folder for sockets and locks.
    pub(super) folder: &'a Path,
    /// The folder of the C libraries.
    pub(super) libraries: &'a Path,
    /// The program's folder for the files of the kernel.
    pub(super) files: &'a Path,
    /// The addresses of the model's ports; nothing if the kernel's sockets are left alone.
    pub(super) loopback: Option<String>,
}

/// The program of the command line, to run on `device`.
pub(super) fn program(
    options: &Run,
    config: Option<&Path>,
    device: impl AsRef<OsStr>,
    places: &Places<'_>,
) -> Result<Command, Failure> {
    let (name, arguments) = options
        .program
        .split_first()
        .ok_or_else(|| Failure::usage(anyhow!("no program is named")))?;
    let before_others = |variable: &str, first: &Path| {
        let mut list = first.as_os_str().to_owned();
        // An empty entry would be the program's current folder.
        if let Some(others) = std::env::var_os(variable).filter(|others| !others.is_empty()) {
            list.push(":");
            list.push(others);
        }
        list
    };
    let libraries = for_the_linker(places.libraries, places.folder)?;
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env(
            "LD_LIBRARY_PATH",
            before_others("LD_LIBRARY_PATH", &libraries),
        )
        .env("RINGSIDE_DEVICE", device)
        .env(LogFormat::VARIABLE, crate::log::format().word());
    if let Some(config) = config {
        // The program may change its folder before it opens the device.
        let config = std::path::absolute(config).map_err(Failure::operation)?;
        command.env("RINGSIDE_CONFIG", config);
    }
    if options.share_memory {
        command.env("RINGSIDE_SHARE_MEMORY", "1");
    }
    // A program that this one was started by may have another port.
    command.env_remove(loopback::VARIABLE);
    if let Some(addresses) = &places.loopback {
        command.env(loopback::VARIABLE, addresses);
    }
    // Answers for the files that programs read under /sys/class/infiniband, and for sockets.
    let answers = libraries.join("ringside-files.so");
    let has_answers = answers.is_file();
    let mut preloaded: Vec<PathBuf> = has_answers.then_some(answers).into_iter().collect();
    // A program that looks into folders of its own first would find rdma-core's libraries there.
    if elf::has_folders_of_its_own(name) {
        preloaded.extend([VERBS, MANAGER].map(|name| libraries.join(name)));
    }
    if !preloaded.is_empty() {
        let list: Vec<&OsStr> = preloaded.iter().map(|path| path.as_os_str()).collect();
        let list = list.join(OsStr::new(":"));
        command
            .env("LD_PRELOAD", before_others("LD_PRELOAD", Path::new(&list)))
            .env(
                ASAN_OPTIONS,
                for_the_sanitizer(std::env::var_os(ASAN_OPTIONS)),
            );
    }
    if has_answers {
        command.env("RINGSIDE_FILES", places.files);
    }
    Ok(command)
}
