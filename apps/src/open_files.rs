//! The limit of open files (`RLIMIT_NOFILE`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process as far as it may. A model has a descriptor for each connection
/// and for each shared file of its clients' memory; many systems begin with a limit of 1024.
///
/// Not for a process that starts programs: some keep a table of all descriptors that there may be.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Below the highest limit a model works with fewer clients.
    let _ = setrlimit(Resource::Nofile, raised);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_highest_afterwards() {
        let limit = getrlimit(Resource::Nofile);
        let low = Rlimit {
            current: limit.current.map(|current| current.min(512)),
            ..limit
        };
        setrlimit(Resource::Nofile, low).unwrap();
        raise();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }
}
