//! Files that a command writes: where they may be, and the wait for the reader of a FIFO.

use crate::failure::{Failure, INTERRUPTED};
use crate::patience::{seen, wait_for_room};
use anyhow::anyhow;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two attempts to open a FIFO.
const LOOK: Duration = Duration::from_millis(20);

/// Device and inode of a file.
type Inode = (u64, u64);

/// The process was to end before a FIFO had a reader.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: no process reads this FIFO yet")]
pub(crate) struct NoReader;

/// An open file. Its writes end a while after a signal if the reader of a pipe does not read.
#[derive(Debug)]
pub(crate) struct OutFile(File);

impl OutFile {
    /// Creates a file, or truncates it. Waits for the reader of a FIFO. Errors: [`NoReader`] after
    /// a signal.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Self::create_unless(path, seen)
    }

    /// The same; waits until `is_over`.
    pub(crate) fn create_unless(
        path: &Path,
        mut is_over: impl FnMut() -> bool,
    ) -> io::Result<Self> {
        if !is_pipe_or_device(std::fs::metadata(path)) {
            return File::create(path).map(Self);
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        loop {
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(file) => return Ok(Self(file.into())),
                Err(Errno::NXIO) if is_fifo(path) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if is_over() {
                return Err(io::Error::new(ErrorKind::TimedOut, NoReader));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A file that a command writes once it has all that it needs: until then a file that exists keeps
/// its content.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// a FIFO with its reader, or a device: they have no content to lose
    Open(OutFile),
    Later(PathBuf),
}

impl Prepared {
    /// Checks that a file can be written, and waits for the reader of a FIFO until `is_over`.
    pub(crate) fn new(path: &Path, is_over: impl FnMut() -> bool) -> io::Result<Self> {
        if is_pipe_or_device(std::fs::metadata(path)) {
            return OutFile::create_unless(path, is_over).map(Self::Open);
        }
        check_writable(path)?;
        Ok(Self::Later(path.to_owned()))
    }

    /// Creates the file, or truncates it. Does not wait.
    pub(crate) fn begin(self) -> io::Result<OutFile> {
        match self {
            Self::Open(file) => Ok(file),
            Self::Later(path) => File::create(path).map(OutFile),
        }
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_room(&self.0)?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_fifo(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

fn is_pipe_or_device(found: io::Result<Metadata>) -> bool {
    let kind = found.map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device())
}

/// The failure of opening a file, if the process was to end before it had a reader.
pub(crate) fn no_reader(path: &Path, error: &io::Error) -> Option<Failure> {
    let inner = error.get_ref()?.downcast_ref::<NoReader>()?;
    let error = anyhow!("{}: {inner}", path.display());
    Some(Failure::with_code(INTERRUPTED, error))
}

/// The failure of making or writing a file.
pub(crate) fn not_written(what: &str, path: &Path, error: io::Error) -> Failure {
    no_reader(path, &error).unwrap_or_else(|| {
        let text = format!("writing {what} to {}", path.display());
        Failure::operation(anyhow::Error::new(error).context(text))
    })
}

/// Refuses "-" for a file of a command whose standard output has other text.
pub(crate) fn check_no_output(flag: &str, path: Option<&Path>) -> Result<(), Failure> {
    match path {
        Some(path) if path == Path::new("-") => Err(Failure::usage(anyhow!(
            "{flag} -: standard output has other text, so name a file; one of that name is ./-"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a path that two flags name: the later file would replace the earlier one. Several flags
/// may name a device, such as /dev/null.
pub(crate) fn check_distinct<'p>(
    paths: impl IntoIterator<Item = (&'static str, &'p Path)>,
) -> Result<(), Failure> {
    let mut earlier: Vec<(&str, PathBuf, Option<Inode>)> = Vec::new();
    for (flag, path) in paths {
        let file = std::fs::metadata(path).ok();
        let kind = file.as_ref().map(Metadata::file_type);
        if kind.is_some_and(|kind| kind.is_char_device()) {
            continue;
        }
        let whole = place(path)
            .map_err(|error| Failure::usage(anyhow!("{flag} {}: {error}", path.display())))?;
        let file = file.map(|found| (found.dev(), found.ino()));
        let same = earlier
            .iter()
            .find(|(_, known, of)| *known == whole || (file.is_some() && *of == file));
        if let Some((other, ..)) = same {
            return Err(Failure::usage(anyhow!(
                "{other} and {flag} name the same path {}: give each its own",
                path.display()
            )));
        }
        earlier.push((flag, whole, file));
    }
    Ok(())
}

/// Links that are followed from one path, as by Linux.
const MAX_LINKS: usize = 40;

/// The file that a path names, also before it exists: links are followed, and the folder has its
/// own name.
fn place(path: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(path)?;
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&path) else {
            break;
        };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    Ok(match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    })
}

/// Finds out before a long run that a file could not be written after it. Leaves nothing behind,
/// and does not wait for the reader of a FIFO.
pub(crate) fn check_writable(path: &Path) -> io::Result<()> {
    let found = std::fs::metadata(path);
    if is_fifo(path) {
        return Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?);
    }
    if found.is_ok() {
        return File::options().write(true).open(path).map(drop);
    }
    match File::options().write(true).create_new(true).open(path) {
        Ok(_) => std::fs::remove_file(path),
        // A symbolic link to a file that is not there yet.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_whether_files_can_be_written_changes_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        check_writable(&path("new")).unwrap();
        assert!(!path("new").exists(), "it is left");
        std::fs::write(path("old"), "text").unwrap();
        let before = std::fs::metadata(path("old")).unwrap().modified().unwrap();
        check_writable(&path("old")).unwrap();
        assert_eq!(std::fs::read_to_string(path("old")).unwrap(), "text");
        let after = std::fs::metadata(path("old")).unwrap().modified().unwrap();
        assert_eq!(before, after);
        check_writable(Path::new("/dev/full")).unwrap();
        check_writable(&path("missing/file")).unwrap_err();
        check_writable(folder.path()).unwrap_err();
    }

    #[test]
    fn an_old_file_keeps_its_content_until_its_successor_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        std::fs::write(&path, "old").unwrap();
        let prepared = Prepared::new(&path, || false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        prepared.begin().unwrap().write_all(b"n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "n");
        Prepared::new(&folder.path().join("missing/file"), || false).unwrap_err();
    }

    #[test]
    fn one_file_by_two_names_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&file, "").unwrap();
        check_distinct([("--x", &*file), ("--y", &link)]).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let refused = check_distinct([("--x", &*file), ("--y", &link)]).unwrap_err();
        assert!(refused.is_usage());
        // Files that do not exist yet.
        let (new, to_new) = (folder.path().join("new"), folder.path().join("c"));
        std::os::unix::fs::symlink("new", &to_new).unwrap();
        let name = folder.path().file_name().unwrap();
        let detour = folder.path().join("..").join(name).join("new");
        for other in [to_new, detour] {
            check_distinct([("--x", &*new), ("--y", &*other)]).unwrap_err();
        }
        let null = Path::new("/dev/null");
        check_distinct([("--x", null), ("--y", null)]).unwrap();
        // Files below /dev are files.
        let shared = Path::new("/dev/shm/ringside-test-of-one-file-by-two-names");
        check_distinct([("--x", shared), ("--y", shared)]).unwrap_err();
    }
}
