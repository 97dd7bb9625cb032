//! The folder of `ringside run`: sockets of a model, and locks that tell who uses it.
//!
//! `turn` is held while a program starts or ends the model. Each program shares `users`, and has
//! `N.lock` of its port for itself, from its start to its end: the program inherits both, so they
//! last as long as it does, also if its `ringside run` is killed. The model ends itself once it
//! gets `users` alone, and has `model.lock` until its process has ended: another container that
//! shares the folder may not see the process.

use crate::failure::Failure;
use crate::farewell;
use anyhow::{Context, anyhow};
use ringside_bus::DeviceAddress;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// All rights of a folder for its owner, and no others.
const OWNER: u32 = 0o700;
/// Between two looks for a remark of the model.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// The user's folder for sockets and locks.
pub(crate) fn folder() -> Result<PathBuf, Failure> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    let user = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Source: XDG Base Directory Specification: a path that is empty or relative is as good as
    // none.
    let folder = match runtime.filter(|runtime| runtime.is_absolute()) {
        Some(runtime) => runtime.join("ringside"),
        None => PathBuf::from(format!("/tmp/ringside-{user}")),
    };
    if folder.to_str().is_none() {
        return Err(Failure::usage(anyhow!(
            "XDG_RUNTIME_DIR={}: programs name the device by a path in this folder, as text: name a \
             folder in UTF-8",
            folder.display()
        )));
    }
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(OWNER)
        .create(&folder);
    made.with_context(|| {
        let folder = folder.display();
        format!("making {folder}: name a folder that you may write to with XDG_RUNTIME_DIR")
    })?;
    let found = std::fs::symlink_metadata(&folder).context("looking at the folder of sockets")?;
    let wrong = match (found.is_symlink(), found.uid() == user) {
        (true, _) => "is a symbolic link, which could lead to another user's folder",
        (false, false) => "belongs to another user",
        (false, true) => {
            // A umask, now or at an earlier start, has no say in the owner's rights.
            if found.mode() & OWNER != OWNER {
                let rights = std::fs::Permissions::from_mode(OWNER);
                let set = std::fs::set_permissions(&folder, rights);
                set.with_context(|| format!("setting the rights of {}", folder.display()))?;
            }
            return Ok(folder);
        }
    };
    Err(Failure::operation(anyhow!(
        "{} {wrong}: remove it, or name another folder with XDG_RUNTIME_DIR",
        folder.display()
    )))
}

/// The places of peers of a model's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// The same model.
    OnModel,
    /// The same model, and others at the far ends of its wires.
    BehindWires,
}

/// A function of the model that this program has.
pub(crate) struct Port {
    pub(crate) number: u16,
    /// shared with all programs
    users: File,
    own: File,
}

/// The outcome of taking a port.
pub(crate) enum Taken {
    /// It is this program's.
    Port(Port),
    /// None is free, and of one the model still tells the peers of its former program.
    Leaving,
    /// All have programs.
    None,
}

impl Port {
    /// Takes the first port of `numbers` that is free.
    pub(crate) fn take(folder: &Path, numbers: Range<u16>) -> Result<Taken, Failure> {
        let users = locked(&folder.join("users"), FlockOperation::LockShared)?;
        let mut taken = Taken::None;
        for number in numbers {
            let mark = leaving_mark(folder, number);
            // Looked for before the lock is tried: the model releases the lock first.
            let is_leaving = mark.exists();
            if let Some(own) = alone_at(folder, number) {
                // Of a model that was killed.
                let _ = std::fs::remove_file(mark);
                return Ok(Taken::Port(Self { number, users, own }));
            }
            if is_leaving {
                taken = Taken::Leaving;
            }
        }
        Ok(taken)
    }

    /// Lets programs that are started from now on hold the port.
    pub(crate) fn inherit(&self) -> Result<(), Failure> {
        for lock in [&self.users, &self.own] {
            fcntl_setfd(lock, FdFlags::empty()).context("sharing a lock with the program")?;
        }
        Ok(())
    }

    /// Releases the port; the lock `turn` is held. True if no program uses the model.
    pub(crate) fn leave(self, folder: &Path, peers: Peers) -> bool {
        drop((self.users, self.own));
        let alone = model_alone(folder);
        remove_files(folder, alone.is_none() || peers == Peers::BehindWires);
        alone.is_some()
    }
}

/// The files of the kernel for the programs of one device that is not this command's model. Each
/// program shares their lock, from its start to its end, as it shares `users` of a model.
pub(crate) struct DeviceFiles {
    lock_path: PathBuf,
    path: PathBuf,
    lock: File,
}

