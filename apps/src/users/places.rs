//! Paths in the folder of `ringside run`, and the places of peers.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// The places of peers of a model's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// The same model.
    OnModel,
    /// The same model, and others at the far ends of its wires.
    BehindWires,
}

impl Peers {
    /// Those of a model with `wires`.
    pub(crate) const fn of<T>(wires: &[T]) -> Self {
        match wires {
            [] => Self::OnModel,
            _ => Self::BehindWires,
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

/// The socket of a port of the model.
pub(crate) fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("{port}.sock"))
}

/// True if the folder names this process as its model.
pub(crate) fn is_own_model(folder: &Path) -> bool {
    let pid = std::fs::read_to_string(pid_file(folder)).unwrap_or_default();
    pid == std::process::id().to_string()
}

/// The error of a file of the folder that cannot be made, with the remedy.
pub(crate) fn not_made(what: &str, error: Error) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            ": name a folder that you may write to with XDG_RUNTIME_DIR"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ": free some room there, or name a folder elsewhere with XDG_RUNTIME_DIR"
        }
        _ => "",
    };
    anyhow::Error::new(error).context(format!("{what}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_takes_no_files_has_the_remedy_in_the_error() {
        let text = |errno| {
            let error = not_made("opening x", Error::from_raw_os_error(errno));
            format!("{error:#}")
        };
        for errno in [13, 28, 30, 122] {
            assert!(text(errno).contains("XDG_RUNTIME_DIR: "), "{}", text(errno));
        }
        assert_eq!(text(24), "opening x: Too many open files (os error 24)");
    }
}
