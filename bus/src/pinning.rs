//! Pinning a thread to a core.
//!
//! Replaces `core_affinity`, which aborts on ids of 1024 and more, hides isolated cores, and can
//! leave the set that `taskset` allowed.

/// A thread could not be pinned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The core does not exist, is offline, or is outside the set that this process may use.
    #[error(
        "core {core} cannot be used: this process may run on cores {allowed}; choose one of those, or widen the set with taskset or the container's cpuset"
    )]
    NotAllowed {
        /// The requested core.
        core: usize,
        /// The cores that the process may use, as ranges.
        allowed: String,
    },
    /// The cores that this process may use are not known.
    #[error(
        "core {core}: the cores that this process may use are in /proc/self/status, which cannot be read: {error}; {remedy}"
    )]
    Unknown {
        /// The requested core.
        core: usize,
        /// The operating system's message.
        error: String,
        /// The way out.
        remedy: &'static str,
    },
    /// The operating system refused.
    #[error("pinning to core {core} failed although it is allowed; check the cgroup's cpuset")]
    Refused {
        /// The requested core.
        core: usize,
    },
}

/// The cores that this process may use: the affinity of its main thread as the kernel reports it,
/// so that pinned threads and isolated cores do not change the answer. Empty if they cannot be
/// read.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    read_allowed_cores().unwrap_or_default()
}

/// The same of another process. Empty if it is not to be seen here.
#[must_use]
pub fn allowed_cores_of(process: u32) -> Vec<usize> {
    read_cores(&process.to_string()).unwrap_or_default()
}

fn read_allowed_cores() -> std::io::Result<Vec<usize>> {
    read_cores("self")
}

fn read_cores(process: &str) -> std::io::Result<Vec<usize>> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(list.map(|list| parse_list(list.trim())).unwrap_or_default())
}

/// A core whose right to be used is not known, and why.
fn unknown(core: usize, error: &std::io::Error) -> PinError {
    PinError::Unknown {
        core,
        remedy: match error.raw_os_error() {
            Some(libc::EMFILE) => "raise the limit of open files with `ulimit -n`",
            _ => "mount /proc",
        },
        error: error.to_string(),
    }
}

/// Parses the kernel's list form, such as `0-3,8`.
fn parse_list(text: &str) -> Vec<usize> {
    let mut cores = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cores.extend(first..=last.min(first + 8192));
        }
    }
    cores
}

fn list_text(cores: &[usize]) -> String {
    let mut text = String::new();
    let mut index = 0;
    while let Some(&first) = cores.get(index) {
        let run = cores[index..]
            .iter()
            .zip(first..)
            .take_while(|(core, want)| *core == want)
            .count();
        let comma = if text.is_empty() { "" } else { "," };
        match run {
            1 => text += &format!("{comma}{first}"),
            _ => text += &format!("{comma}{first}-{}", first + run - 1),
        }
        index += run;
    }
    if text.is_empty() {
        "(none known)".into()
    } else {
        text
    }
}

/// Pins the calling thread to `core`.
pub fn pin_to(core: usize) -> Result<(), PinError> {
    let allowed = read_allowed_cores().map_err(|error| unknown(core, &error))?;
    if core >= 1024 || !allowed.contains(&core) {
        return Err(PinError::NotAllowed {
            core,
            allowed: list_text(&allowed),
        });
    }
    let pinned = core_affinity::set_for_current(core_affinity::CoreId { id: core });
    if pinned {
        Ok(())
    } else {
        Err(PinError::Refused { core })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_parsing_and_printing() {
        for text in ["0", "0-3", "0-1,4,6-7"] {
            assert_eq!(list_text(&parse_list(text)), text);
        }
        assert_eq!(parse_list("x,1-y,3"), [3]);
    }

    #[test]
    fn a_core_that_is_not_there_is_an_error_that_names_those_that_are() {
        for core in [1023, 1024, usize::MAX] {
            let error = pin_to(core).unwrap_err();
            assert!(
                error.to_string().contains(&list_text(&allowed_cores())),
                "{error}"
            );
        }
    }

    #[test]
    fn cores_that_cannot_be_read_are_not_said_to_be_refused() {
        for (errno, remedy) in [(libc::EMFILE, "ulimit -n"), (libc::ENOENT, "mount /proc")] {
            let error = std::io::Error::from_raw_os_error(errno);
            let text = unknown(1, &error).to_string();
            assert!(
                text.contains(&error.to_string()) && text.contains(remedy),
                "{text}"
            );
        }
    }

    #[test]
    fn pinning_one_thread_leaves_the_cores_of_the_process() {
        let before = allowed_cores();
        let core = before[0];
        std::thread::spawn(move || pin_to(core))
            .join()
            .unwrap()
            .unwrap();
        assert_eq!(allowed_cores(), before);
    }
}