/// A short name for a path, without separators. Different paths have different ones.
pub(crate) fn name_of(path: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl DeviceFiles {
    /// Shares the files of `device`, and lets programs that are started from now on hold them.
    /// Those that a killed command has left are removed.
    pub(crate) fn share(folder: &Path, device: &DeviceAddress) -> Result<Self, Failure> {
        let name = match device {
            DeviceAddress::VfioUser(path) => format!("device-vfio-user-{}", name_of(path)),
            other => format!("device-{}", other.to_string().replace(':', "_")),
        };
        let lock_path = folder.join(format!("{name}.lock"));
        let path = folder.join(format!("{name}.files"));
        remove_if_unused(&lock_path, &path);
        let lock = locked(&lock_path, FlockOperation::LockShared)?;
        fcntl_setfd(&lock, FdFlags::empty()).context("sharing a lock with the program")?;
        Ok(Self {
            lock_path,
            path,
            lock,
        })
    }

    /// The folder of the files.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the files unless another program of the device has them, or the next one is to send
    /// messages in them to the peers of a killed one.
    pub(crate) fn leave(self) {
        drop(self.lock);
        remove_if_unused(&self.lock_path, &self.path);
    }
}

fn remove_if_unused(lock: &Path, files: &Path) {
    if let Ok(_alone) = locked(lock, FlockOperation::NonBlockingLockExclusive)
        && !farewell::is_left(files)
    {
        let _ = std::fs::remove_dir_all(files);
    }
}

/// Notes the failure of a model, for the command that ends it.
pub(crate) fn note_failure(folder: &Path, code: u8, text: &str) {
    let path = failure_file(folder);
    if let Err(error) = std::fs::write(&path, format!("{code} {text}")) {
        eprintln!("ringside: {}: {error}", path.display());
    }
}

/// Takes the failure of the model that has ended: its exit code and its message.
pub(crate) fn take_failure(folder: &Path) -> Option<(u8, String)> {
    let path = failure_file(folder);
    let noted = std::fs::read_to_string(&path).ok()?;
    let _ = std::fs::remove_file(&path);
    let (code, text) = noted.split_once(' ')?;
    Some((code.parse().ok()?, text.to_owned()))
}

fn failure_file(folder: &Path) -> PathBuf {
    folder.join("model.failure")
}

/// Notes what users of a model's programs have to know, once.
pub(crate) fn note_remark(folder: &Path, text: &str) {
    let path = remark_file(folder);
    if path.exists() {
        return;
    }
    // Whole, or not at all: commands look for it.
    let begun = path.with_extension("new");
    let written = std::fs::write(&begun, text).and_then(|()| std::fs::rename(begun, &path));
    if let Err(error) = written {
        eprintln!("ringside: {}: {error}", path.display());
    }
}

/// Removes the remark of an earlier model.
pub(crate) fn forget_remark(folder: &Path) {
    let _ = std::fs::remove_file(remark_file(folder));
}

fn remark_file(folder: &Path) -> PathBuf {
    folder.join("model.remark")
}

/// Shows the remark of a model that comes while a program runs: an earlier one was shown to others,
/// and its cause may be gone.
pub(crate) struct Remark<'a> {
    folder: &'a Path,
    next_look: Instant,
    is_shown: bool,
}

impl<'a> Remark<'a> {
    pub(crate) fn new(folder: &'a Path) -> Self {
        Self {
            folder,
            next_look: Instant::now(),
            is_shown: remark_file(folder).exists(),
        }
    }

    /// Shows it if it has come, a few times a second.
    pub(crate) fn look(&mut self) {
        if Instant::now() >= self.next_look {
            self.next_look = Instant::now() + BETWEEN_LOOKS;
            self.show();
        }
    }

    /// Shows it if it has come, once.
    pub(crate) fn show(&mut self) {
        if self.is_shown {
            return;
        }
        if let Ok(text) = std::fs::read_to_string(remark_file(self.folder)) {
            eprintln!("ringside: {text}");
            self.is_shown = true;
        }
    }
}

/// The files of the kernel for the program of a port.
pub(crate) fn files(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("{port}.files"))
}

/// The file with the number of the model's process.
pub(crate) fn pid_file(folder: &Path) -> PathBuf {
    folder.join("model.pid")
}

fn model_lock(folder: &Path) -> PathBuf {
    folder.join("model.lock")
}

/// True if the process of the model has ended. It can be in another container.
pub(crate) fn has_model_ended(folder: &Path) -> bool {
    locked(
        &model_lock(folder),
        FlockOperation::NonBlockingLockExclusive,
    )
    .is_ok()
}

/// The right to start or end the model, waiting if need be.
pub(crate) fn turn(folder: &Path) -> Result<File, Failure> {
    locked(&folder.join("turn"), FlockOperation::LockExclusive)
}

