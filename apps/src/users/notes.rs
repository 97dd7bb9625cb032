//! Notes of the model for the commands that use it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks for a remark of the model.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_a_model_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(take_failure(folder.path()), None);
        note_failure(folder.path(), 3, "the capture is not whole");
        let told = take_failure(folder.path());
        assert_eq!(told, Some((3, "the capture is not whole".to_owned())));
        assert_eq!(take_failure(folder.path()), None);
    }

    #[test]
    fn a_remark_is_shown_to_programs_that_run_when_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let mut running = Remark::new(folder.path());
        running.show();
        assert!(!running.is_shown);
        note_remark(folder.path(), "the far end has an address of this model");
        running.show();
        assert!(running.is_shown);
        assert!(Remark::new(folder.path()).is_shown, "others were shown it");
        forget_remark(folder.path());
        assert!(!Remark::new(folder.path()).is_shown);
    }
}
