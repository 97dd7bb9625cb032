//! The folder of `ringside run` for programs that use no verbs. Every wait has a deadline.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The longest wait for a process to begin or end; the model looks once a second.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder of sockets, and of a library without content. A model that a failed test left there is
/// ended.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("libibverbs.so.1"), "").expect("a library");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join("ringside").join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.at("model.pid")).unwrap_or_default();
        if pid.trim().parse::<u32>().is_ok() {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < LIMIT, "{what}: not in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