/// The lock of all programs, if none has it.
pub(crate) fn model_alone(folder: &Path) -> Option<File> {
    let path = folder.join("users");
    locked(&path, FlockOperation::NonBlockingLockExclusive).ok()
}

fn alone_at(folder: &Path, port: u16) -> Option<File> {
    let path = folder.join(format!("{port}.lock"));
    locked(&path, FlockOperation::NonBlockingLockExclusive).ok()
}

/// Ports that have files and no program, with their locks. Those of a program that has begun
/// meanwhile are not among them.
fn ended(folder: &Path) -> Vec<(u16, File)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ports = entries.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_suffix(".files")?.parse().ok()
    });
    ports
        .filter_map(|port| Some((port, alone_at(folder, port)?)))
        .collect()
}

/// Removes the files of ports that have no program. Those with messages for peers stay while there
/// may be peers: the model sends them. What is left is removed the next time.
pub(crate) fn remove_files(folder: &Path, may_have_peers: bool) {
    for (port, _lock) in ended(folder) {
        let files = files(folder, port);
        if !may_have_peers || !farewell::is_left(&files) {
            let _ = std::fs::remove_dir_all(files);
        }
    }
}

/// Tells the peers of programs that were killed together with their `ringside run`. Threads do
/// that, as the model has to answer meanwhile; a program that wants the port waits.
pub(crate) fn say_farewells(folder: &Path) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    for (port, lock) in ended(folder) {
        let (files, socket) = (files(folder, port), socket(folder, port));
        if !farewell::is_left(&files) {
            continue;
        }
        let mark = leaving_mark(folder, port);
        let made = std::fs::write(&mark, "");
        let thread = std::thread::Builder::new().name("farewell".to_owned());
        let started = thread.spawn(move || {
            farewell::say(&files, &socket, None);
            let _ = std::fs::remove_dir_all(&files);
            drop(lock);
            let _ = std::fs::remove_file(mark);
        });
        if let Err(error) = made {
            eprintln!("ringside: no mark that the peers of port {port} are told: {error}");
        }
        match started {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                eprintln!("ringside: no thread to tell the peers of port {port}: {error}");
            }
        }
    }
    threads
}

/// True while a process tells the peers of a killed program.
pub(crate) fn is_telling(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut marks = entries.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_suffix(".leaving")?.parse().ok()
    });
    // The mark of a process that was killed stays, its lock does not.
    marks.any(|port| alone_at(folder, port).is_none())
}

/// A file that is there while the model has the lock of a port.
fn leaving_mark(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("{port}.leaving"))
}

/// The socket of a port of the model.
pub(crate) fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("{port}.sock"))
}

/// A lock file, opened and locked, waiting if need be.
fn locked(path: &Path, how: FlockOperation) -> Result<File, Failure> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    flock(&file, how).with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// True if the folder names this process as its model.
pub(crate) fn is_own_model(folder: &Path) -> bool {
    let pid = std::fs::read_to_string(pid_file(folder)).unwrap_or_default();
    pid == std::process::id().to_string()
}

/// The model's view of the folder.
pub(crate) struct Watch {
    folder: PathBuf,
    peers: Peers,
    /// threads that tell the peers of killed programs
    telling: Vec<JoinHandle<()>>,
    /// held until the process has ended, for commands that wait for that
    _own: File,
    /// held from the decision to end until the process has ended, so that the next model waits
    last: Vec<File>,
}

impl Watch {
    /// Errors: an earlier model has not ended.
    pub(crate) fn new(folder: PathBuf, peers: Peers) -> Result<Self, Failure> {
        let own = locked(
            &model_lock(&folder),
            FlockOperation::NonBlockingLockExclusive,
        )?;
        Ok(Self {
            folder,
            peers,
            telling: Vec::new(),
            _own: own,
            last: Vec::new(),
        })
    }

    /// Tells the peers of programs that were killed, and removes their files. True once this model
    /// has no program and those peers are told, or is not the one that programs of the folder use.
    pub(crate) fn is_over(&mut self) -> bool {
        let path = self.folder.join("turn");
        let Ok(turn) = locked(&path, FlockOperation::NonBlockingLockExclusive) else {
            return false; // a program starts or ends: the next time
        };
        let is_named = is_own_model(&self.folder);
        let users = model_alone(&self.folder);
        let may_have_peers = users.is_none() || self.peers == Peers::BehindWires;
        remove_files(&self.folder, may_have_peers);
        if may_have_peers && is_named {
            self.telling.extend(say_farewells(&self.folder));
        }
        self.telling.retain(|thread| !thread.is_finished());
        if is_named && (users.is_none() || !self.telling.is_empty()) {
            return false;
        }
        if is_named {
            let _ = std::fs::remove_file(pid_file(&self.folder));
        }
        self.last = users.into_iter().chain([turn]).collect();
        true
    }
}
