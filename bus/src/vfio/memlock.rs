//! The memory that this process may lock. DMA mappings count against it.

use std::path::Path;

/// The limit of locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memlock {
    /// Bytes; `None` is no limit.
    pub soft: Option<u64>,
    /// The value to which the soft limit may be raised.
    pub hard: Option<u64>,
}

impl Memlock {
    /// The limit of this process.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        Self::read(Path::new("/proc/self/limits"))
    }

    /// Reads the limit from a file in the format of `/proc/PID/limits`.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Max locked memory"))?;
        let mut words = line.split_whitespace();
        let mut limit = || match words.next()? {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(Self {
            soft: limit()?,
            hard: limit()?,
        })
    }

    /// The remedy that permits `bytes` to be locked.
    #[must_use]
    pub fn remedy(bytes: u64) -> String {
        let kib = bytes.div_ceil(1024);
        format!(
            "raise the limit to {kib} KiB at least, or to unlimited: `ulimit -l unlimited` in this \
             shell if its hard limit allows, the line `USER - memlock unlimited` in \
             /etc/security/limits.conf for logins, LimitMEMLOCK=infinity in a systemd unit"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_prints_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max cpu time              unlimited            unlimited            seconds   \n\
                    Max locked memory         8388608              unlimited            bytes     \n";
        let found = Memlock::parse(text);
        assert_eq!(
            found,
            Some(Memlock {
                soft: Some(8 << 20),
                hard: None
            })
        );
        assert_eq!(Memlock::parse("Max locked memory  many"), None);
        assert!(Memlock::of_this_process().is_some());
    }
}
