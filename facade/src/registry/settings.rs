//! Settings of a registry.

use std::time::Duration;

/// Settings of a [`Registry`](super::Registry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrySettings {
    /// The longest call of a client. After it `open` and `register` continue without the client,
    /// and `remove`, `unregister` and `close` return an error that names it. Default: 10 s; at most
    /// [`RegistrySettings::MAX_DEADLINE`].
    pub call_deadline: Duration,
    /// The time for which a device may not respond on the bus before it counts as removed. A device
    /// that is reset, or whose link is trained again, is back within a second. Default: 3 s; at
    /// most [`RegistrySettings::MAX_DEADLINE`].
    pub removal_after: Duration,
}

impl RegistrySettings {
    /// A longer time counts as this one: an hour.
    pub const MAX_DEADLINE: Duration = Duration::from_secs(3600);
}

impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            call_deadline: Duration::from_secs(10),
            removal_after: Duration::from_secs(3),
        }
    }
}
