//! The error of watching memory.

/// Reasons why unmapped ranges are not reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnmapsError {
    /// The process may not use userfaultfd, or the kernel reports no unmaps.
    #[error(
        "the kernel reports no unmapped memory to this process ({operation}: {error}); invalidate \
         ranges explicitly before they are unmapped, or allow the system call userfaultfd (a \
         container's seccomp profile often denies it)"
    )]
    Denied {
        /// The operation that failed.
        operation: &'static str,
        /// The operating system's message.
        error: String,
    },
    /// The kernel cannot watch this range.
    #[error(
        "the kernel cannot watch {length} bytes at {address:#x} ({error}): a file mapping, or \
         watched by another userfaultfd of the process"
    )]
    NotWatched {
        /// First address.
        address: u64,
        /// Bytes.
        length: u64,
        /// The operating system's message.
        error: String,
    },
    /// The system refused the thread or its descriptor.
    #[error("{operation}: {error}; raise the limit of threads and open files")]
    System {
        /// The operation that failed.
        operation: &'static str,
        /// The operating system's message.
        error: String,
    },
}
