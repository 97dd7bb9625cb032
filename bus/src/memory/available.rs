//! The memory that this process can still have: of the machine, and of its control groups.
//!
//! A container's limit is that of a control group. `/proc/meminfo` shows the machine's memory in a
//! container as well, and a process that populates more than its group may have is killed.
//!
//! Everything is read below a root that a test can replace. A file that is missing, such as the
//! limit of the root group, limits nothing.
//!
//! Source: Linux `Documentation/admin-guide/cgroup-v2.rst`, memory interface files;
//! `Documentation/admin-guide/cgroup-v1/memory.rst`, sections 4 and 5.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The files of a version of control groups.
struct Version {
    /// the mounted hierarchy, below the root
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// the line of `memory.stat` with the page cache that is dropped first
    cache: &'static str,
}

const FIRST: Version = Version {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};

const SECOND: Version = Version {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    cache: "inactive_file",
};

/// Bytes that this process can allocate without swapping. None if the kernel does not tell.
pub(super) fn available_bytes(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(|line| of_group(root, line));
    let least = of_machine(root).into_iter().chain(of_groups).min();
    least.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn of_machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// Bytes that are left of the least limit of a group and its parents; `line` is one of
/// `/proc/self/cgroup`.
fn of_group(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let version = match controllers {
        "" => SECOND,
        some if some.split(',').any(|name| name == "memory") => FIRST,
        _ => return None,
    };
    // A group outside of the process's namespace: its files are not here.
    let steps = Path::new(path).components();
    let inside: PathBuf = steps
        .take_while(|step| *step != Component::ParentDir)
        .collect();
    let inside = inside.strip_prefix("/").unwrap_or(&inside);
    let mount = root.join(version.mount);
    let groups = inside.ancestors().map(|group| mount.join(group));
    groups.filter_map(|group| left(&group, &version)).min()
}

/// Bytes that are left of the limit of one group, if it has one.
fn left(group: &Path, version: &Version) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // Without a limit the second version says "max".
    let limit = number(version.limit)?;
    let used = number(version.usage)?;
    let stat = read("memory.stat").unwrap_or_default();
    let cache = stat.lines().find_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        (name == version.cache).then(|| bytes.trim().parse::<u64>().ok())?
    });
    Some(limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0))))
}

#[cfg(test)]
mod tests;
