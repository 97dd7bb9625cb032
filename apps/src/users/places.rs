//! Paths in the folder of `ringside run`, and the places of peers.

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
