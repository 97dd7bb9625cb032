//! Binding the interrupts of a function to cores.
//!
//! The kernel lists the interrupts of vfio-pci under a name for each vector and function. Source:
//! Linux, `drivers/vfio/pci/vfio_pci_intrs.c`; `Documentation/core-api/irq/irq-affinity.rst`.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// An interrupt was not bound.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// The kernel does not list the vector: it is not connected, or /proc belongs to another
    /// kernel.
    #[error(
        "vector {vector} of {address} is not in {path}: connect it first; in a container, mount the host's /proc"
    )]
    NotListed {
        /// The vector.
        vector: u16,
        /// The function.
        address: String,
        /// The list.
        path: PathBuf,
    },
    /// This process may not change it.
    #[error(
        "interrupt {number} (vector {vector} of {address}) is not bound to core {core}: {path} cannot be written ({error}); as root: echo {core} > {path}"
    )]
    NotAllowed {
        /// The kernel's number of the interrupt.
        number: u32,
        /// The vector.
        vector: u16,
        /// The function.
        address: String,
        /// The core.
        core: u32,
        /// The file that names the cores.
        path: PathBuf,
        /// The error of the kernel.
        error: Error,
    },
    /// The kernel refused the core, or the file cannot be read.
    #[error(
        "interrupts of {address} are not bound: {path}: {error}; check that core {core} is online (lscpu)"
    )]
    Refused {
        /// The function.
        address: String,
        /// The core.
        core: u32,
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        error: Error,
    },
}

/// The interrupts of the machine, below a root that a test can replace.
#[derive(Clone, Debug)]
pub struct InterruptTable {
    root: PathBuf,
}

impl Default for InterruptTable {
    fn default() -> Self {
        Self::below(Path::new("/proc"))
    }
}

impl InterruptTable {
    /// The table in another place than `/proc`.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        let root = root.to_owned();
        Self { root }
    }

    /// Binds the interrupt of a vector of the function at `address` (`0000:3b:00.0`) to a core.
    /// Returns the kernel's number of the interrupt. A daemon that spreads interrupts may move it
    /// later.
    ///
    /// # Errors
    /// One variant for each remedy.
    pub fn bind(&self, address: &str, vector: u16, core: u32) -> Result<u32, AffinityError> {
        let list = self.root.join("interrupts");
        let refused = |path: &Path, error| AffinityError::Refused {
            address: address.to_owned(),
            core,
            path: path.to_owned(),
            error,
        };
        let text = std::fs::read_to_string(&list).map_err(|error| refused(&list, error))?;
        let number = number_of(&text, address, vector).ok_or_else(|| AffinityError::NotListed {
            vector,
            address: address.to_owned(),
            path: list,
        })?;
        let path = self.root.join(format!("irq/{number}/smp_affinity_list"));
        let written = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, core.to_string().as_bytes()));
        match written {
            Ok(()) => Ok(number),
            Err(error) if is_forbidden(&error) => Err(AffinityError::NotAllowed {
                number,
                vector,
                address: address.to_owned(),
                core,
                path,
                error,
            }),
            Err(error) => Err(refused(&path, error)),
        }
    }
}

fn is_forbidden(error: &Error) -> bool {
    let kind = error.kind();
    kind == ErrorKind::PermissionDenied || kind == ErrorKind::ReadOnlyFilesystem
}

/// The kernel's number of an interrupt, from the text of `/proc/interrupts`. A line ends with the
/// names of those that share it, separated by commas.
fn number_of(text: &str, address: &str, vector: u16) -> Option<u32> {
    let name = format!("vfio-msix[{vector}]({address})");
    let line = text
        .lines()
        .find(|line| line.split([' ', ',', '\t']).any(|word| word == name))?;
    let (number, _) = line.split_once(':')?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests;
